"""Relay: a controller or driver repeats what a worker said; the worker's own line is the event, the repetition its consequence."""

from __future__ import annotations

from rca.correlate.concern import follows
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

TELLERS = ("controller", "launcher", "scheduler")
NEAR_NS = 1800 * 10**9
NEVER = QUIET_KINDS | VICTIM_KINDS | {Kind.LOGGED_ERROR, Kind.EXITED, Kind.PARTIAL_RESULT, Kind.EVENT_LOST}


def build(view: View) -> list[Edge]:
    """Edges from a worker's error to the same error as its caller tells it."""
    groups: dict[str, list[Event]] = {}
    for event in view.events:
        if event.kind not in NEVER and event.severity in ("error", "fatal") and event.source is not None:
            groups.setdefault(event.kind, []).append(event)
    found = []
    for events in groups.values():
        tellers = [e for e in events if _tells(e)]
        own = [e for e in events if not _tells(e)] if tellers else []
        for teller in tellers:
            found += [Edge(e.event_id, teller.event_id, "rpc") for e in own if (e.source, e.attrs.get("stream")) != (teller.source, teller.attrs.get("stream")) and _near(e, teller) and follows(e, teller)]
    return found


def _tells(event: Event) -> bool:
    return event.role in TELLERS and event.rank is None


def _near(event: Event, teller: Event) -> bool:
    return event.time_ns is None or teller.time_ns is None or abs(teller.time_ns - event.time_ns) <= NEAR_NS
