"""One event per happening: fill in who and when, merge copies, fold what many ranks repeat.

A traceback stands in the rank's log, in torchrun's folder, on the console, in the summary and in `error.json`; that is one event
with five addresses. A thousand ranks that time out alike are one event with a count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from heapq import merge
from typing import Any

from rapidfuzz import fuzz

from rca.correlate import same_error, whose
from rca.correlate.clock import Clock
from rca.correlate.identity import Identity, role_of
from rca.correlate.roles import INDEX
from rca.model import Event
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

TELLERS = ("controller", "meta_server", "launcher")
COPY_NS = 3_000_000_000  # copies of one event: an error file has whole seconds, a console may lag by a poll
ALIKE = 92  # percent of likeness at which two texts of one kind are one message (numbers are masked before)
FOLD_FROM = 4  # causes are kept one by one up to this many ranks, so that the first of them can be named
BY_PID = (Kind.EXITED, Kind.KILLED_BY_KERNEL, Kind.AGENT_STOPS_SIBLING, Kind.AGENT_SIGNALLED, Kind.AGENT_REPORT)
REPRINTS = 64  # groups of one pid and one text that are compared
WORDINGS = 200  # of one kind; beyond, only equal texts are joined
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)*")
SOURCE_ORDER = re.compile(r"(?:^|/)(?:console|launcher|agent|output|slurm)", re.I)


def settle(events: list[Event], identity: Identity, clock: Clock) -> list[Event]:
    """Give every event its process, host and common time."""
    settled = []
    for event in events:
        writer = identity.writer(event.source, event.attrs.get("stream", ""))
        changes: dict[str, Any] = {}
        remote = event.attrs.get("remote") or event.attrs.get("victim")  # it speaks of another process: the writer's name is not its own
        if writer is not None and not remote:
            tee = bool(writer.reading.facts.get("streams", {}).get("")) and writer.stream == ""
            for name in ("local_rank", "pid", "actor", "attempt"):
                if getattr(event, name) is None and not (tee and writer.tree is None and name == "local_rank"):
                    changes[name] = getattr(writer, name)
            if event.rank is None:
                changes["rank"] = writer.rank
        named_host = identity.name_of(event.host)
        host = named_host if remote or named_host in identity.hosts else (writer.host if writer else named_host)
        if writer is not None and writer.worker is None and not remote and named_host not in identity.hosts and event.rank is not None:
            # A file of a whole role: its members may run on several hosts.
            member = identity.workers.ranked(writer.role, event.rank)
            host = member.host or host if member is not None else host
        named = identity.of_pid(identity.rank_of_pid, host, event.pid)
        if event.rank is None and (named is not None or event.kind in BY_PID):
            changes["rank"] = named  # the line speaks of that pid, whoever wrote it
        if remote and writer is not None and event.attempt is None:
            changes["attempt"] = writer.attempt
        attempt = changes.get("attempt", event.attempt)
        if attempt is None and event.pid is not None:
            attempt = identity.of_pid(identity.attempt_of_pid, host, event.pid)
        rank = changes.get("rank", event.rank)
        if host is None and rank is not None:
            host = identity.ranks_of_hosts.get(rank)
        if host is None and len(identity.hosts) == 1:
            host = identity.hosts[0]
        actor = changes.get("actor", event.actor)
        if writer is not None and event.actor == writer.info["actor"] and not (writer.info["pid"] and writer.stream.rpartition("/")[2].startswith(f"{event.actor} ")):
            actor = writer.actor  # which may have turned out to be a mere logger's name
        time_ns = clock.resolve(event.time_ns, host, not event.time_assumed)
        if writer is not None and writer.lent:
            changes["attrs"] = {**event.attrs, "of": writer.actor}
        # In a controller's file the loggers are its parts: `Trainer` there trains nothing.
        part = writer is not None and writer.role in TELLERS and not INDEX.search(actor or "")
        role = event.role or (writer.role if writer is not None and (part or actor == writer.actor) else role_of(actor))
        changes |= {"host": host, "attempt": attempt, "time_ns": time_ns, "time_error_ns": event.time_error_ns + clock.error(host), "role": role, "actor": actor}
        settled.append(whose.complete(event.but(**changes), identity, None if remote else writer))
    return settled


def masked(text: str) -> str:
    """A text without its numbers: what two messages of one cause have in common."""
    return NUMBERS.sub("#", text)[:240]


def merge_copies(events: list[Event]) -> list[Event]:
    """Join events that are the same happening printed in several places."""
    copies: dict[tuple, _Copies] = {}
    for event in sorted(events, key=_order):
        # An exit is known by its pid; everything else by who printed which text.
        key: tuple = (event.kind, event.pid) if event.kind == Kind.EXITED and event.pid else (event.kind, event.text[:200])
        copies.setdefault(key, _Copies()).add(event)
    return sorted((_join(g) for c in copies.values() for g in c.groups), key=_order)


class _Copies:
    """The events of one text in groups of copies, which come by time, those without one last.

    Thousands of ranks may print it, and one of them thousands of times, so an event is compared only with groups of its rank or host that
    began elsewhere and not long before.
    """

    def __init__(self) -> None:
        self.groups: list[list[Event]] = []
        self._near: dict[tuple, dict[tuple, list[int]]] = {}  # numbers of groups by what their first event says and where it stands
        self._of_pid: dict[int, list[int]] = {}  # numbers of groups that hold an event of this process
        self._recent = 0  # groups before this one are too old for events that have a time

    def add(self, event: Event) -> None:
        """Put the event into the first group whose first event it is a copy of."""
        host = event.host or None
        if event.rank is not None:
            near = [("rank", event.rank), *(("nobody", h) for h in ((host, None) if host else ("*",)))]
        else:
            near = [("host", h) for h in ((host, None) if host else ("*",))]
        spoken = event.kind != Kind.EXITED  # what is no exit has copies in other places only, and soon
        place = (event.source, event.attrs.get("stream"))
        since = self._since(event.time_ns) if spoken and event.time_ns is not None else 0
        numbers = [found for key in near for there, found in self._near.get(key, {}).items() if not spoken or there != place]
        reprints = self._of_pid.get(event.pid, [])[:REPRINTS] if event.pid is not None else []
        for number in (*reprints, *merge(*(found[bisect_left(found, since) :] for found in numbers))):
            if _same(self.groups[number][0], event):
                self.groups[number].append(event)
                return
        for key in (("host", host), ("host", "*"), *((("rank", event.rank),) if event.rank is not None else (("nobody", host), ("nobody", "*")))):
            self._near.setdefault(key, {}).setdefault(place, []).append(len(self.groups))
        if event.pid is not None:
            self._of_pid.setdefault(event.pid, []).append(len(self.groups))
        self.groups.append([event])

    def _since(self, time_ns: int) -> int:
        """The first group that may hold copies of an event of this time."""
        while self._recent < len(self.groups) and (began := self.groups[self._recent][0].time_ns) is not None and began < time_ns - COPY_NS:
            self._recent += 1
        return self._recent


def _order(event: Event) -> tuple:
    return (event.time_ns if event.time_ns is not None else 2**62, event.source or "", event.offset, event.kind, event.text)


def _same(a: Event, b: Event) -> bool:
    """Whether two events of equal text are copies: another place, no contradiction in process, attempt and time."""
    if (a.attrs.get("remote") or b.attrs.get("remote")) and a.pid is not None and b.pid is not None:
        # A caller repeats what a process raised, names its pid, and does so whenever it comes to ask for the result.
        return a.pid == b.pid and (a.host == b.host or not (a.host and b.host)) and (a.attempt == b.attempt or None in (a.attempt, b.attempt))
    if a.attrs.get("remote") and a.actor is None:
        a = a.but(actor=b.actor, rank=b.rank)  # nobody is named whose words these are
    elif b.attrs.get("remote") and b.actor is None:
        b = b.but(actor=a.actor, rank=a.rank)
    if a.source == b.source and a.kind != Kind.EXITED:
        if a.attrs.get("stream") == b.attrs.get("stream"):
            return False
        if a.rank is None and b.rank is None and a.pid is not None and b.pid is not None and a.pid != b.pid and not (a.attrs.get("span") or b.attrs.get("span")):
            return False  # two processes of one console
    if any(x is not None and y is not None and x != y for x, y in ((a.rank, b.rank), (a.attempt, b.attempt))):
        return False
    if a.rank is None or b.rank is None:
        locals_known = a.local_rank is not None and b.local_rank is not None
        if (locals_known and a.local_rank != b.local_rank) or (a.host and b.host and a.host != b.host):
            return False
    if a.attrs.get("span") or b.attrs.get("span"):  # a trace calls a process by other names than its log
        if (a.pid and b.pid and a.pid != b.pid) or not a.host or a.host != b.host:
            return False
    elif a.actor and b.actor and a.actor != b.actor and a.rank is None:
        return False
    return a.time_ns is None or b.time_ns is None or abs(a.time_ns - b.time_ns) <= COPY_NS or a.kind == Kind.EXITED


def _rank_of_source(event: Event) -> tuple:
    """Prefer to cite a rank's own log over torchrun's folder, that over a console, that over an error file."""
    source = event.source or ""
    return (bool(event.attrs.get("remote")), bool(event.attrs.get("document") or event.attrs.get("span")), bool(SOURCE_ORDER.search(source)), "attempt_" in source, source, event.offset)


def _join(group: list[Event]) -> Event:
    best = min(group, key=_rank_of_source)
    others = [e for e in group if e is not best]
    changes: dict[str, Any] = {}
    for name in ("rank", "local_rank", "host", "pid", "actor", "role", "attempt", "stage", "step", "path", "time_ns"):
        if getattr(best, name) is None:
            changes[name] = next((v for e in others if (v := getattr(e, name)) is not None), None)
    timed = [e for e in group if e.time_ns is not None and not e.attrs.get("document")]
    timed = [e for e in timed if not e.attrs.get("remote")] or timed
    if timed:
        first = min(timed, key=lambda e: (e.time_error_ns, e.time_ns or 0))
        changes["time_ns"], changes["time_error_ns"], changes["time_assumed"] = first.time_ns, first.time_error_ns, first.time_assumed
    attrs = {**{k: v for e in reversed(others) for k, v in e.attrs.items()}, **best.attrs}
    for name, mark in (("stage", "said_stage"), ("step", "said_step")):
        if changes.get(name) is not None:  # as sure as the copy that told it
            attrs[mark] = next(e.attrs.get(mark) for e in others if getattr(e, name) is not None)
    if best.time_ns is None and timed and first.attrs.get("span"):
        attrs["inherited"] = first.attrs.get("inherited")
    for name in ("document", "remote"):
        if attrs.get(name) and not all(e.attrs.get(name) for e in group):
            del attrs[name]
    return best.but(also=best.also + tuple(r for e in others for r in e.records), attrs=attrs, **changes)


def fold(events: list[Event]) -> list[Event]:
    """Fold repeats: of one process always, of many ranks when they are alike and too many to matter singly."""
    by_process: dict[tuple, list[Event]] = {}
    for event in events:
        who = (event.attempt, event.rank, event.actor, event.local_rank, event.host, event.attrs.get("by_agent"), event.attrs.get("callee"))
        if event.kind == Kind.UNREACHABLE:
            who = (*who, event.attrs.get("peer"))  # whether one host or many cannot be reached is what tells who is cut off
        if event.pid is not None and (event.kind == Kind.STACK_DUMP or (event.rank is None and event.attrs.get("traceback"))):
            who = (*who, event.pid)  # dumps of several processes read alike but for the numbers, and actors of one class have one name
        by_process.setdefault((event.kind, masked(event.text), event.path, who), []).append(event)
    single = [_repeat(group) for group in by_process.values()]
    by_text: dict[tuple, dict[str, list[Event]]] = {}
    for event in sorted(single, key=_order):
        key = (event.kind, event.attempt, event.attrs.get("by_agent"), event.attrs.get("signal"))
        text = masked(event.text)
        groups = by_text.setdefault(key, {})
        # The first wording of a message names its group; another wording is compared with those names only.
        name = text if text in groups else next((g for g in groups if len(text) > 20 and fuzz.ratio(g, text) >= ALIKE), text) if len(groups) < WORDINGS else text
        groups.setdefault(name, []).append(event)
    out: list[Event] = []
    for groups in by_text.values():
        for group in groups.values():
            many = group[0].kind in VICTIM_KINDS or group[0].kind in QUIET_KINDS - {Kind.STACK_DUMP} or len(group) > 64
            out += [_across(group)] if many and len(group) >= FOLD_FROM else group
    return same_error.share([e.but(event_id=i) for i, e in enumerate(sorted(out, key=_order))])


def _repeat(group: list[Event]) -> Event:
    first = min(group, key=_order)
    if len(group) == 1:
        return first
    last = max(group, key=_order)
    attrs = {**first.attrs, "last_ns": last.time_ns, "last_seq": last.attrs.get("seq"), "last_offset": last.offset}
    return first.but(count=sum(e.count for e in group), attrs=attrs, also=first.also + tuple(r for e in group[1:3] for r in e.records))


def _across(group: list[Event]) -> Event:
    first = min(group, key=_order)
    ranks = tuple(sorted({e.rank for e in group if e.rank is not None}))
    if callees := sorted({str(c) for e in group if (c := e.attrs.get("callee"))}):
        first = first.but(attrs={**first.attrs, "callees": callees})
    return first.but(count=sum(e.count for e in group), ranks=ranks, also=first.also + tuple(r for e in group[1:3] for r in e.records))
