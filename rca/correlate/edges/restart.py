"""Restarts: the job's first failure is in the first attempt; what fails while coming up again is its consequence."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Edge
from rca.taxonomy import QUIET_KINDS

COMING_UP = frozenset({"init", "load", "recover"})


def build(view: View) -> list[Edge]:
    """Edges from what ended one attempt to failures while the next one started."""
    ends: dict[int, list[int]] = {}
    for proc in view.procs.values():
        if proc.ended_by is not None:
            ends.setdefault(proc.attempt, []).append(proc.ended_by.event_id)
    found = []
    for event in view.events:
        attempt = event.attempt or 0
        if attempt == 0 or event.kind in QUIET_KINDS or event.severity not in ("error", "fatal"):
            continue
        if event.stage in COMING_UP or event.step is None:
            found += [Edge(c, event.event_id, "restart") for c in sorted(ends.get(attempt - 1, ())) if c != event.event_id]
    return found
