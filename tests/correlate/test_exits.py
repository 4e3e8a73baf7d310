"""What an exit code means, and whose a traceback on a shared console is."""

from __future__ import annotations

import pytest

from rca.correlate.exits import claim, interpret, signal_of
from rca.model import Event
from rca.taxonomy import Kind
from tests.builders import event


def exited(code: int, rank: int = 0, pid: int = 100, **changes) -> Event:
    """The launcher saw a child end with this code."""
    attrs = {"exitcode": code} | changes.pop("attrs", {})
    return event(Kind.EXITED, f"rank {rank} ended with exit code {code}", rank=rank, pid=pid, source="console.log", attrs=attrs, **changes)


def kinds(events: list[Event]) -> list[str]:
    return [str(e.kind) for e in events]


@pytest.mark.parametrize(("code", "signal"), [(-9, 9), (137, 9), (143, 15), (139, 11), (1, None), (0, None), (128, None), (None, None)])
def test_signal_of_an_exit_code(code: int | None, signal: int | None) -> None:
    """Negative codes are signals, and so are a shell's 128 + n."""
    assert signal_of(code) == signal


def test_sigterm_is_the_launcher() -> None:
    """-15 is how the launcher ends siblings: no death of its own."""
    (exit_,) = interpret([exited(-15)])
    assert exit_.attrs["by_agent"] and exit_.severity == "info"


def test_sigkill_nobody_sent_is_a_killed_process() -> None:
    """-9 that no line of the launcher announces adds `process.killed` at the same address."""
    exit_, killed = interpret([exited(-9)])
    assert kinds([exit_, killed]) == ["process.exited", "process.killed"] and not exit_.attrs["by_agent"]
    assert (killed.source, killed.rank, killed.pid, killed.severity) == ("console.log", 0, 100, "fatal")


def test_sigkill_that_the_launcher_sent_is_not() -> None:
    """-9 after the launcher said that it stops this pid, or was itself told to stop, is its doing."""
    stop = event(Kind.AGENT_STOPS_SIBLING, "Unable to shutdown process 100 via 15", rank=None, pid=100, source="console.log")
    told = event(Kind.AGENT_SIGNALLED, "Received 15 death signal", rank=None, source="console.log")
    assert Kind.KILLED not in kinds(interpret([stop, exited(-9)]))
    assert Kind.KILLED not in kinds(interpret([told, exited(-9)]))


def test_stopped_pid_of_another_host_does_not_count() -> None:
    """Pids repeat on other hosts: node-2's launcher stopping its pid 100 says nothing about node-1's."""
    stop = event(Kind.AGENT_STOPS_SIBLING, "Sending process 100 closing signal SIGTERM", rank=None, pid=100, host="node-2", source="console.log")
    assert Kind.KILLED in kinds(interpret([stop, exited(-9)]))


def test_segfault_exit_joins_what_faulthandler_said() -> None:
    """-11 of a rank that reported its crash is one more address of that event, not a second death."""
    fatal = event(Kind.FATAL_SIGNAL, "Fatal Python error: Segmentation fault", severity="fatal")
    found = interpret([fatal, exited(-11)])
    assert kinds(found) == ["process.fatal_signal", "process.exited"]
    assert [r.source for r in found[0].records] == ["rank0.log", "console.log"]
    assert (found[0].attrs["signal"], found[0].pid) == (11, 100)


def test_segfault_exit_alone_is_a_death() -> None:
    """-11 of a rank that said nothing adds the crash that the code tells."""
    found = interpret([exited(-11)])
    assert kinds(found) == ["process.exited", "process.fatal_signal"] and found[1].attrs["fatal"] == "SIGSEGV"


def test_abort_exit_says_that_only_the_code_tells() -> None:
    """-6 adds an abort, marked as known from the exit code only."""
    found = interpret([exited(-6)])
    assert kinds(found) == ["process.exited", "process.native_abort"] and found[1].attrs["only_exit"]


def test_plain_failure_adds_nothing() -> None:
    """Exit code 1 says only that the program failed by itself."""
    (exit_,) = interpret([exited(1)])
    assert exit_.attrs["signal"] is None and not exit_.attrs["by_agent"] and exit_.severity == "error"


def test_lone_failed_child_claims_the_traceback_of_nobody() -> None:
    """One child ended by itself with an exception, so the traceback without a rank is its own."""
    orphan = event(rank=None, host=None, source="console.log", attrs={"traceback": True})
    assert [(e.rank, e.host) for e in claim([orphan, exited(1, rank=3)]) if e.attrs.get("traceback")] == [(3, "node-1")]


def test_two_failed_children_claim_nothing() -> None:
    """Two children failed on a shared console: whose the traceback is, nobody can say."""
    orphan = event(rank=None, source="console.log", attrs={"traceback": True})
    assert claim([orphan, exited(1, rank=0), exited(1, rank=1, pid=101)])[0].rank is None


def test_child_with_a_traceback_of_its_own_claims_no_other() -> None:
    """A rank whose traceback is known does not take another one."""
    orphan = event(rank=None, source="console.log", attrs={"traceback": True})
    own = event(rank=3, source="rank3.log", attrs={"traceback": True})
    assert claim([orphan, own, exited(1, rank=3)])[0].rank is None
