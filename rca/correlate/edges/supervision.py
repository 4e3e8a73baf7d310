"""Supervision: the launcher ends the siblings of the first that failed, and reports all of them."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Edge
from rca.taxonomy import QUIET_KINDS, Kind

ORDERS = frozenset({Kind.AGENT_SIGNALLED, Kind.SCHEDULER_STOP, Kind.SCHEDULER_TIME_LIMIT})
SIGTERM = 15  # what an order to stop sends; another signal has a cause of its own
REPORTS = frozenset({Kind.AGENT_REPORT, Kind.AGENT_STOPS_SIBLING})


def build(view: View) -> list[Edge]:
    """Edges from an order to stop to every exit it caused, and from every failure to the launcher's reports."""
    found = []
    stopped = [e for e in view.events if e.kind == Kind.EXITED]
    orders = [e for e in view.events if e.kind in ORDERS]
    for order in orders:
        for effect in view.events:
            if effect.kind == Kind.LOADER_WORKER_DIED and effect.attrs.get("worker_signal") != SIGTERM:
                continue
            late = effect.time_ns is not None and order.time_ns is not None and effect.time_ns + 1_000_000_000 < order.time_ns
            if effect.kind in (Kind.EXITED, Kind.KILLED, Kind.PEER_LOST, Kind.STORE_LOST, Kind.AGENT_REPORT, Kind.LOGGED_ERROR, Kind.LOADER_WORKER_DIED) and not late:
                found.append(Edge(order.event_id, effect.event_id, "supervision"))
    for event in view.events:
        if event.kind in QUIET_KINDS or event.kind in REPORTS or event.kind == Kind.EXITED:
            continue
        own = [e for e in stopped if e.rank is not None and e.rank == event.rank and not e.attrs.get("by_agent")]
        found += [Edge(event.event_id, e.event_id, "supervision") for e in own]
        if event.severity in ("error", "fatal"):
            found += [Edge(event.event_id, e.event_id, "supervision") for e in view.events if e.kind in REPORTS]
    return found
