"""The causal graph: over folded events only, never over lines."""

from __future__ import annotations

from collections.abc import Iterable

from rca.model import Edge, Event, Graph


def build(events: Iterable[Event], edges: Iterable[Edge]) -> Graph:
    """The graph of these edges, between these events alone."""
    known = {event.event_id for event in events}
    return Graph(edge for edge in edges if edge.cause in known and edge.effect in known)
