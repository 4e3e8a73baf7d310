"""One rank that needs longer for its own step than the others, by the numbers that the ranks print themselves.

In synchronous training everybody ends a step together, so equal step times say nothing; a program that prints its own computing time shows
who the others wait for.

Source: ByteRobust and Falcon on fail-slow ranks; DLRover's node check compares nodes in the same way.
"""

from __future__ import annotations

from statistics import median

from rca.correlate import series
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

RANKS = 3  # a majority needs three
POINTS = 3
FACTOR = 1.3
AGREE = 0.1  # of the others' median: how far the others may lie apart


def detect(view: View) -> list[Event]:
    """`rank.slow` for the one rank whose median step is clearly longer than everybody else's."""
    times = {r: ps for r, ps in series.series(view, "seconds").items() if r is not None and len(ps) >= POINTS}
    if len(times) < RANKS:
        return []
    medians = {r: median(p.value for p in ps) for r, ps in times.items()}
    slowest = max(medians, key=lambda r: medians[r])
    others = [m for r, m in medians.items() if r != slowest]
    usual = median(others)
    if usual <= 0 or medians[slowest] < FACTOR * usual or max(abs(m - usual) for m in others) > AGREE * usual:
        return []
    point = next(p for p in times[slowest] if p.value >= FACTOR * usual)
    text = f"rank {slowest} needs {medians[slowest]:.3g} s for a step, the other {len(others)} ranks {usual:.3g} s"
    return [Event(Kind.RANK_SLOW, text, severity="warning", **series.event_of(point, view, slowest))]
