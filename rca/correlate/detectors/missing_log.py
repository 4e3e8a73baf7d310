"""Which rank's log is missing is itself a finding: the dead often leave nothing."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind


def detect(view: View) -> list[Event]:
    """`rank.log_missing` for each rank of the world that no file speaks for."""
    world = view.identity.world
    present = {w.rank for w in view.identity.writers if w.rank is not None and w.info["lines"]}
    if not world or not present or len(present) < 2:
        return []
    peers = [e for e in view.events if e.rank in present and e.source]
    found = []
    for rank in sorted(set(range(world)) - present):
        basis = next((e.records[:1] for e in peers if e.kind == Kind.PEER_LOST), ())
        attempt = view.identity.attempts - 1
        text = f"rank {rank} of {world} left no log"
        found.append(Event(Kind.RANK_LOG_MISSING, text, severity="warning", rank=rank, host=view.identity.ranks_of_hosts.get(rank), attempt=attempt, also=tuple(basis)))
    return found
