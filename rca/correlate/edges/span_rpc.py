"""Calls as traces state them: what failed in the callee's span brought down the caller's."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Edge


def build(view: View) -> list[Edge]:
    """Edges from the event of the deepest failed span to those of the calls above it."""
    by_span = {e.span_id: e for e in view.events if e.span_id and e.attrs.get("span")}
    found = []
    for event in view.events:
        cause = by_span.get(event.attrs.get("cause_span") or "")
        if cause is not None and cause.event_id != event.event_id:
            found.append(Edge(cause.event_id, event.event_id, "rpc"))
    return found
