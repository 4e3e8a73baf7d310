"""What a job writes while it cleans up after an error: no sign that it went on, no success, no preemption, and nobody else's fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rca
from rca.taxonomy import Kind
from tests.builders import run_of
from tests.spans import NOON_NS, SECOND_NS

STAGES = ("weights_update", "rollout", "train")


def line(second: float, text: str, level: str = "INFO") -> str:
    return f"2026-11-20 12:{int(second) // 60:02d}:{second % 60:06.3f} {level} [role=controller] loop: {text}\n".replace(".", ".", 1)


def steps(count: int) -> str:
    """`count` steps of three stages, one a second."""
    return "".join(line(3 * step + i, f"start to {stage}, step: {step}") for step in range(1, count + 1) for i, stage in enumerate(STAGES))


CLEANING = line(13.1, "scheduler begin cleanup resource") + "".join(line(13.2 + i / 10, f"stopping engine {i}: done") for i in range(8))


def test_what_is_cleaned_up_after_an_error_is_no_sign_that_the_run_went_on(tmp_path: Path) -> None:
    """Eight lines of clean-up follow the error: the run failed all the same, of that error."""
    log = steps(3) + line(13, "RuntimeError: CUDA error: an illegal memory access was encountered", "ERROR") + CLEANING
    run = run_of(tmp_path, {"controller.log": log})
    assert run.outcome == "failed"
    assert not any(e.attrs.get("lived_on") for e in run.events if e.severity == "error")


def test_an_error_steps_before_the_clean_up_was_survived(tmp_path: Path) -> None:
    """Training went on for ten steps after it; the clean-up is that of the run's end."""
    log = steps(1) + line(7, "RuntimeError: request to the judge model failed", "ERROR")
    log += "".join(line(10 + 3 * s + i, f"start to {stage}, step: {s}") for s in range(2, 12) for i, stage in enumerate(STAGES))
    log += line(50, "training finished, all steps done") + line(50.1, "scheduler begin cleanup resource")
    run = run_of(tmp_path, {"controller.log": log})
    assert all(e.attrs.get("lived_on") for e in run.events if e.severity == "error")
    assert run.outcome in ("finished", "goes_on")


def test_the_signal_of_a_clean_up_is_no_preemption(tmp_path: Path) -> None:
    """The launcher is told to stop once the job itself had begun to clean up after an error."""
    signal = "W1120 12:00:16.000000 23970 torch/distributed/elastic/agent/server/api.py:720] Received 15 death signal, shutting down workers\n"
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "controller.log").write_text(steps(3) + line(13, "ComputeError: reference worker answered nonsense", "ERROR") + CLEANING)
    (folder / "console.log").write_text(signal)
    told = [h["cause"] for h in rca.analyze(str(folder)).document["hypotheses"] if h["confidence"] >= 0.5]
    assert "host.preempt" not in told
    (folder / "controller.log").write_text(steps(3))
    assert rca.analyze(str(folder)).document["hypotheses"][0]["cause"] == "host.preempt"


def journal(role: str, rank: int | None, pid: int, *records: dict) -> str:
    head = {"schema": "rca.trace/1", "host": "h1", "pid": pid, "role": role, "run": "r", "start": NOON_NS, "clock": {"wall": NOON_NS, "monotonic": 1}} | ({} if rank is None else {"rank": rank})
    return "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in (head, *records))


def record(kind: str, seconds: float, **values: object) -> dict:
    return {"t": NOON_NS + int(seconds * SECOND_NS), "e": kind, **values}


@pytest.mark.parametrize("failed", [True, False])
def test_processes_that_leave_in_order_have_not_therefore_succeeded(tmp_path: Path, failed: bool) -> None:
    """Workers that are asked to end do so in order whatever made the run end; where nothing failed, they are the end of a healthy one."""
    error = {"error": "ValueError: shapes differ", "exception.type": "ValueError", "exception.message": "shapes differ"} if failed else {}
    trace = "f" * 32
    span = [record("start", 1, id="a" * 16, tr=trace, n="train", st="train", s=3), record("end", 2, id="a" * 16, **({"a": error} if error else {}))]
    files = {
        "trace/controller-x-h1-1.rca.jsonl": journal("controller", None, 1, *span),
        "trace/rollout-0-h1-2.rca.jsonl": journal("rollout", 0, 2, record("start", 1, id="b" * 16, tr=trace, n="work", st="rollout", s=3), record("end", 1.5, id="b" * 16), record("event", 3, n="rca.exit")),
    }
    outcome = run_of(tmp_path, files).outcome
    assert (outcome == "failed") if failed else (outcome == "finished")


