"""Stack aggregation: when most ranks wait in one place, the few that stand elsewhere are suspect.

Source: ByteRobust's stack aggregation, LLNL's STAT. A scheduled dump is taken in healthy runs too, so this speaks only of ranks that
were asked at about the same time and only when some rank failed. A dump that names no rank is known by its file and pid; one that somebody took
by hand was taken because the job hung, and tells something alone too.
"""

from __future__ import annotations

from collections import Counter

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

#: Where healthy ranks stand while they wait for others; the device only where nobody waits in Python (launches are asynchronous).
WAITING = ("collective", "device")


def detect(view: View) -> list[Event]:
    """`rank.outlier_stack` for each process whose main thread is not where the waiting majority is."""
    latest: dict[tuple, Event] = {}
    for event in view.of(Kind.STACK_DUMP):
        if event.rank is not None or event.attrs.get("asked"):
            latest[event.attempt or 0, -1 if event.rank is None else event.rank, None if event.rank is not None else (event.source, event.pid)] = event
    places: Counter[str] = Counter()
    for event in latest.values():
        places[event.attrs.get("place") or ""] += event.attrs.get("processes", 1)
    place_waited = next((p for p in WAITING if places[p]), None)
    waiting = places[place_waited] if place_waited else 0
    found = []
    for (attempt, rank, _), event in sorted(latest.items(), key=lambda item: (item[0][:2], str(item[0][2]))):
        place = event.attrs.get("place")
        proc = view.procs.get((attempt, rank))
        asked = bool(event.attrs.get("asked"))
        if place in WAITING or place is None or (proc is not None and proc.finished) or (proc is None and not asked) or (not waiting and not asked):
            continue
        frame = event.attrs.get("frame")
        where = f"{frame[2]} ({frame[0].rsplit('/', 1)[-1]}:{frame[1]})" if frame else place
        who = f"rank {rank}" if rank >= 0 else f"pid {event.pid}" if event.pid else "a process"
        text = f"{who} stands in {where}" + (f" while {waiting} other(s) wait in a collective" if waiting else "")
        attrs = {"place": place, "waiting": waiting, "asked": asked, "loader": event.attrs.get("loader")}
        found.append(event.but(kind=Kind.RANK_OUTLIER, text=text, severity="error", source=None, also=event.records, attrs=attrs, event_id=-1))
    return found
