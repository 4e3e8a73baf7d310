"""Death of a remote worker: what its own process or its host said before is why the caller was told that it died."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

OF_HOST = frozenset({Kind.HOST_OOM, Kind.HOST_DOWN, Kind.SCHEDULER_STOP, Kind.SHM_EXHAUSTED, Kind.AGENT_SIGNALLED})
NEAR_NS = 180 * 10**9  # a memory monitor sums up once a minute, a missed heartbeat counts half a minute


def build(view: View) -> list[Edge]:
    """Edges to each death that a caller was told of, from events of the process that died (by pid) and of its host."""
    deaths = [e for e in view.events if e.kind == Kind.ACTOR_DIED and e.attrs.get("victim")]
    found = []
    for cause in view.events if deaths else ():
        if cause.kind in QUIET_KINDS or cause.kind == Kind.LOGGED_ERROR or cause.severity == "info":
            continue
        for death in deaths:
            if cause.event_id == death.event_id or (cause.kind == Kind.ACTOR_DIED and cause.pid == death.pid):
                continue
            if cause.kind in OF_HOST and cause.host is not None and cause.host == death.host and _near(cause, death):
                found.append(Edge(cause.event_id, death.event_id, "host"))
            elif cause.pid is not None and cause.pid == death.pid and cause.kind not in VICTIM_KINDS and (cause.host == death.host or None in (cause.host, death.host)):
                found.append(Edge(cause.event_id, death.event_id, "program"))
    return found


def _near(cause: Event, death: Event) -> bool:
    return cause.time_ns is None or death.time_ns is None or abs(cause.time_ns - death.time_ns) <= NEAR_NS
