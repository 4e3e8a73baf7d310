"""What a journal states beside spans: numbers of training, and checkpoints that are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rca

START = 1_757_250_170_000_000_000
HEAD = {"schema": "rca.trace/1", "host": "node-a", "pid": 71, "role": "train", "rank": 3, "start": START, "clock": {"wall": START, "monotonic": 5}}

CONSOLE = """\
E0907 13:02:56.561000 60 torch/distributed/elastic/multiprocessing/api.py:1000] failed (exitcode: -9) local_rank: 3 (pid: 71) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-09-07_13:02:56
  host      : localhost
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 71)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 71
============================================================
"""


def journal(folder: Path, *records: dict[str, Any]) -> Path:
    """A journal of these records, a second apart."""
    lines = [HEAD, *({"t": START + (n + 1) * 10**9, **record} for n, record in enumerate(records))]
    path = folder / "train-3-node_a-71.rca.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def metrics(step: int, **numbers: Any) -> list[dict[str, Any]]:
    """A step, and what was logged of it."""
    span = {"id": f"a{step}", "n": "step", "st": "train", "s": step}
    return [{"e": "start", **span}, {"e": "event", "p": f"a{step}", "n": "metrics", "st": "train", "s": step, "a": numbers}, {"e": "end", "id": f"a{step}"}]


def test_a_loss_that_stayed_no_number(tmp_path: Path) -> None:
    """The step where it began is the cause, although the run went on to its end."""
    rows = [r for n in range(1, 9) for r in metrics(n, loss=2.0 - n / 10 if n < 5 else "nan")]
    found = rca.analyze(journal(tmp_path, *rows, {"e": "exit", "n": "exit"}))
    (first, *_) = found.judged.hypotheses
    assert (found.verdict, first.cause, first.event.step, first.entity.get("rank")) == ("failed", "sw.nan", 5, 3)


def test_a_loss_that_came_back(tmp_path: Path) -> None:
    """One batch whose loss is no number is no failure."""
    rows = [r for n in range(1, 9) for r in metrics(n, loss=2.0 - n / 10 if n != 5 else "nan")]
    assert rca.analyze(journal(tmp_path, *rows)).verdict != "failed"


def test_an_event_named_after_its_number(tmp_path: Path) -> None:
    """`event("loss", value=...)` is such a number, too."""
    rows = [{"e": "event", "n": "loss", "st": "train", "s": n, "a": {"value": 1.5 if n < 3 else "nan"}} for n in range(1, 6)]
    (first, *_) = rca.analyze(journal(tmp_path, *rows)).judged.hypotheses
    assert (first.cause, first.event.step) == ("sw.nan", 3)


@pytest.mark.parametrize(
    ("name", "attributes", "kind"),
    [
        ("checkpoint_loaded", {"rca.complete": False, "error": "model.pt has 3 bytes, 9 were written"}, "checkpoint.invalid"),
        ("checkpoint_loaded", {"rca.complete": True}, "checkpoint.loaded"),
        ("checkpoint_loaded", {}, None),
        ("checkpoint_uploaded", {"rca.complete": False, "error": "timed out"}, "checkpoint.save_failed"),
    ],
)
def test_a_checkpoint_that_is_read(tmp_path: Path, name: str, attributes: dict[str, Any], kind: str | None) -> None:
    """It is as it was written, or not, or nobody knows; what is uploaded is saved."""
    found = rca.analyze(journal(tmp_path, {"e": "checkpoint", "n": name, "st": "recover", "a": {"rca.path": "/ckpt/step-9", **attributes}}))
    assert [(e.kind, e.stage, e.path) for e in found.run.events] == ([(kind, "recover", "/ckpt/step-9")] if kind else [])


def test_weights_that_were_changed_are_trained_on(tmp_path: Path) -> None:
    """A file that can be read and is not as it was written: the loss that is no number comes of it."""
    load = {"e": "checkpoint", "n": "checkpoint_loaded", "st": "recover", "a": {"rca.path": "/ckpt/step-9", "rca.complete": False, "error": "model.pt was changed: its checksum is crc32:00000001, crc32:00000002 was written"}}
    found = rca.analyze(journal(tmp_path, load, *(r for n in range(10, 16) for r in metrics(n, loss="nan"))))
    (first, *_) = found.judged.hypotheses
    assert (found.verdict, first.cause, first.entity.get("path")) == ("failed", "fs.corrupt", "/ckpt/step-9")
    assert first.confidence > 0.6 and first.symptom is not None and first.symptom.kind == "numeric.non_finite"


def test_saved_and_read_are_two_things(tmp_path: Path) -> None:
    """A checkpoint that was complete when it was saved, and is not when it is read."""
    rows = [{"e": "checkpoint", "n": n, "st": s, "a": {"rca.path": "/ckpt/step-9", "rca.complete": c, **({} if c else {"error": "model.pt: No such file or directory"})}} for n, s, c in (("checkpoint_saved", "save", True), ("checkpoint_loaded", "recover", False))]
    assert [e.kind for e in rca.analyze(journal(tmp_path, *rows)).run.events] == ["checkpoint.saved", "checkpoint.invalid"]


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b'{"t":1,"e":"event","n":"metrics","a":[1]}\n', b'{"t":1,"e":"event","n":"metrics","a":{"loss":{"x":1}}}\n', b'{"t":1,"e":"event","n":"loss","a":{"value":"9' + b"9" * 4000 + b'"}}\n'])
def test_damaged_numbers(tmp_path: Path, damage: bytes) -> None:
    """Whatever stands there, nothing is raised."""
    path = journal(tmp_path, *metrics(1, loss=1.0))
    path.write_bytes(path.read_bytes() + damage)
    assert rca.analyze(path).verdict in ("inconclusive", "healthy")


def test_where_a_trace_ends(tmp_path: Path) -> None:
    """The innermost span without an end is named with its process, its stage and its step, and what would tell how the process ended."""
    outer = {"e": "start", "id": "a", "n": "step", "st": "train", "s": 4}
    found = rca.analyze(journal(tmp_path, *metrics(3, loss=1.0), outer, {"e": "start", "id": "b", "p": "a", "n": "generate", "st": "rollout", "s": 4}))
    assert found.verdict == "inconclusive"
    assert "`generate` (rollout, step 4) of rank 3 (pid 71 on node-a)" in found.document["summary"]
    assert any("ps -p 71" in m["how"] for m in found.document["coverage"]["missing"])


def test_a_process_that_was_killed_in_a_span(tmp_path: Path) -> None:
    """Its launcher tells the signal and calls the host `localhost`; where it was, and on which host, its own trace tells."""
    journal(tmp_path, *metrics(3, loss=1.0), {"e": "start", "id": "a", "n": "step", "st": "train", "s": 4}, {"e": "start", "id": "b", "p": "a", "n": "evaluate", "st": "eval", "s": 4})
    (tmp_path / "console.log").write_text(CONSOLE)
    found = rca.analyze(tmp_path)
    (first, *_) = found.judged.hypotheses
    assert (first.event.kind, first.event.stage, first.event.step, first.entity.get("host"), first.entity.get("rank")) == ("process.killed", "eval", 4, "node-a", 3)
    assert first.confidence < 0.8


@pytest.mark.parametrize(
    ("records", "done"),
    [
        ([], True),
        ([{"e": "start", "id": "a", "n": "train"}, {"e": "end", "id": "a"}], True),
        ([{"e": "start", "id": "a", "n": "train"}], False),
        ([{"e": "start", "id": "a", "n": "train"}, {"e": "end", "id": "a", "a": {"status": "error", "exception.type": "KeyError", "exception.message": "'x'"}}], False),
    ],
    ids=["nothing else", "a span", "an open span", "a failed span"],
)
def test_a_process_that_left_in_order(tmp_path: Path, records: list[dict[str, Any]], done: bool) -> None:
    """`rca.exit` is the end of the work, unless something behind it failed or is open, or an exception was on its way."""
    kinds = [e.kind for e in rca.analyze(journal(tmp_path, *records, {"e": "event", "n": "rca.exit"})).run.events]
    assert ("run.finished" in kinds) is done
    kinds = [e.kind for e in rca.analyze(journal(tmp_path, *records, {"e": "event", "n": "rca.exit", "a": {"exception.type": "KeyError"}})).run.events]
    assert "run.finished" not in kinds


def test_a_number_counts_within_its_role(tmp_path: Path) -> None:
    """Rank 0 of the rollout is not rank 0 of the job; a trainer's is."""
    for role in ("rollout", "train"):
        head = HEAD | {"role": role, "rank": 0, "pid": 71 if role == "train" else 72}
        lines = [head, {"t": START + 10**9, "e": "start", "id": role, "n": "work", "s": 1}, {"t": START + 2 * 10**9, "e": "end", "id": role}]
        (tmp_path / f"{role}-0-node_a-{head['pid']}.rca.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = rca.analyze(tmp_path).run.processes
    assert {key[1] for key in found} == {0, "rollout/0"} and found[0, 0]["pids"] == (71,) and found[0, "rollout/0"]["pids"] == (72,)


@pytest.mark.parametrize(("waited_s", "open_"), [(0.5, False), (40, True)])
def test_a_call_that_was_given_up(tmp_path: Path, waited_s: float, open_: bool) -> None:
    """Cancelled at once for another's sake it is nothing; after a long wait its callee did not answer."""
    call = {"e": "start", "id": "c", "p": "", "tr": "7f", "n": "POST /generate", "a": {"kind": 3, "server.address": "10.0.0.9", "server.port": 8000}}
    end = {"t": START + 10**9 + int(waited_s * 1e9), "e": "end", "id": "c", "a": {"status": "unset", "rca.cancelled": True}}
    later = [{"t": START + 60 * 10**9, "e": "start", "id": "d", "n": "clean"}, {"t": START + 61 * 10**9, "e": "end", "id": "d"}]
    found = rca.analyze(journal(tmp_path, call, end, *later))
    assert ("request.open" in [e.kind for e in found.run.events]) is open_
