"""Events that no line states: each detector has a run in which it speaks and a look-alike in which it stays silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from rca.model import Event, Run
from rca.taxonomy import Kind
from tests.builders import run_of

GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete"
STAMP = "2026-11-20 12:00:{:02d},000"


def steps(rank: int, world: int = 4, last: int = 5) -> str:
    head = f"{STAMP.format(0)} INFO train: rank={rank} world_size={world} hostname=node-1 pid={100 + rank}\n"
    return head + "".join(f"{STAMP.format(i)} INFO train: step={i} loss=2.0\n" for i in range(1, last + 1))


def waited() -> str:
    return f"{STAMP.format(20)} ERROR train: {GLOO}\n"


def of(run: Run, kind: str) -> list[Event]:
    return [e for e in run.events if e.kind == kind]


def test_rank_that_nothing_ended_is_silent(tmp_path: Path) -> None:
    """Three ranks time out and the fourth just stops: it was waited for, a step behind the rest."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r) + waited() for r in (0, 1, 3)} | {"rank2.log": steps(2, last=4)})
    (silent,) = of(run, Kind.RANK_SILENT)
    assert (silent.rank, silent.attrs["behind"], silent.attrs["alone"], silent.attrs["waiting"]) == (2, 1, True, 3)
    assert silent.source is None and silent.records[0].source.endswith("rank2.log")
    assert not of(run, Kind.ALL_WAITED)


def test_everyone_waited_means_that_nobody_is_missing(tmp_path: Path) -> None:
    """All ranks of the world time out at one step: the fault lies between them."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r) + waited() for r in range(4)})
    (event,) = of(run, Kind.ALL_WAITED)
    assert event.ranks == (0, 1, 2, 3) and event.attrs["same_step"]
    assert not of(run, Kind.RANK_SILENT)


def test_everyone_that_was_read_is_not_everyone(tmp_path: Path) -> None:
    """With a rank's log missing, nobody can say that all waited; the missing log is the finding."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r) + waited() for r in (0, 1, 3)})
    assert not of(run, Kind.ALL_WAITED)
    assert [e.rank for e in of(run, Kind.RANK_LOG_MISSING)] == [2]
    assert "rank 2 of 4 left no log" in [m.what for m in run.missing]


def test_shared_console_claims_no_missing_log(tmp_path: Path) -> None:
    """On one console for all ranks, silence of one is no missing file."""
    lines = "".join(f"{STAMP.format(i)} [rank{r}] INFO train: rank={r} world_size=4 step={i}\n" for i in range(1, 4) for r in (0, 1, 3))
    assert not of(run_of(tmp_path, {"console.log": lines}), Kind.RANK_LOG_MISSING)


def test_many_missing_logs_are_one_finding(tmp_path: Path) -> None:
    """Thirty lost logs are not thirty findings."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r, world=32) for r in (0, 1)})
    (event,) = of(run, Kind.RANK_LOG_MISSING)
    assert event.ranks == tuple(range(2, 32))


DUMP = 'Timeout (0:00:09)!\nThread 0x00007fe201fbeb80 (most recent call first):\n  File "{}", line {} in {}\n  File "train.py", line 90 in <module>\n\n'
IN_COLLECTIVE = DUMP.format("/opt/lib/torch/distributed/distributed_c10d.py", 4159, "barrier")
IN_LOADER = DUMP.format("/opt/lib/torch/utils/data/dataloader.py", 1284, "_try_get_data")


def test_stack_that_differs_from_the_waiting_majority(tmp_path: Path) -> None:
    """Three ranks stand in a collective and one in its data loader: that one is named with its frame."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r) + (IN_LOADER if r == 2 else IN_COLLECTIVE) for r in range(4)})
    (event,) = of(run, Kind.RANK_OUTLIER)
    assert (event.rank, event.attrs["place"]) == (2, "loader") and "dataloader.py:1284" in event.text


@pytest.mark.parametrize("place", [IN_COLLECTIVE, IN_LOADER])
def test_equal_stacks_have_no_outlier(tmp_path: Path, place: str) -> None:
    """Where all ranks stand in one place, none stands out."""
    assert not of(run_of(tmp_path, {f"rank{r}.log": steps(r) + place for r in range(4)}), Kind.RANK_OUTLIER)


SAVING = f"{STAMP.format(6)} INFO train: saving checkpoint at iteration      5 to /mnt/ckpt/exp1 in torch_dist format\n"
SAVED = f"{STAMP.format(7)} INFO train: stage=save checkpoint saved step=5 size=2605017 bytes in 0.01s\n"


