"""What an exit code means: who was killed by the launcher, and who died on its own.

Source: `signal(7)`; torchelastic `multiprocessing/api.py` (it stops siblings with SIGTERM, then SIGKILL after 30 s).
"""

from __future__ import annotations

from rca.model import Event
from rca.taxonomy import Kind

SIGKILL, SIGTERM = 9, 15
NATIVE = {4: "SIGILL", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}
SIGABRT = 6
SHELL_BASE = 128  # a shell reports a signal as 128 + n


def signal_of(exitcode: int | None) -> int | None:
    """The signal behind an exit code, or None.

    >>> signal_of(-9), signal_of(137), signal_of(1)
    (9, 9, None)
    """
    if exitcode is None:
        return None
    if exitcode < 0:
        return -exitcode
    return exitcode - SHELL_BASE if SHELL_BASE < exitcode <= SHELL_BASE + 31 else None


def interpret(events: list[Event]) -> list[Event]:
    """Mark exits that the launcher caused, and add the death that an exit code alone tells.

    A death that the process or the kernel reported in more detail is not added twice: the exit joins it as a further address.
    """
    stopped = {(e.host, e.pid) for e in events if e.kind == Kind.AGENT_STOPS_SIBLING and e.pid}  # containers share pids
    agent_signalled = any(e.kind in (Kind.AGENT_SIGNALLED, Kind.SCHEDULER_STOP) for e in events)
    told = {e.rank: i for i, e in enumerate(events) if e.kind == Kind.FATAL_SIGNAL and e.rank is not None}
    events = list(events)
    out: list[Event] = []
    for event in events:
        # A crash that the process reported itself takes the launcher's report as a further address.
        signal = event.attrs.get("signal") or signal_of(event.attrs.get("exitcode"))
        if event.kind == Kind.EXITED and signal in NATIVE and event.rank in told:
            twin = events[told[event.rank]]
            events[told[event.rank]] = twin.but(also=twin.also + event.records, attrs={**twin.attrs, "signal": signal}, pid=event.pid or twin.pid)
    for event in events:
        if event.kind != Kind.EXITED:
            out.append(event)
            continue
        code = event.attrs.get("exitcode")
        signal = event.attrs.get("signal") or signal_of(code)
        by_agent = signal == SIGTERM or (signal is not None and ((event.host, event.pid) in stopped or (None, event.pid) in stopped)) or (signal == SIGKILL and agent_signalled)
        attrs = {**event.attrs, "signal": signal, "by_agent": by_agent}
        out.append(event.but(attrs=attrs, severity="info" if by_agent else "error"))
        if signal is None or by_agent:
            continue
        if signal == SIGKILL:
            out.append(event.but(kind=Kind.KILLED, severity="fatal", attrs=attrs, text=f"{_who(event)} was killed by SIGKILL, which the launcher did not send"))
        elif signal in NATIVE:
            if event.rank not in told:
                attrs |= {"fatal": NATIVE[signal]}
                out.append(event.but(kind=Kind.FATAL_SIGNAL, severity="fatal", attrs=attrs, text=f"{_who(event)} died of {NATIVE[signal]}"))
        elif signal == SIGABRT:
            attrs |= {"only_exit": True}
            out.append(event.but(kind=Kind.NATIVE_ABORT, severity="fatal", attrs=attrs, text=f"{_who(event)} aborted (SIGABRT)"))
    return out


def claim(events: list[Event]) -> list[Event]:
    """Give a traceback of nobody, on a console that several ranks share, to the only child that ended by itself with an exception."""
    ended = {e.rank for e in events if e.kind == Kind.EXITED and e.attrs.get("exitcode") == 1 and not e.attrs.get("by_agent")}
    told = {e.rank for e in events if e.attrs.get("traceback") is True}
    free = ended - told - {None}
    if len(free) != 1:
        return events
    rank = next(iter(free))
    host = next((e.host for e in events if e.kind == Kind.EXITED and e.rank == rank and e.host), None)
    return [e.but(rank=rank, host=e.host or host) if e.attrs.get("traceback") and e.rank is None and e.actor is None else e for e in events]


def _who(event: Event) -> str:
    name = f"rank {event.rank}" if event.rank is not None else f"local rank {event.local_rank}" if event.local_rank is not None else "a process"
    return f"{name} (pid {event.pid})" if event.pid else name
