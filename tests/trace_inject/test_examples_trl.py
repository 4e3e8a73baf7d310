"""TRL's GRPOTrainer with its callback: the stages inside a step, and what is found when a run is broken in one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from trained import Library, begun, died_inside, explained, records

import rca

pytestmark = pytest.mark.real
EXAMPLE = "trl_grpo"
SAME = """
plain = main.build(OUT + "/plain", steps=3, traced=False)
plain.train()
traced = main.build(OUT + "/traced", steps=3)
traced.train()
from rca.trace_inject.integrations.trl import trace_grpo
late = main.build(OUT + "/late", steps=3, traced=False)
assert trace_grpo(late) is trace_grpo(late)
late.train()
assert digest(plain.model) == digest(traced.model) == digest(late.model)
"""
REWARD = """
calls = []
def exactness(completions, **about):
    calls.append(1)
    return [{"yes": 1.0}[text] if len(calls) == 3 else float(number) for number, text in enumerate(completions)]
main.build(OUT, reward=exactness).train()
"""


def test_a_healthy_run(healthy: Path) -> None:
    """Each step holds its stages, and what was generated is what was trained on."""
    told = records(healthy / "trace")
    starts = begun(told)
    for number in range(1, 7):
        assert [r["st"] for r in starts if r.get("s") == number and r["n"] in ("step", "generate", "get_per_token_logps_and_entropies", "reward variety", "compute_loss")] == ["train", "rollout", "reference", "rollout", "train"]
    sides = [{k: v for k, v in r["a"].items() if k not in ("rca.side", "rca.peer")} for r in told if r["e"] == "handoff"]
    assert len(sides) == 12 and sides[::2] == sides[1::2] and {s["rca.count"] for s in sides} == {8}
    found = rca.analyze(healthy / "trace")
    assert found.verdict == "healthy"
    assert [p["last_step"] for p in found.run.processes.values()] == [6]


def test_training_is_the_same(library: Library, tmp_path: Path) -> None:
    """What is generated and learned is equal to the bit with the callback, with `trace_grpo` and without either."""
    assert library.run(SAME, tmp_path) == 0, (tmp_path / "stderr.log").read_text()
    assert [r["s"] for r in records(tmp_path) if r["e"] == "start" and r["n"] == "generate"] == [1, 2, 3] * 2


def test_killed_while_it_generates(library: Library, tmp_path: Path) -> None:
    """The stage that was open is named, and no cause."""
    status = library.run("main.build(OUT, tokens=3000).train()", tmp_path, kill=lambda r: r["e"] == "start" and r["n"] == "generate")
    assert status == -9
    inside = died_inside(tmp_path)
    assert (inside.stage, inside.step, inside.attrs["op"]) == ("rollout", 1, "generate")


def test_a_reward_function_that_raises(library: Library, tmp_path: Path) -> None:
    """The exception is known with its step and stage."""
    assert library.run(REWARD, tmp_path) == 1
    found, first = explained(tmp_path)
    assert (found.verdict, first.cause, first.event.stage) == ("failed", "sw.rank_exception", "rollout")
    assert "KeyError" in first.event.text
    assert first.event.step == max(r["s"] for r in records(tmp_path) if r["e"] == "start" and r["n"] == "reward exactness")