def test_save_without_an_end_is_open(tmp_path: Path) -> None:
    """A checkpoint that was begun and whose end no line states is open, at the address of its beginning."""
    (event,) = of(run_of(tmp_path, {"rank0.log": steps(0, 1) + SAVING}), Kind.SAVE_OPEN)
    assert event.rank == 0 and event.records[0].line == 7


def test_ended_save_is_not_open(tmp_path: Path) -> None:
    """A line that says it was saved, or a later step, closes it."""
    assert not of(run_of(tmp_path / "a", {"rank0.log": steps(0, 1) + SAVING + SAVED}), Kind.SAVE_OPEN)
    assert not of(run_of(tmp_path / "b", {"rank0.log": steps(0, 1) + SAVING + f"{STAMP.format(9)} INFO train: step=9 loss=2.0\n"}), Kind.SAVE_OPEN)


def monitor(*samples: str) -> str:
    return "".join(f"{STAMP.format(i)} node-1 nodemon: {text}\n" for i, text in enumerate(samples))


def test_carrier_that_came_back_is_a_recovered_link(tmp_path: Path) -> None:
    """Down and up again within the samples is a flap."""
    run = run_of(tmp_path, {"rank0.log": steps(0, 1), "nodemon.log": monitor("eth0 carrier=1", "eth0 carrier=0", "eth0 carrier=1")})
    (event,) = of(run, Kind.LINK_DOWN)
    assert (event.nic, event.attrs["recovered"]) == ("eth0", True)


def test_carrier_that_never_was_up_is_an_unused_port(tmp_path: Path) -> None:
    """A standing zero is no event."""
    run = run_of(tmp_path, {"rank0.log": steps(0, 1), "nodemon.log": monitor("eth1 carrier=0", "eth1 carrier=0", "eth1 carrier=0")})
    assert not of(run, Kind.LINK_DOWN)


def test_retransmits_count_by_their_rate(tmp_path: Path) -> None:
    """Hundreds of segments a second for seconds are loss; a large number that stands still is not."""
    lossy, calm = [12, 112, 300, 520, 800, 990], [9000, 9000, 9001, 9001, 9001, 9002]
    run = run_of(tmp_path / "a", {"rank0.log": steps(0, 1), "nodemon.log": monitor(*(f"eth0 tcp_retrans={n}" for n in lossy))})
    (event,) = of(run, Kind.PACKET_LOSS)
    assert event.attrs["grown"] == 978
    run = run_of(tmp_path / "b", {"rank0.log": steps(0, 1), "nodemon.log": monitor(*(f"eth0 tcp_retrans={n}" for n in calm))})
    assert not of(run, Kind.PACKET_LOSS)


def test_throttled_half_of_the_time(tmp_path: Path) -> None:
    """A quota that takes most of each second is a finding; one that takes a hundredth is not."""
    def samples(per_s: int) -> str:
        return monitor(*(f"pids=100 nr_periods=46 nr_throttled=44 throttled_time={i * per_s}" for i in range(6)))

    (event,) = of(run_of(tmp_path / "a", {"rank0.log": steps(0, 1), "exporter.log": samples(900_000_000)}), Kind.CPU_THROTTLED)
    assert event.pid == 100 and event.attrs["grown_s"] == pytest.approx(4.5)
    assert not of(run_of(tmp_path / "b", {"rank0.log": steps(0, 1), "exporter.log": samples(10_000_000)}), Kind.CPU_THROTTLED)


def test_state_d_twice_is_stuck_and_once_is_not(tmp_path: Path) -> None:
    """One sample in state D is an ordinary disk access; two of one pid are a process stuck in the kernel."""
    state = "pid0=100:D:percpu_rwsem_wait"
    (event,) = of(run_of(tmp_path / "a", {"rank0.log": steps(0, 1), "nodemon.log": monitor(state, state)}), Kind.UNINTERRUPTIBLE)
    assert (event.rank, event.pid, event.attrs["wchan"]) == (0, 100, "percpu_rwsem_wait")
    assert not of(run_of(tmp_path / "b", {"rank0.log": steps(0, 1), "nodemon.log": monitor(state, "pid0=100:S:futex_do_wait")}), Kind.UNINTERRUPTIBLE)


