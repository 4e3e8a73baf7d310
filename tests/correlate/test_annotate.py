"""What only the whole run tells about an event."""

from __future__ import annotations

from pathlib import Path

from rca.taxonomy import Kind
from tests.builders import run_of

WORK = "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=60000)"
WAITED = f"[E ProcessGroupNCCL.cpp:475] [Rank {{0}}] Watchdog caught collective operation timeout: {WORK} ran for 60291 milliseconds before timing out.\n"
ABORT = "terminate called after throwing an instance of 'std::runtime_error'\n"
EXIT = "E0513 14:32:22.017000 3044 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 1 (pid: 3118) of binary: python\n"


def aborts(folder: Path, text: str) -> list[bool]:
    return [bool(e.attrs.get("after_wait")) for e in run_of(folder, {"console.log": text}).events if e.kind == Kind.NATIVE_ABORT]


def test_abort_beside_a_watchdog_is_how_a_waiting_rank_ends(tmp_path: Path) -> None:
    """The C++ abort has no rank of its own; the report of the wait stands above it, or inside it."""
    assert aborts(tmp_path / "a", WAITED.format(0) + ABORT) == [True]
    assert aborts(tmp_path / "b", "terminate called after throwing an instance of 'c10::DistBackendError'\n") == [True]
    assert aborts(tmp_path / "c", "step 9 done\n" + ABORT) == [False]


def test_exit_by_abort_is_the_watchdogs_where_watchdogs_spoke(tmp_path: Path) -> None:
    """Of the rank that the launcher names nothing else is known, and watchdogs end all ranks alike."""
    assert aborts(tmp_path / "a", WAITED.format(0) + WAITED.format(2) + EXIT) == [True]
    assert aborts(tmp_path / "b", EXIT) == [False]


def test_what_names_its_own_rank(tmp_path: Path) -> None:
    """The message inside an abort says whose it is, whatever line stood above."""
    told = f"[rank0]:[E513 14:32:19.630811244 ProcessGroupNCCL.cpp:632] [Rank 0] x\n  what():  [PG 0 Rank 1] Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective operation timeout: {WORK} ran for 60291 milliseconds before timing out.\n"
    assert [e.rank for e in run_of(tmp_path, {"console.log": told}).events if e.kind == Kind.COLLECTIVE_TIMEOUT] == [1]


def test_no_answer_from_a_host_that_is_down_is_no_adapter_fault(tmp_path: Path) -> None:
    """Who sent to the host that panicked sees its retries exceeded: the panic is upstream of that."""
    run = run_of(tmp_path, {
        "console.n7": "Nov 11 03:20:21 n7 kernel: [1209934.201119] Kernel panic - not syncing: Fatal local machine check\n",
        "job.err": "n1:61240:62011 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.253.4.19<44801> with status=12 opcode=0 len=0 vendor err 129 (Send)\n",
    })  # fmt: skip
    down, fault = (next(e.event_id for e in run.events if e.kind == kind) for kind in (Kind.HOST_DOWN, Kind.NIC_FAULT))
    assert (down, fault) in {(edge[0], edge[1]) for edge in run.edges}


def test_what_answered_again_after_the_job_had_given_up_did_not_recover_for_it(tmp_path: Path) -> None:
    """The server came back when the ranks had long timed out."""
    kern = "2026-11-20T12:{}:00+00:00 n1 kernel: nfs: server filer7 {}\n"
    late = {"kern.log": kern.format("00", "not responding, still trying") + kern.format("50", "OK")}
    soon = {"kern.log": kern.format("00", "not responding, still trying") + kern.format("01", "OK")}
    train = {"train.log": f"[rank0]:[E1120 12:30:00.000000001 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: {WORK} ran for 60291 milliseconds before timing out.\n"}
    for name, kernel, recovered in (("a", late, False), ("b", soon, True)):
        run = run_of(tmp_path / name, kernel | train)
        assert [bool(e.attrs["recovered"]) for e in run.events if e.kind == Kind.STORAGE_HANG] == [recovered]


def unreachable(speaker: str, peer: str, n: int) -> str:
    return f"2026-11-20 12:0{n}:00,000 {speaker}:811:911 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: connect to {peer}<45544> returned No route to host\n"


def test_the_peer_that_cannot_be_reached_is_the_place(tmp_path: Path) -> None:
    """Who says that there is no route to one peer speaks of the peer; who says it of several is cut off itself."""
    who = {f"gn-{n}.log": f"2026-11-20 12:00:0{n},000 INFO rank {n} of 4 host=gn-{n} ip=10.0.0.{n} pid=90{n}\n" for n in range(4)}
    for name, told, want in (("one", [("gn-0", "10.0.0.2"), ("gn-1", "10.0.0.2")], {"gn-2"}), ("all", [("gn-0", "10.0.0.1"), ("gn-0", "10.0.0.2"), ("gn-0", "10.0.0.3")], {"gn-0"})):
        files = dict(who)
        for n, (speaker, peer) in enumerate(told):
            files[f"{speaker}.log"] += unreachable(speaker, peer, n + 1)
        assert {e.host for e in run_of(tmp_path / name, files).events if e.kind == "net.unreachable"} == want
