"""Somebody's own trainer, recorded in one process and replayed in another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rca.errors import RcaError
from rca.replay.own import play

PROGRAM = Path(__file__).parent / "programs" / "own_trainer.py"
ROOT = Path(__file__).resolve().parents[2]


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RCA_")} | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120)


def test_sound_requests_give_the_same_bits_with_state_and_random_numbers_brought_back(tmp_path: Path) -> None:
    assert _run("record", tmp_path).returncode == 0
    done = _run("replay", tmp_path)
    assert done.stdout.splitlines()[-1] == "verdict: None", done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[:-1]] == [["reproduces", str(step)] for step in range(6)]
    assert (tmp_path / "replay-train-0.rca.jsonl").exists()


@pytest.mark.parametrize(("kind", "verdict"), [("shape", "reproduces"), ("lost", "does not reproduce")])
def test_bad_data_fails_again_and_a_lost_file_that_is_back_does_not(tmp_path: Path, kind: str, verdict: str) -> None:
    assert _run("record", tmp_path, kind).returncode == 1
    (tmp_path / "lost").touch()
    done = _run("replay", tmp_path)
    assert done.stdout.splitlines()[-1] == f"verdict: {verdict}", done.stdout + done.stderr


def test_a_machine_that_computes_otherwise_is_found_out(tmp_path: Path) -> None:
    assert _run("record", tmp_path).returncode == 0
    done = _run("replay", tmp_path, "flip")
    assert done.stdout.splitlines()[-1] == "verdict: diverges" and "loss was" in done.stdout, done.stdout + done.stderr


def test_whose_requests_are_meant_must_be_clear(tmp_path: Path) -> None:
    assert _run("record", tmp_path).returncode == 0
    with pytest.raises(RcaError, match="train/0 are recorded"):
        play(tmp_path, {}, role="rollout")


def test_a_state_that_cannot_be_kept_costs_its_requests_and_nothing_else(tmp_path: Path) -> None:
    """An optimizer's `state_dict()` is nested, and a trainer's own function may raise: the recorder counts no fault of its own, and the rest is kept."""
    import torch

    from rca import trace_inject as rt
    from rca.trace_inject import guard, recording

    def broken() -> dict[str, object]:
        raise KeyError("model")

    before = list(guard.faults)
    rt.record_requests(tmp_path / "recording", role="train", rank=0)
    try:
        for number in range(4):
            with rt.recorded("fit", {"x": torch.ones(2)}, lambda: {"weights": {"w": torch.ones(3)}, "optimizer": {"state": {}, "param_groups": []}}) as request:
                request.result({"number": number})
            with rt.recorded("other", {}, broken):
                pass
            with rt.recorded("plain", {}):
                pass
    finally:
        recording.stop()
    assert guard.faults == before
    found = play(tmp_path, {"fit": lambda x: {}, "other": dict, "plain": dict}, restore=lambda state: None)
    told = [(one.case.request.method, one.outcome, one.text) for one in found.replayed if one.case.request]
    assert len(told) == 12
    assert {(method, outcome) for method, outcome, _ in told} == {("fit", "cannot tell"), ("other", "cannot tell"), ("plain", "reproduces")}
    assert "its state `optimizer` was not kept (TypeError: `state` is no tensor but dict)" in told[0][2] and "KeyError" in told[1][2]
