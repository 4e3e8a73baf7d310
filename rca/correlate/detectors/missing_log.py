"""Which rank's log is missing is itself a finding: the dead often leave nothing."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

SINGLY = 4  # more missing ranks than this are one finding


def detect(view: View) -> list[Event]:
    """`rank.log_missing` for each rank of the world that no file speaks for."""
    world = view.identity.world
    present = {w.rank for w in view.identity.writers if w.rank is not None} | {e.rank for e in view.events if e.rank is not None and e.source}
    present |= {r for e in view.events for r in e.ranks}
    own = {w.source: w.rank for w in view.identity.writers if w.rank is not None and not w.lent}
    if not world or not view.identity.stated_world or len(set(own.values())) < 2 or len(own) < len(set(own.values())):
        return []  # on a console that all ranks share, silence of one is no missing file
    missing = sorted(set(range(world)) - present)
    if len(missing) > SINGLY:
        text = f"{len(missing)} of {world} ranks left no log, among them rank {missing[0]}"
        return [Event(Kind.RANK_LOG_MISSING, text, severity="warning", attempt=view.identity.attempts - 1, ranks=tuple(missing), count=len(missing))]
    peers = [e for e in view.events if e.rank in present and e.source]
    found = []
    for rank in missing:
        basis = next((e.records[:1] for e in peers if e.kind == Kind.PEER_LOST), ())
        attempt = view.identity.attempts - 1
        text = f"rank {rank} of {world} left no log"
        found.append(Event(Kind.RANK_LOG_MISSING, text, severity="warning", rank=rank, host=view.identity.ranks_of_hosts.get(rank), attempt=attempt, also=tuple(basis)))
    return found
