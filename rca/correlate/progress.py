"""How far every process came: last step, last sign of life, open stages, and how it ended."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from rca.correlate.clock import YEAR_STATED_NS, Clock
from rca.correlate.identity import Identity, Writer
from rca.model import Event, Record
from rca.taxonomy import QUIET_KINDS, Kind

OF_TOTAL = re.compile(r"\b(?:step|iter(?:ation)?|it)\D{0,12}?(\d+)\s*/\s*(\d+)\b", re.I)
SURVIVED_LINES = 3  # lines a process writes after an error before we say that it lived on
SURVIVED_NS = 5 * 10**9  # or it wrote elsewhere so much later
LEADERS = ("controller", "meta_server")  # of which a run has one
#: How a process ends. Anything else that it prints is on the way there.
DEADLY = frozenset({Kind.FATAL_SIGNAL, Kind.KILLED, Kind.NATIVE_ABORT, Kind.KILLED_BY_KERNEL})
WAITED = frozenset({Kind.COLLECTIVE_TIMEOUT, Kind.STORE_TIMEOUT})
NOT_TERMINAL = QUIET_KINDS | {Kind.EXITED, Kind.AGENT_REPORT, Kind.AGENT_STOPS_SIBLING, Kind.AGENT_SIGNALLED, Kind.LEAK_WARNING, Kind.LOGGED_ERROR}


@dataclass
class Proc:
    """One process of one attempt."""

    attempt: int
    rank: int | None
    actor: str | None
    host: str | None = None
    role: str | None = None
    local_rank: int | None = None
    pids: set[int] = field(default_factory=set)
    writers: list[Writer] = field(default_factory=list)
    first_ns: int | None = None
    last_ns: int | None = None
    last_step: int | None = None
    last_stage: str | None = None
    last: Record | None = None  # its last line
    lines: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)  # (step, common time)
    events: list[Event] = field(default_factory=list)
    ended_by: Event | None = None  # the event that ended it, wherever that is known from
    exit: Event | None = None  # what the launcher saw
    finished: bool = False
    given_up_ns: int | None = None  # when the run began to clean up after itself
    lent: bool = False  # beside the launcher's own child of that rank

    @property
    def key(self) -> tuple[int, Any]:
        return (self.attempt, self.rank if self.rank is not None and not self.lent else self.actor)

    @property
    def waits(self) -> bool:
        """Whether it ended because it waited for others in vain."""
        return self.ended_by is not None and self.ended_by.kind in WAITED

    @property
    def alive(self) -> bool:
        """Whether nothing of its own ended it: it was still there when the others gave up."""
        return self.ended_by is None and not self.finished


def key_of(event: Event) -> tuple[int, Any] | None:
    """The process an event belongs to, or None for a host's or a launcher's event."""
    who = event.attrs.get("of") or (event.rank if event.rank is not None else event.actor)
    return None if who is None else (event.attempt or 0, who)


def processes(identity: Identity, events: list[Event], clock: Clock, given_up_ns: int | None = None) -> dict[tuple, Proc]:
    """Assemble every process from its writers and its events. `given_up_ns` is when the run began to clean up, and nothing was done any more."""
    procs: dict[tuple, Proc] = {}
    has_tree = {w.rank for w in identity.writers if w.tree}
    for writer in identity.writers:
        if writer.rank is None and (writer.role is None or (writer.forwarded and writer.worker is None and writer.role not in LEADERS)):
            continue  # the class of an actor is the name of many processes
        # A log that goes on over restarts says nothing about one attempt where torchrun's own folder of it exists.
        attempt = writer.attempt if writer.attempt is not None else (identity.attempts - 1)
        if writer.tree is None and writer.rank in has_tree and identity.attempts > 1:
            continue
        actor = writer.actor or (writer.worker.label if writer.worker is not None and writer.worker.pid is not None else None)  # known by its introduction alone
        who = actor if writer.lent else writer.rank if writer.rank is not None else actor
        if who is None:
            continue  # a worker of a list that nobody named
        proc = procs.setdefault((attempt, who), Proc(attempt, writer.rank, actor, lent=writer.lent))
        _take(proc, writer, clock)
    # A folded event belongs to every rank that it was folded from.
    placed = [((event.attempt or 0, rank), event) for event in events for rank in event.ranks]
    placed += [(key, event) for event in events if not event.ranks and (key := key_of(event)) is not None]
    for key, event in placed:
        proc = procs.get(key) or procs.get((identity.attempts - 1, key[1]))
        if proc is None:
            if event.kind in QUIET_KINDS or event.rank is None:
                continue
            rank = key[1] if isinstance(key[1], int) else event.rank
            proc = procs.setdefault(key, Proc(key[0], rank, event.actor, host=event.host if rank == event.rank else None))
        proc.events.append(event)
    for proc in procs.values():
        proc.given_up_ns = given_up_ns
        _ending(proc)
    return dict(sorted(procs.items(), key=lambda kv: (kv[0][0], str(type(kv[0][1])), f"{kv[0][1]:09d}" if isinstance(kv[0][1], int) else str(kv[0][1]))))


def _take(proc: Proc, writer: Writer, clock: Clock) -> None:
    info = writer.info
    proc.writers.append(writer)
    proc.host = proc.host or writer.host
    proc.role = proc.role or writer.role
    proc.actor = proc.actor or writer.actor
    proc.local_rank = proc.local_rank if proc.local_rank is not None else writer.local_rank
    if writer.pid:
        proc.pids.add(writer.pid)
    zoned = bool(writer.reading.facts.get("zoned"))
    shift = clock.shift(writer.host, zoned)
    marks = [(m[1], m[0]) for m in (info["first"], *info["steps"], info["last"]) if m]
    timed = [(step, ns - shift if ns is not None and ns >= YEAR_STATED_NS else clock.resolve(ns, writer.host, zoned)) for step, ns in marks]
    times = [ns for _, ns in timed if ns is not None] + [ns for ns in (proc.first_ns, proc.last_ns) if ns is not None]
    proc.first_ns, proc.last_ns = min(times, default=None), max(times, default=None)
    proc.last_step = max((step for step in (proc.last_step, *(step for step, _ in marks)) if step is not None), default=None)
    proc.steps += [(step, ns) for step, ns in timed if step is not None and ns is not None]
    last = info["last"]
    if last and (proc.last is None or info["lines"] >= proc.lines):
        proc.lines = max(proc.lines, info["lines"])
        # Prefer the rank's own log over a console copy as the place where its last line stands.
        if proc.last is None or "console" not in writer.source:
            proc.last = Record(writer.source, last[3], last[4], last[5])
        proc.last_stage = info["stage"] or proc.last_stage
    proc.steps = sorted(set(proc.steps))


def lived_on(event: Event, proc: Proc) -> bool:
    """Whether the process wrote on after the event: then it did not die of it. A loss that is no number to the end is not got over by steps that follow."""
    seq = event.attrs.get("last_seq") or event.attrs.get("seq")
    writer = next((w for w in proc.writers if w.source == event.source and w.stream == event.attrs.get("stream")), None)
    if event.kind == Kind.NON_FINITE and writer is not None and spoiled(writer):
        return False
    if proc.given_up_ns is not None and event.time_ns is not None and proc.given_up_ns - event.time_ns < SURVIVED_NS:
        return False
    if writer is not None and seq is not None and writer.info["lines"] - seq > SURVIVED_LINES:
        return True
    timed = event.time_ns is not None and proc.last_ns is not None and not event.attrs.get("inherited")
    return bool(timed and (proc.last_ns or 0) - (event.time_ns or 0) - event.time_error_ns > SURVIVED_NS)


def spoiled(writer: Writer) -> bool:
    """Whether what a process last stated of its training is no number: its last two losses, or the gradient norms of its last three lines (some trainers print an average in place of such a loss)."""
    points = [p[6] for p in writer.info.get("series", ())]
    for name, least in (("loss", 2), ("gradient", 3)):
        last = [p[name] for p in points if name in p][-least:]
        if len(last) == least and not any(map(math.isfinite, last)):
            return True
    return False


def _all_steps_done(proc: Proc) -> bool:
    """Whether the last step that a log states is the last of those it was to make (`step 2000/2000`)."""
    totals = [(int(m[1]), int(m[2])) for w in proc.writers for mark in w.info["steps"][-1:] if (m := OF_TOTAL.search(mark[5]))]
    return bool(totals) and all(step == total > 1 for step, total in totals)


def _ending(proc: Proc) -> None:
    """Find what ended the process: a deadly event, else its last error that it did not survive."""
    finish = next((e for e in reversed(proc.events) if e.kind == Kind.FINISHED), None)
    proc.exit = next((e for e in proc.events if e.kind == Kind.EXITED), None)
    deadly = [e for e in proc.events if e.kind in DEADLY]
    errors = [e for e in proc.events if e.kind not in NOT_TERMINAL and e.severity in ("error", "fatal") and not lived_on(e, proc)]
    own_end = proc.exit is not None and proc.exit.attrs.get("exitcode") and not proc.exit.attrs.get("by_agent")
    if own_end and not errors:
        # It did end by itself and badly: what it wrote after its traceback was only its own clean-up.
        errors = [e for e in proc.events if e.attrs.get("traceback") is True and e.severity in ("error", "fatal")][-1:]
    if deadly and all(e.kind == Kind.NATIVE_ABORT for e in deadly):
        # The watchdog takes its process down: the abort is how a rank ends that had waited, not why.
        deadly = [e for e in proc.events if e.kind in WAITED or e.kind == Kind.PEER_LOST][-1:] or deadly
    ending = deadly or [e for e in errors if e.attrs.get("traceback")] or errors
    proc.ended_by = ending[-1] if ending else None
    # A later failure undoes an earlier finish: the same rank may have run again.
    # One that only left Python in order had failed all the same: an exception that nobody catches leaves it so too.
    undone = proc.ended_by is not None and finish is not None and (deadly or finish.attrs.get("left") or (proc.ended_by.time_ns or 0) > (finish.time_ns or 0))
    proc.finished = (finish is not None and not undone) or (proc.ended_by is None and proc.exit is None and _all_steps_done(proc))
    if proc.finished and proc.exit is None:
        proc.ended_by = None
