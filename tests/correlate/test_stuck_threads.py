"""Threads that the kernel does not let go, the saves that they hang in, and what cannot be read later because of them. SYNTHETIC journals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rca
from rca.model import Event

S = 10**9
T0 = 1_757_250_170 * S
CKPT = "/mnt/ckpt/periodic/step-000003"


def journal(folder: Path, who: str, pid: int, *records: dict[str, Any], host: str = "gpu-1", role: str = "train", rank: int | None = 0, start_s: float = 0) -> None:
    """A journal; `t` of each record is in seconds from the beginning."""
    head = {"schema": "rca.trace/1", "host": host, "pid": pid, "role": role, **({"rank": rank} if rank is not None else {}), "start": T0 + int(start_s * S), "clock": {"wall": T0, "monotonic": 5}}
    lines = [head, *({**r, "t": T0 + int(r["t"] * S)} for r in records)]
    (folder / f"{who}-{host}-{pid}.rca.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def span(key: str, name: str, start_s: float, end_s: float | None, error: str | None = None, **more: Any) -> list[dict[str, Any]]:
    attributes = more.pop("a", {})
    found = [{"t": start_s, "e": "start", "id": key, "tr": "7f", "n": name, **more, **({"a": attributes} if attributes else {})}]
    failed = {"a": {"status": "error", "exception.type": (error or "").partition(":")[0], "exception.message": (error or "").partition(": ")[2]}} if error else {}
    return found + ([{"t": end_s, "e": "end", "id": key, **failed}] if end_s is not None else [])


def steps(first: int, last: int, start_s: float, stage: str = "train") -> list[dict[str, Any]]:
    return [r for n in range(first, last + 1) for r in span(f"5{n:03x}", stage, start_s + n - first, start_s + n - first + 0.8, st=stage, s=n)]


def stuck(pid: int, values: list[tuple[float, int]], wchan: str | None = "percpu_rwsem_wait") -> list[dict[str, Any]]:
    """What `rca sample` writes of a process, at those seconds."""
    where = {f"pid={pid},wchan={wchan}": {"proc.stuck_in": 1}} if wchan else {}
    return [{"t": t, "e": "sample", "n": "changes", "a": {f"pid={pid}": {"proc.stuck_threads": n}, **(where if n else {})}} for t, n in values]


def job(folder: Path, samples: list[dict[str, Any]], told: str | None = "saving", waited: bool = True, read: str = f"FileNotFoundError: [Errno 2] No such file or directory: '{CKPT}/state.json'") -> Path:
    """A periodic save of step 3 that begins at second 10 and never ends, a loop that goes on, a crash of another worker, and a restart that reads."""
    about = {"rca.path": CKPT, "rca.complete": False, "op": "save"}
    save = {
        "saving": [{"t": 10, "e": "checkpoint", "id": "save-3", "n": "checkpoint_saving", "st": "periodic_recover_save", "s": 3, "a": about}],
        "span": span("a3", "write", 10, None, st="periodic_recover_save", s=3, a={"path": CKPT}),
        None: [],
    }[told]
    earlier = span("a1", "write", 5, 5.2, st="periodic_recover_save", s=1, a={"path": CKPT.replace("3", "1")})
    journal(folder, "train-0", 71, *steps(1, 3, 1), *earlier, *save, *steps(4, 5, 16))
    call = span("c3", "POST /save", 9.9, 15, "TimeoutError: Request timeout after 5 s (train/0)", st="periodic_recover_save", s=3, a={"kind": 3, "rca.peer": "train/0"})
    fine = span("c4", "POST /train", 16, 16.5, st="train", s=4, a={"kind": 3, "rca.peer": "train/0"})
    crash = span("c5", "POST /generate", 18, 18.2, "ConnectionResetError: [Errno 104] Connection reset by peer", st="rollout", s=5, a={"kind": 3, "rca.peer": "rollout/1"})
    journal(folder, "controller-x", 50, *(call if waited else []), *fine, *crash, host="head", role="controller", rank=None)
    journal(folder, "sampler-x", 60, *samples, role="sampler", rank=None)
    journal(folder, "train-0", 171, *span("b1", "load", 40, 40.5, read, st="recover", s=3), start_s=39)
    return folder


HUNG = stuck(71, [(8, 0), (11, 0), (12, 1), (13, 1), (20, 1), (30, 1)])
READS = [f"FileNotFoundError: [Errno 2] No such file or directory: '{CKPT}/state.json'", f"RuntimeError: Corrupted checkpoint: {CKPT}/model.pt is not a valid file"]


def kinds(found: Any, kind: str) -> list[Event]:
    return [e for e in found.run.events if e.kind == kind]


@pytest.mark.parametrize("told", ["saving", "span"])
def test_a_process_stuck_in_its_save(tmp_path: Path, told: str) -> None:
    """The event has the place of the process and what it saved; it is the cause of the file that is missing later."""
    found = rca.analyze(job(tmp_path, HUNG, told))
    (event,) = kinds(found, "process.uninterruptible")
    assert (event.host, event.pid, event.rank, event.role, event.path, event.stage, event.step) == ("gpu-1", 71, 0, "train", CKPT, "periodic_recover_save", 3)
    assert event.attrs["wchan"] == "percpu_rwsem_wait" and not event.attrs["recovered"]
    assert event.time_ns is not None and T0 + 11 * S <= event.time_ns <= T0 + 12 * S
    (first, *others) = found.judged.hypotheses
    assert (found.verdict, first.cause, first.rule) == ("failed", "fs.hang", "coupling/08_periodic_save_corrupts_recover")
    assert (first.event.stage, first.symptom.stage if first.symptom else None) == ("periodic_recover_save", "recover")
    assert {k: first.entity[k] for k in ("host", "role", "rank", "path")} == {"host": "gpu-1", "role": "train", "rank": 0, "path": CKPT}
    assert first.confidence > 0.8 and not first.inferred and all(h.confidence < 0.1 for h in others)


@pytest.mark.parametrize("read", READS, ids=["missing", "corrupt"])
@pytest.mark.parametrize("told", ["saving", "span"])
def test_traces_alone(tmp_path: Path, told: str, read: str) -> None:
    """Nobody saw the process asleep: inferred, and less sure of it."""
    found = rca.analyze(job(tmp_path, [], told, read=read))
    (first, *_) = found.judged.hypotheses
    assert (found.verdict, first.cause, first.inferred) == ("failed", "fs.hang", True)
    assert (first.event.stage, first.symptom.stage if first.symptom else None, first.entity["host"], first.entity["rank"], first.entity["path"]) == ("periodic_recover_save", "recover", "gpu-1", 0, CKPT)
    seen = rca.analyze(job(tmp_path, HUNG, told, read=read)).judged.hypotheses[0]
    assert 0.5 < first.confidence < seen.confidence


@pytest.mark.parametrize("samples", [HUNG, []], ids=["seen", "traces"])
def test_a_hung_save_that_the_next_weight_update_reads(tmp_path: Path, samples: list[dict[str, Any]]) -> None:
    """The same in one attempt: what the engine cannot read is what the trainer did not write."""
    latest = CKPT.replace("periodic", "latest")
    journal(tmp_path, "train-0", 71, *steps(1, 3, 1), {"t": 10, "e": "checkpoint", "id": "save-3", "n": "checkpoint_saving", "st": "latest_recover_save", "s": 3, "a": {"rca.path": latest, "rca.complete": False}})
    call = span("c3", "POST /save", 9.9, 15, "TimeoutError: Request timeout after 5 s (train/0)", st="latest_recover_save", s=3, a={"kind": 3, "rca.peer": "train/0"})
    update = span("c4", "POST /update_weights", 16, 16.5, "RuntimeError: 500 weights update failed: invalid checkpoint format", st="weights_update", s=4, a={"kind": 3, "rca.peer": "rollout/0"})
    journal(tmp_path, "controller-x", 50, *call, *update, host="head", role="controller", rank=None)
    journal(tmp_path, "sampler-x", 60, *samples, role="sampler", rank=None)
    journal(tmp_path, "rollout-0", 81, *span("b1", "update_weights", 16.1, 16.4, f"RuntimeError: invalid checkpoint format: {latest}/model.pt", st="weights_update", s=4), host="gpu-2", role="rollout")
    (first, *_) = rca.analyze(tmp_path).judged.hypotheses
    assert (first.cause, first.event.stage, first.symptom.stage if first.symptom else None, first.entity["host"], first.entity["rank"]) == ("fs.hang", "latest_recover_save", "weights_update", "gpu-1", 0)
    assert first.inferred is (not samples) and first.confidence > (0.9 if samples else 0.5)


def test_a_save_that_nobody_waited_for(tmp_path: Path) -> None:
    """It is open, and what it did not write is missing: no error of the configuration; whether it hung, nobody can tell."""
    found = rca.analyze(job(tmp_path, [], waited=False))
    assert found.verdict == "inconclusive"
    assert all(h.confidence < 0.5 for h in found.judged.hypotheses)


def test_a_file_that_no_save_was_to_write(tmp_path: Path) -> None:
    """Without an open save a missing file is what it was; and so is one of another checkpoint, whose name begins alike."""
    (first, *_) = rca.analyze(job(tmp_path, [], told=None, waited=False)).judged.hypotheses
    assert first.cause == "sw.config" and first.confidence > 0.8
    (first, *_) = rca.analyze(job(tmp_path, [], waited=False, read=f"FileNotFoundError: [Errno 2] No such file or directory: '{CKPT}0/state.json'")).judged.hypotheses
    assert first.cause == "sw.config"


@pytest.mark.parametrize(
    "values",
    [[(8, 0), (11, 0), (12, 1), (13, 0)], [(11, 0), (12, 1), (13, 1), (14, 1), (15, 0)], [(12, 1)], [(11, 0), (12, 1), (13, 0), (20, 1), (21, 0)], [(8, 0), (30, 0)]],
    ids=["one sample", "two seconds", "the last sample", "twice", "never"],
)
def test_short_sleeps_are_silent(tmp_path: Path, values: list[tuple[float, int]]) -> None:
    """One access to a disk is no event."""
    assert kinds(rca.analyze(job(tmp_path, stuck(71, values))), "process.uninterruptible") == []


def test_a_process_that_was_let_go(tmp_path: Path) -> None:
    """It lived on for long after: recovered. One that was let go only to end is not."""
    later = [*stuck(71, [(11, 0), (12, 1), (16, 1), (17, 0), (30, 0)]), {"t": 31, "e": "sample", "n": "changes", "a": {"pid=71": {"mem.process": 3e9}}}]
    (event,) = kinds(rca.analyze(job(tmp_path, later)), "process.uninterruptible")
    assert event.attrs["recovered"] is True
    (event,) = kinds(rca.analyze(job(tmp_path, stuck(71, [(11, 0), (12, 1), (16, 1), (17, 0)]))), "process.uninterruptible")
    assert event.attrs["recovered"] is False


def test_another_process_has_no_part_in_the_save(tmp_path: Path) -> None:
    """A process that was stuck in something else neither has its path nor is its cause."""
    found = rca.analyze(job(tmp_path, stuck(99, [(11, 0), (12, 1), (20, 1)])))
    (event,) = kinds(found, "process.uninterruptible")
    assert (event.pid, event.rank, event.path) == (99, None, None)
    assert found.judged.hypotheses[0].event.kind == "checkpoint.save_open" and found.judged.hypotheses[0].entity["pid"] == 71


@pytest.mark.parametrize("values", [{"proc.stuck_threads": -1}, {"proc.stuck_threads": 1e29}, {"proc.stuck_threads": "x"}, {"proc.stuck_in": 1}])
def test_hostile_samples(tmp_path: Path, values: dict[str, Any]) -> None:
    """Whatever stands there, nothing is raised."""
    rows = [{"t": 10 + n, "e": "sample", "n": "changes", "a": {about: values}} for n in range(6) for about in ("pid=71", "pid=x", "pid=" + "9" * 40, "", "pid=71,wchan=")]
    assert rca.analyze(job(tmp_path, rows)).verdict == "failed"
