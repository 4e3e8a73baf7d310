"""The causal graph: networkx over folded events only, never over lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rca.model import Edge, Event

if TYPE_CHECKING:
    import networkx as nx


def build(events: Iterable[Event], edges: Iterable[Edge]) -> nx.DiGraph | None:
    """Nodes are event ids; an edge carries the set of its kinds, sorted. None where nothing is connected: networkx takes long to import."""
    kinds: dict[tuple[int, int], set[str]] = {}
    for edge in edges:
        if edge.cause != edge.effect:
            kinds.setdefault((edge.cause, edge.effect), set()).add(edge.kind)
    if not kinds:
        return None
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(sorted(e.event_id for e in events))
    for (cause, effect), names in sorted(kinds.items()):
        graph.add_edge(cause, effect, kinds=tuple(sorted(names)))
    return graph
