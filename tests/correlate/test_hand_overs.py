"""What did not arrive, what several roles miss together, and who still holds a device: told by no line, and by nothing but these lines."""

from __future__ import annotations

import pytest
from builders import NOON_NS, SECOND_NS, event, run_of

from rca.correlate.concern import follows
from rca.correlate.doubt import COUNTS, rows_only
from rca.correlate.edges.dataflow import accounts
from rca.taxonomy import Kind

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.69 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.02 GiB is free. "
    "Process 7002 has 61.02 GiB memory in use. Including non-PyTorch memory, this process has 15.40 GiB memory in use."
)


def log(who: str, *lines: str, start: int = 0) -> str:
    """Lines of one process, ten seconds apart."""
    return "".join(f"2026-11-03 09:{(start + 10 * i) // 60:02d}:{(start + 10 * i) % 60:02d},000 {line.split(' ', 1)[0]} [{who}] {line.split(' ', 1)[1]}\n" for i, line in enumerate(lines))


def kinds(run, kind: str) -> list:
    return [e for e in run.events if e.kind == kind]


def test_a_receiver_counts_less_than_the_sender_made(tmp_path):
    """The controller notices nothing, but its number is not the worker's."""
    files = {
        "reference-0.log": log("reference-0", "INFO serving on ox-3:9401, pid 7301", *["INFO scored 64 rows"] * 4),
        "controller.log": log("controller", "INFO up", *[f"INFO {n} rows from reference-0" for n in (64, 64, 64, 41)], start=5),
    }
    (short,) = kinds(run_of(tmp_path, files), Kind.PAYLOAD_DIFFERS)
    assert (short.attrs["got"], short.attrs["expected"], short.attrs["about"]["role"]) == (41, 64, "reference")
    assert "41 rows from reference-0" in short.also[0].text


def test_equal_counts_are_no_event(tmp_path):
    """Nothing is short where both ends agree, and a number that varies has no usual value."""
    files = {
        "reference-0.log": log("reference-0", "INFO serving on ox-3:9401, pid 7301", *["INFO scored 64 rows"] * 4),
        "controller.log": log("controller", "INFO up", *["INFO 64 rows from reference-0"] * 4, *[f"INFO kept {n} samples" for n in (60, 41, 55, 38)], start=5),
    }
    assert kinds(run_of(tmp_path, files), Kind.PAYLOAD_DIFFERS) == []


@pytest.mark.parametrize(("rollout", "found"), [("ERROR pull from http://10.8.0.14:17000 refused", 1), ("INFO weights loaded", 0)])
def test_two_roles_that_fail_against_one_address_share_a_service(tmp_path, rollout, found):
    """One role alone says nothing of a service."""
    files = {
        "train-0.log": log("train-0", "INFO serving on ox-1:9301, pid 7001", "ERROR push to http://10.8.0.14:17000 timed out after 300s"),
        "rollout-0.log": log("rollout-0", "INFO serving on ox-2:9201, pid 7101", rollout),
    }
    lost = kinds(run_of(tmp_path, files), Kind.SERVICE_LOST)
    assert len(lost) == found
    assert all(e.attrs["address"] == "10.8.0.14:17000" for e in lost)


@pytest.mark.parametrize(("other", "found"), [("rollout-0", 1), ("train-1", 0)])
def test_a_device_is_held_only_where_roles_take_turns(tmp_path, other, found):
    """The same report in a run of trainers alone is somebody else's process."""
    files = {
        "train-0.log": log("train-0", "INFO serving on ox-1:9301, pid 7002", *[f"INFO step {n} loss 0.1" for n in (1, 2, 3)]),
        f"{other}.log": log(other, "INFO serving on ox-1:9201, pid 7101", *[f"INFO step {n} loss 0.1" for n in (1, 2, 3)], f"ERROR step 3 failed: {OOM}", start=5),
    }
    assert len(kinds(run_of(tmp_path, files), Kind.DEVICE_HELD)) == found


@pytest.mark.parametrize(
    ("short", "misfit", "told"),
    [
        ("only received 192 of 256", "batch has 192 rows, expected 256", True),
        ("70/128 rows decoded", "size of tensor a (256) must match the size of tensor b (198)", True),
        ("use 384/512 samples", "expected 128 per dp rank, got 96", True),
        ("only received 192 of 256", "mat1 and mat2 shapes cannot be multiplied (8x4096 and 1024x64)", False),
    ],
)
def test_numbers_account_for_what_is_missing(short, misfit, told):
    """The same counts, the same difference, or the same part; other numbers say nothing."""
    assert accounts(event(Kind.PARTIAL_RESULT, short), event(Kind.SHAPE_MISMATCH, misfit)) is told


def test_counts_and_rows():
    """Two counts of things are told from any two numbers, and rows from columns."""
    assert COUNTS.search("len(ref_log_probs) 114 vs len(log_probs) 128")
    assert not COUNTS.search("cannot open shard 12 of 40")
    assert rows_only("expected [64, 512], got [32, 512]")
    assert not rows_only("expected [64, 512], got [64, 513]")


def test_what_may_come_after():
    """Clocks of two hosts are not trusted to the minute; those of one host are, and steps are."""
    later = {"time_ns": NOON_NS - 60 * SECOND_NS, "source": "b.log"}
    assert follows(event(), event(host="node-2", **later))
    assert not follows(event(), event(**later))
    assert not follows(event(step=9), event(step=5, host="node-2", source="b.log"))
