"""Courses of numbers: a loss that rises and stays, one that spikes, one rank that is slow, steps that slow down."""

from __future__ import annotations

from pathlib import Path

from rca.model import Event, Run
from rca.taxonomy import Kind
from tests.builders import run_of

FALLING = [3.0, 2.8, 2.6, 2.5, 2.42, 2.41, 2.37, 2.36, 2.33, 2.32]


def log(losses: list[float | str], rank: int = 0, seconds: list[float] | None = None) -> str:
    pace = seconds or [1.0] * len(losses)
    return "".join(f" iteration {i:7d}/ 9000 | elapsed time per iteration (s): {pace[i]} | lm loss: {x} | grad norm: 0.9 |\n" for i, x in enumerate(losses))


def of(run: Run, kind: str) -> list[Event]:
    return [e for e in run.events if e.kind == kind]


def test_a_loss_that_rises_and_stays(tmp_path: Path) -> None:
    """The event stands where the rise began and cites that line and the last one."""
    run = run_of(tmp_path, {"train.log": log([*FALLING, 3.9, 5.8, 6.4, 6.6, 6.5, 6.7])})
    (rose,) = of(run, Kind.LOSS_ROSE)
    assert (rose.step, rose.attrs["weak"], run.outcome) == (10, False, "failed")
    assert [r.line for r in rose.records] == [11, 16]


def test_a_spike_that_goes_by_is_no_failure(tmp_path: Path) -> None:
    """Nothing but metrics, and they went on: whoever asks about the spike is told that it was one."""
    run = run_of(tmp_path, {"train.log": log([*FALLING, 5.1, 3.9, 2.8, 2.4, 2.33, 2.32])})
    assert len(of(run, Kind.LOSS_SPIKE)) == 1 and not of(run, Kind.LOSS_ROSE)
    assert run.outcome == "goes_on"


def test_a_spike_says_nothing_about_the_end_of_a_run(tmp_path: Path) -> None:
    """Beside other lines than metrics the log is one of a run, whose end it does not tell."""
    run = run_of(tmp_path, {"train.log": "".join(f"2026-11-20 12:00:0{i},000 INFO setup: part {i} is ready\n" for i in range(9)) + log([*FALLING, 5.1, 3.9, 2.8, 2.4, 2.33, 2.32])})
    assert run.outcome == "unknown"


def test_falling_and_short_series_are_silent(tmp_path: Path) -> None:
    """No level, no event."""
    for losses in (FALLING, [2.0, 9.0]):
        run = run_of(tmp_path, {"train.log": log(losses)})
        assert not of(run, Kind.LOSS_ROSE) and not of(run, Kind.LOSS_SPIKE)


def test_an_objective_that_comes_nearer_to_zero_has_not_diverged(tmp_path: Path) -> None:
    """A policy gradient's loss swings about zero; what rises from below to beyond its own size above has."""
    below = [-0.08, -0.081, -0.079, -0.0795, -0.08, -0.0802]
    assert not of(run_of(tmp_path / "a", {"train.log": log([*below, -0.02, -0.019, -0.01, -0.0189, -0.019, -0.018])}), Kind.LOSS_ROSE)
    assert of(run_of(tmp_path / "b", {"train.log": log([*below, 2.1, 2.3, 2.2, 2.4, 2.5, 2.4])}), Kind.LOSS_ROSE)


def test_a_non_finite_loss_that_lasts(tmp_path: Path) -> None:
    """A spelling that no signature knows is still a number that is none; a single one that was skipped is not."""
    run = run_of(tmp_path, {"train.log": log([*FALLING, "+nan", "+nan", "+nan"])})
    assert [e.step for e in of(run, Kind.NON_FINITE)] == [10]


def test_one_slow_rank(tmp_path: Path) -> None:
    """Three ranks agree, the fourth needs twice as long; when all need as long, nobody is slow."""
    files = {f"rank{r}.log": log(FALLING, r, [1.0 + 0.01 * r] * 10 if r != 2 else [2.0] * 10) for r in range(4)}
    assert [e.rank for e in of(run_of(tmp_path, files), Kind.RANK_SLOW)] == [2]


def test_steps_that_slow_down_without_times(tmp_path: Path) -> None:
    """The lines carry no time, but the seconds per step."""
    run = run_of(tmp_path, {"rank0.log": log([*FALLING, *FALLING], 0, [1.0] * 14 + [1.8] * 6)})
    assert [e.step for e in of(run, Kind.STEPS_SLOWED)] == [14]
