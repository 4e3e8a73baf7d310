"""DataLoader: a worker that waits for a lock for ever keeps its rank waiting for the batch."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Edge
from rca.taxonomy import Kind

STUCK = ("mutex", "lock")


def build(view: View) -> list[Edge]:
    """Edges from a stuck loader worker to the rank that stands in its DataLoader."""
    outliers = view.of(Kind.RANK_OUTLIER)
    stuck = [e for e in outliers if e.attrs.get("place") in STUCK and e.attrs.get("loader")]
    waiting = [e for e in outliers if e.attrs.get("place") == "loader"]
    return [Edge(a.event_id, b.event_id, "program") for a in stuck for b in waiting]
