"""All ten couplings on simulated runs: the cause is named; without its decisive source nothing is asserted wrongly; decoys do not move it;
what only looks like a coupling is not taken for one, and a healthy run stays healthy.

Expected failures of today stand in known_gaps.toml, strictly: one that begins to pass fails here until its entry is removed.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from coupling.measure import judge
from coupling.simulate.build import build, dialects, possible, scenarios, write

import rca

GAPS = tomllib.loads((Path(__file__).parent / "known_gaps.toml").read_text("utf-8"))
SEED = 1


def _spread() -> list[tuple[str, str]]:
    """Every scenario once, the dialects in turn."""
    names, pairs = list(dialects()), []
    for i, scenario in enumerate(scenarios()):
        able = [d for d in names if possible(scenario, d)]
        pairs.append((scenario, able[i % len(able)]))
    return pairs


def _params(kind: str, pick: str) -> list[Any]:
    found = []
    for scenario, dialect in _spread():
        if scenario.startswith(pick):
            name = f"{kind}:{scenario}:{dialect}"
            marks = [pytest.mark.xfail(strict=True, reason=GAPS[name])] if name in GAPS else []
            found.append(pytest.param(scenario, dialect, id=name, marks=marks))
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("coupling")


@cache
def _analyze(scratch: Path, scenario: str, dialect: str, without: bool, decoys: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(document, truth)."""
    files, truth = build(scenario, dialect, SEED, without=without, decoys=decoys)
    folder = scratch / f"{scenario}-{dialect}-{without}-{decoys}"
    write(folder, files, truth)
    return rca.analyze(folder / "logs", workers=1).document, truth


def _first(document: dict[str, Any]) -> dict[str, Any]:
    return next(iter(document["hypotheses"]), {"cause": None, "confidence": 0.0, "inferred": False})


@pytest.mark.parametrize("scenario, dialect", _params("named", "s"))
def test_cause_is_named(scratch: Path, scenario: str, dialect: str) -> None:
    """The class that an expert would name comes first."""
    document, truth = _analyze(scratch, scenario, dialect, False, 0)
    assert document["verdict"] == "failed"
    assert _first(document)["cause"] in truth["accept"]


@pytest.mark.parametrize("scenario, dialect", _params("without", "s"))
def test_decisive_source_taken_away(scratch: Path, scenario: str, dialect: str) -> None:
    """What is left allows an inference or none, never a wrong certainty."""
    document, truth = _analyze(scratch, scenario, dialect, True, 0)
    assert not judge(document, truth)["sure_and_wrong"], judge(document, truth)["got"]


@pytest.mark.parametrize("scenario, dialect", _params("decoy", "s"))
def test_decoys_do_not_move_the_cause(scratch: Path, scenario: str, dialect: str) -> None:
    """Four frightening things more, and the same cause."""
    plain, _ = _analyze(scratch, scenario, dialect, False, 0)
    noisy, _ = _analyze(scratch, scenario, dialect, False, 4)
    assert (_first(noisy)["cause"], noisy["verdict"]) == (_first(plain)["cause"], plain["verdict"])


@pytest.mark.parametrize("scenario, dialect", _params("alike", "l"))
def test_look_alike_is_no_coupling(scratch: Path, scenario: str, dialect: str) -> None:
    """Same symptom, neighbouring cause: that cause is named, or at least the coupling is not."""
    document, truth = _analyze(scratch, scenario, dialect, False, 1)
    row = judge(document, truth)
    assert row["rule"] and not row["sure_and_wrong"], row["got"]


@pytest.mark.parametrize("scenario, dialect", _params("healthy", "h"))
def test_noisy_run_stays_healthy(scratch: Path, scenario: str, dialect: str) -> None:
    """Six decoys in a run that reached its end."""
    document, _ = _analyze(scratch, scenario, dialect, False, 6)
    assert document["verdict"] == "healthy"
