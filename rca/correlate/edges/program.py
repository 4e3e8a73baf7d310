"""Program order: in one process, an earlier error may have brought about the next one."""

from __future__ import annotations

from itertools import pairwise

from rca.correlate.progress import key_of
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import QUIET_KINDS, Kind

SKIP = QUIET_KINDS | {Kind.LOGGED_ERROR, Kind.DEVICE_HELD, Kind.AGENT_REPORT, Kind.AGENT_STOPS_SIBLING, Kind.LEAK_WARNING}


def build(view: View) -> list[Edge]:
    """An edge from each event of a process to the next one of another kind."""
    groups: dict[tuple, list[Event]] = {}
    for event in view.events:
        if event.kind not in SKIP and event.severity != "info" and (key := key_of(event)) is not None:
            groups.setdefault(key, []).append(event)
    found = []
    for events in groups.values():
        ordered = sorted(events, key=_order)
        found += [Edge(a.event_id, b.event_id, "program") for a, b in pairwise(ordered) if a.kind != b.kind and not a.attrs.get("lived_on")]
    return found


def _order(event: Event) -> tuple:
    # An abort is how a process ends, and the text of what was thrown comes below it; an exit follows everything the process said itself.
    late = 2 if event.kind in (Kind.EXITED, Kind.KILLED) else event.kind == Kind.NATIVE_ABORT
    return (late, event.time_ns if event.time_ns is not None else 2**62, event.offset, event.event_id)
