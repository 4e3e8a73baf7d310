"""Mechanisms along which a cause travels: each kind of edge with a pair that it joins and one that it must not."""

from __future__ import annotations

from pathlib import Path

from rca.correlate.edges import host
from rca.model import Run
from rca.taxonomy import Kind
from tests.builders import NOON_NS, SECOND_NS, event, run_of

LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.42.8.11]:19174. This is typically caused by a remote worker crashing."
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n{}\n'
SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_12:00:{second}
  host      : node-1
  rank      : 0 (local_rank: 0)
  exitcode  : {code} (pid: 100)
  error_file: <N/A>
"""


def steps(rank: int, first: int = 1) -> str:
    head = f"2026-11-20 12:00:{first - 1:02d},000 INFO train: rank={rank} world_size=2 hostname=node-1 pid={100 + rank}\n"
    return head + "".join(f"2026-11-20 12:00:{i:02d},000 INFO train: step={i} loss=2.0\n" for i in range(first, first + 3))


def error(second: int, message: str) -> str:
    return f"2026-11-20 12:00:{second:02d},000 ERROR train: failed\n" + TRACE.format(message)


def joined(run: Run, kind: str) -> set[tuple[str, str]]:
    """Kinds of cause and effect of the edges of one kind."""
    return {(str(run.events[e.cause].kind), str(run.events[e.effect].kind)) for e in run.edges if e.kind == kind}


def test_exception_of_one_rank_loses_the_peer_of_the_other(tmp_path: Path) -> None:
    """Rank 0 raises and rank 1 loses its connection: the exception is the cause, never the other way round."""
    run = run_of(tmp_path, {"rank0.log": steps(0) + error(5, "ValueError: boom"), "rank1.log": steps(1) + error(6, LOST)})
    assert ("process.exception", "peer.lost") in joined(run, "collective")
    assert ("peer.lost", "process.exception") not in joined(run, "collective")


def test_exception_long_after_does_not_lose_a_peer(tmp_path: Path) -> None:
    """What comes half a minute after the loss did not bring it about."""
    run = run_of(tmp_path, {"rank0.log": steps(0) + error(40, "ValueError: boom"), "rank1.log": steps(1) + error(6, LOST)})
    assert ("process.exception", "peer.lost") not in joined(run, "collective")


def test_broken_write_comes_back_where_the_file_is_read(tmp_path: Path) -> None:
    """An open save and the corrupt checkpoint of the next attempt are one lineage."""
    saving = "2026-11-20 12:00:05,000 INFO train: saving checkpoint at iteration      5 to /mnt/ckpt/exp1 in torch_dist format\n"
    broken = error(31, "RuntimeError: Corrupted file: /mnt/ckpt/exp1/model_rank_00000.distcp: unexpected end of file")
    run = run_of(tmp_path, {"tree/attempt_0/0/stderr.log": steps(0) + saving, "tree/attempt_1/0/stderr.log": steps(0, 25) + broken})
    assert ("checkpoint.save_open", "checkpoint.invalid") in joined(run, "checkpoint")


def test_failure_while_coming_up_follows_the_end_of_the_attempt_before(tmp_path: Path) -> None:
    """What ended the first attempt leads to the failure at the start of the second one."""
    start = "2026-11-20 12:00:30,000 INFO train: rank=0 world_size=2 hostname=node-1 pid=200\n"
    run = run_of(tmp_path, {"tree/attempt_0/0/stderr.log": steps(0) + error(5, "ValueError: boom"), "tree/attempt_1/0/stderr.log": start + error(31, "KeyError: 'model'")})
    pairs = [(run.events[e.cause], run.events[e.effect]) for e in run.edges if e.kind == "restart"]
    assert [(a.text, b.text, a.attempt, b.attempt) for a, b in pairs if b.kind == Kind.EXCEPTION] == [("ValueError: boom", "KeyError: 'model'", 0, 1)]


def test_failure_leads_to_the_exit_and_the_report_of_the_launcher(tmp_path: Path) -> None:
    """The launcher sees the exit of the rank that failed, and reports it."""
    run = run_of(tmp_path, {"rank0.log": steps(0) + error(5, "ValueError: boom"), "console.log": SUMMARY.format(second="06", code=1)})
    assert {("process.exception", "process.exited"), ("process.exception", "agent.report")} <= joined(run, "supervision")


def test_order_to_stop_leads_to_the_exits_after_it_only(tmp_path: Path) -> None:
    """An exit before the launcher was told to stop is not its doing."""
    order = "W1120 12:00:10.000000 23970 torch/distributed/elastic/agent/server/api.py:720] Received 15 death signal, shutting down workers\n"
    after = run_of(tmp_path / "a", {"rank0.log": steps(0), "console.log": order + SUMMARY.format(second="11", code=-15)})
    before = run_of(tmp_path / "b", {"rank0.log": steps(0), "console.log": order + SUMMARY.format(second="04", code=1)})
    assert ("agent.signalled", "process.exited") in joined(after, "supervision")
    assert ("agent.signalled", "process.exited") not in joined(before, "supervision")


def test_earlier_error_of_a_process_leads_to_the_next(tmp_path: Path) -> None:
    """In one process, program order joins two happenings of different kinds."""
    run = run_of(tmp_path, {"rank0.log": steps(0) + error(5, "OSError: [Errno 28] No space left on device: '/ckpt/a.pt'") + error(6, "ValueError: boom")})
    assert ("storage.no_space", "process.exception") in joined(run, "program")


def test_a_wire_breaks_nothing_between_a_process_and_its_device() -> None:
    """A link that was down explains a lost peer of its host, not memory that a device refuses to share nor a checkpoint that does not fit."""
    down = event(Kind.LINK_DOWN, "eth0: Link down", rank=None, source="dmesg.txt", event_id=0, time_ns=NOON_NS - 5 * SECOND_NS)
    lost, ipc, layout = event(Kind.PEER_LOST, event_id=1), event(Kind.DEVICE_IPC, event_id=2), event(Kind.CHECKPOINT_MISMATCH, event_id=3)
    assert [host._acts(down, effect, None) for effect in (lost, ipc, layout)] == [True, False, False]