def watchdog(rank: int, seq: int, op: str = "ALLREDUCE", group: str = "0") -> str:
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=8, NumelOut=8, Timeout(ms)=600000)"
    name = f"PG ID {group} PG GUID {group}(default_pg) Rank {rank}"
    return (
        f"[rank{rank}]:[E1120 12:00:20.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600024 milliseconds before timing out.\n"
        f"[rank{rank}]:[E1120 12:00:20.000000001 ProcessGroupNCCL.cpp:2271] [{name}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: {seq - 1}\n"
    )


def test_rank_in_an_earlier_collective_is_behind(tmp_path: Path) -> None:
    """Three ranks wait in collective 20 and one in 19 of the same group: it never came."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r) + watchdog(r, 19 if r == 3 else 20) for r in range(4)})
    (event,) = [e for e in of(run, Kind.RANK_SILENT) if e.attrs.get("order")]
    assert (event.rank, event.attrs["behind"]) == (3, 1)


def test_other_operation_at_one_number_is_a_mismatch(tmp_path: Path) -> None:
    """Where three ranks issued an all-reduce, the one that issued an all-gather is the mismatch."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r) + watchdog(r, 20, "ALLGATHER" if r == 1 else "ALLREDUCE") for r in range(4)})
    (event,) = of(run, Kind.COLLECTIVE_MISMATCH)
    assert event.rank == 1 and "ALLGATHER" in event.text


def test_rank_that_was_only_told_to_dump_and_enqueued_less_is_behind(tmp_path: Path) -> None:
    """It had not even issued what the others wait in; counters that were never set say nothing."""
    told = (
        "[rank2]:[E1120 12:00:05.100000000 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a collective timeout"
        " from rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: {}, last completed NCCL work: {}.\n"
    )
    ranks = {f"rank{r}.log": watchdog(r, 7) for r in range(2)}
    behind = [e for e in run_of(tmp_path / "a", ranks | {"rank2.log": told.format(6, 6)}).events if e.kind == Kind.RANK_SILENT and e.attrs.get("order")]
    assert [(e.rank, e.attrs["behind"]) for e in behind] == [(2, 1)]
    garbage = run_of(tmp_path / "b", ranks | {"rank2.log": told.format(1, 3452013982)})
    assert not [e for e in garbage.events if e.attrs.get("order")]


def test_numbers_of_different_groups_are_not_compared(tmp_path: Path) -> None:
    """Each group counts for itself: another number in another group says nothing."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r) + watchdog(r, 19 if r == 3 else 20, group="7" if r == 3 else "0") for r in range(4)})
    assert not [e for e in of(run, Kind.RANK_SILENT) if e.attrs.get("order")] and not of(run, Kind.COLLECTIVE_MISMATCH)


def test_logs_that_end_together_in_the_middle_are_cut(tmp_path: Path) -> None:
    """All ranks stop within seconds and nobody says why."""
    run = run_of(tmp_path, {f"rank{r}.log": steps(r, 2) for r in range(2)})
    assert len(of(run, Kind.CUT_SHORT)) == 1 and run.outcome == "cut"


def test_logs_that_end_apart_or_with_an_error_are_not_cut(tmp_path: Path) -> None:
    """A rank that stopped long before, or one error, tells more than the common end."""
    assert not of(run_of(tmp_path / "a", {"rank0.log": steps(0, 2), "rank1.log": steps(1, 2, last=30)}), Kind.CUT_SHORT)
    assert not of(run_of(tmp_path / "b", {"rank0.log": steps(0, 2), "rank1.log": steps(1, 2) + waited()}), Kind.CUT_SHORT)


def test_a_dump_taken_by_hand_tells_where_a_process_is_stuck(tmp_path: Path) -> None:
    """Nobody is seen waiting, but somebody took the dump because the job hung; a stuck loader worker explains its rank."""
    rank = 'Process 11: python t.py\nThread 11 (idle): "MainThread"\n    get (queue.py:180)\n    _try_get_data (torch/utils/data/dataloader.py:1133)\n\n'
    worker = 'Process 12: python t.py\nThread 12 (idle): "MainThread"\n    acquire (logging/__init__.py:923)\n    _worker_loop (torch/utils/data/_utils/worker.py:308)\n'
    run = run_of(tmp_path, {"pyspy.txt": rank + worker})
    places = {e.pid: e for e in of(run, Kind.RANK_OUTLIER)}
    assert {pid: e.attrs["place"] for pid, e in places.items()} == {11: "loader", 12: "mutex"}
    assert (places[12].event_id, places[11].event_id) in {(e.cause, e.effect) for e in run.edges}
