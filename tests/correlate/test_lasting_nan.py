"""A loss that is no number to the end of the run: steps that follow do not make it good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rca

QUOTED = "{{'loss': '{}', 'grad_norm': '{}', 'learning_rate': '0.001', 'epoch': '0.{}'}}\n"
PLAIN = "step {2} loss: {0} grad_norm: {1}\n"


def run(tmp_path: Path, form: str, rows: list[tuple[str, str]], end: str = "training finished\n") -> Any:
    """The analysis of a log with these losses and gradient norms."""
    path = tmp_path / "train.log"
    path.write_text("".join(form.format(loss, norm, number) for number, (loss, norm) in enumerate(rows, 1)) + end)
    return rca.analyze(path)


@pytest.mark.parametrize("form", [QUOTED, PLAIN])
def test_to_the_end(tmp_path: Path, form: str) -> None:
    """The run made all its steps and failed."""
    found = run(tmp_path, form, [("2.1", "0.9")] * 4 + [("nan", "nan")] * 5)
    assert (found.verdict, found.judged.hypotheses[0].cause) == ("failed", "sw.nan")


@pytest.mark.parametrize("form", [QUOTED, PLAIN])
def test_for_a_while(tmp_path: Path, form: str) -> None:
    """It came back by itself, and the run finished."""
    assert run(tmp_path, form, [("2.1", "0.9")] * 4 + [("nan", "nan")] * 2 + [("2.0", "0.8")] * 9).verdict == "healthy"


def test_an_average_in_its_place(tmp_path: Path) -> None:
    """Some trainers print no such loss; the gradient norms of all later lines tell."""
    found = run(tmp_path, QUOTED, [("2.1", "0.9")] * 4 + [("0", "nan")] * 5)
    assert (found.verdict, found.judged.hypotheses[0].cause) == ("failed", "sw.nan")


def test_a_loss_scaler_at_its_work(tmp_path: Path) -> None:
    """A first step or two whose gradients overflow are skipped."""
    assert run(tmp_path, QUOTED, [("2.3", "inf"), ("2.3", "nan")] + [("2.1", "0.9")] * 9).verdict == "healthy"