def test_a_wait_in_which_rollout_workers_took_part_is_not_one_ranks_fault(tmp_path: Path) -> None:
    """Rank 0 and the rollout workers time out in the collective of the weights: rank 1, which has no part in it, is not the one they waited for."""
    wait = (
        "2026-11-20 12:00:{:02d},000 ERROR [{}] worker: {} failed\nTraceback (most recent call last):\n  File \"sync.py\", line 5, in send\n    work.wait()\n"
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"
    )
    begin = "2026-11-20 12:00:01,000 INFO [role={} rank={}] worker: up, pid {}\n"
    files = {f"train/attempt_0/{r}/stderr.log": begin.format("train", r, 10 + r) for r in range(2)}
    files["train/attempt_0/0/stderr.log"] += wait.format(31, "role=train rank=0", "upload_weights")
    files["train/attempt_0/1/stderr.log"] += "".join(f"2026-11-20 12:00:{30 + i},000 INFO [role=train rank=1] worker: idle\n" for i in range(4))
    for r in range(2):
        files[f"rollout-{r}.log"] = begin.format("rollout", r, 20 + r) + wait.format(31, f"role=rollout rank={r}", "update_weights")
    assert not [e for e in run_of(tmp_path, files).events if e.kind == Kind.RANK_SILENT]


def test_a_chain_that_ends_in_a_failed_stop_is_a_failed_stop(tmp_path: Path) -> None:
    """What timed out was the request to stop: the clean-up, not the work."""
    chain = (
        "2026-11-20 12:00:15,000 ERROR loop: going down\nTraceback (most recent call last):\n  File \"http.py\", line 5, in _stop\n    raise ReadTimeout()\nhttpcore.ReadTimeout: timed out\n\n"
        "The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"loop.py\", line 9, in main\n    stop_all()\n"
        "SchedulerError: Failed to stop job: Request timeout\n"
    )
    kinds = [e.kind for e in run_of(tmp_path, {"controller.log": steps(3) + chain}).events]
    assert Kind.STOP_FAILED in kinds and Kind.RPC_TIMEOUT not in kinds


def test_a_failed_stop_in_the_handling_of_another_time_out_hides_nothing(tmp_path: Path) -> None:
    """The work's own request had timed out before: it stays an event."""
    chain = (
        "2026-11-20 12:00:15,000 ERROR loop: going down\nTraceback (most recent call last):\n  File \"rpc.py\", line 5, in generate\n    raise ReadTimeout()\nhttpcore.ReadTimeout: timed out\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"loop.py\", line 9, in main\n    stop_all()\n"
        "SchedulerError: Failed to stop job: Request timeout\n"
    )
    assert Kind.RPC_TIMEOUT in [e.kind for e in run_of(tmp_path, {"controller.log": steps(3) + chain}).events]


def test_a_scheduler_that_says_why_is_believed(tmp_path: Path) -> None:
    """The trainer cleans up because it is preempted; that something else was logged as an error just before changes nothing."""
    log = steps(3) + line(12.5, "could not push metrics, will try again with the next step", "ERROR") + CLEANING
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "controller.log").write_text(log)
    (folder / "slurm-12.out").write_text("slurmstepd: error: *** STEP 12.0 ON gpu-1 CANCELLED AT 2026-11-20T12:00:15 DUE TO PREEMPTION ***\n")
    first = rca.analyze(str(folder)).document["hypotheses"][0]
    assert first["cause"] == "host.preempt" and first["confidence"] > 0.8


def test_the_rank_that_hangs_in_training_is_named_though_rollout_workers_wait_as_well(tmp_path: Path) -> None:
    """An all-reduce of the trainer hangs; the rollout server, which waits for weights, gives up a second later."""
    wait = (
        "2026-11-20 12:00:{:02d},000 ERROR [{}] {}\nTraceback (most recent call last):\n  File \"ddp.py\", line 5, in {}\n    work.wait()\n"
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"
    )
    begin = "".join(f"2026-11-20 12:00:{i:02d},000 INFO [rank {{0}}] train step={i} loss=2.0\n" for i in range(1, 5))
    files = {f"train/attempt_0/{r}/stderr.log": begin.format(r) for r in range(3)}
    for r in (0, 1):
        files[f"train/attempt_0/{r}/stderr.log"] += wait.format(31, f"rank {r}", "backward failed", "all_reduce")
    files["rollout-server.log"] = "2026-11-20 12:00:01,000 INFO [role=rollout] up\n" + wait.format(32, "role=rollout", "update_weights failed", "recv_weights")
    assert [e.rank for e in run_of(tmp_path, files).events if e.kind == Kind.RANK_SILENT] == [2]
