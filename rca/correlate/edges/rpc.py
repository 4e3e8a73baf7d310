"""Requests between processes: what broke in the callee is what the caller reports; the caller only repeats it."""

from __future__ import annotations

import re

from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

CALLER_KINDS = frozenset({
    Kind.RPC_FAILED, Kind.RPC_TIMEOUT, Kind.RPC_REFUSED, Kind.RPC_ERROR_REPLY, Kind.WEIGHTS_FAILED, Kind.WEIGHTS_SKIPPED, Kind.ACTOR_DIED,
    Kind.LOGGED_ERROR,
})  # fmt: skip
PORT = re.compile(r"(?:127\.0\.0\.1|localhost|[\d.]+|[A-Za-z][\w.-]*):(\d{4,5})\b")
EARLY_NS = 1_500_000_000


def build(view: View) -> list[Edge]:
    """Edges from a callee's event to the callers' reports that name it by actor or by port."""
    ports = ports_of(view)
    callers = [(e, callees(e, view, ports)) for e in view.events if e.kind in CALLER_KINDS]
    found = []
    for cause in view.events:
        if cause.kind in QUIET_KINDS or cause.severity == "info":
            continue
        for effect, names in callers:
            if cause.event_id == effect.event_id or (cause.actor, cause.rank) == (effect.actor, effect.rank):
                continue
            backwards = cause.kind in VICTIM_KINDS and effect.kind not in VICTIM_KINDS and effect.kind != Kind.LOGGED_ERROR
            if cause.actor in names and not backwards and not _late(cause, effect):
                found.append(Edge(cause.event_id, effect.event_id, "rpc"))
    return found


#: What happened to the callee, told by its caller: the place of the event is the callee.
ABOUT_CALLEE = frozenset({Kind.WEIGHTS_SKIPPED, Kind.PARTIAL_RESULT})


def about(event: Event, view: View) -> Event:
    """The event placed at the one process that it speaks of."""
    names = callees(event, view, ports_of(view))
    writers = {w.actor: w for w in view.identity.writers if w.actor in names and not w.lent}
    if len(writers) != 1:
        return event
    writer = next(iter(writers.values()))
    return event.but(rank=writer.rank, actor=writer.actor, role=writer.role, host=writer.host or event.host, attrs={**event.attrs, "caller": event.actor})


def ports_of(view: View) -> dict[str, set]:
    """Port -> who serves on it, from each actor's own first lines."""
    ports: dict[str, set] = {}
    for writer in view.identity.writers:
        for port in writer.info["facts"].get("ports", ()):
            who = writer.actor or (None if writer.lent else writer.rank)
            if who is not None:
                ports.setdefault(port, set()).add(who)
    return ports


def callees(event: Event, view: View, ports: dict[str, set]) -> set:
    """Ranks and actor names that an event's text calls, by port or by name."""
    names: set = set()
    if event.attrs.get("span") and (about := event.attrs.get("about")) and about.get("pid") is not None:  # both halves of a traced call tell whose it was
        names |= {w.actor if w.rank is None else w.rank for w in view.identity.writers if w.pid == about["pid"] and about.get("host") in (None, w.host)} - {None}
    for port in PORT.findall(event.text):
        names |= ports.get(port, set())
    for writer in view.identity.writers:
        if writer.actor and writer.actor != event.actor and writer.actor in event.text and re.search(rf"(?<![\w-]){re.escape(writer.actor)}(?![\w-])", event.text):
            names.add(writer.actor)
    return names


def _late(cause: Event, effect: Event) -> bool:
    return cause.time_ns is not None and effect.time_ns is not None and cause.time_ns - effect.time_ns > EARLY_NS
