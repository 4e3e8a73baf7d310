"""Stack aggregation: when most ranks wait in one place, the few that stand elsewhere are suspect.

Source: ByteRobust's stack aggregation, LLNL's STAT. A scheduled dump is taken in healthy runs too, so this speaks only of ranks that
were asked at about the same time and only when some rank failed.
"""

from __future__ import annotations

from collections import Counter

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

WAITING_PLACES = frozenset({"collective"})


def detect(view: View) -> list[Event]:
    """`rank.outlier_stack` for each rank whose main thread is not where the waiting majority is."""
    latest: dict[tuple, Event] = {}
    for event in view.of(Kind.STACK_DUMP):
        if event.rank is not None:
            latest[event.attempt or 0, event.rank] = event
    places = Counter(e.attrs.get("place") for e in latest.values())
    waiting = sum(places[p] for p in WAITING_PLACES)
    if waiting == 0 or waiting == len(latest):
        return []
    found = []
    for (attempt, rank), event in sorted(latest.items()):
        place = event.attrs.get("place")
        proc = view.procs.get((attempt, rank))
        if place in WAITING_PLACES or place is None or proc is None or proc.finished:
            continue
        frame = next(iter(event.attrs.get("frames") or []), None)
        where = f"{frame[2]} ({frame[0].rsplit('/', 1)[-1]}:{frame[1]})" if frame else place
        text = f"rank {rank} stands in {where} while {waiting} rank(s) wait in a collective"
        found.append(event.but(kind=Kind.RANK_OUTLIER, text=text, severity="error", source=None, also=event.records, attrs={"place": place}, event_id=-1))
    return found
