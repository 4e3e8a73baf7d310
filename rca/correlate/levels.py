"""When a level rose to many times what it was before and elsewhere, and stayed there for a while.

The yardstick is the lower quarter of the series, or its beginning where that is lower, and the middle of the same quantity on the other hosts; a single
spike is nothing.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from rca.correlate.tracks import Point, Track, Tracks

FIRST = 5  # points that show how it began
DENSE = 0.5  # of the points between the first and the last high one that must be high


class Raised(NamedTuple):
    """A raised level: from where to where, how high it is in the middle, and what is usual."""

    track: Track
    before: Point | None
    at: Point
    last: Point
    level: float
    usual: float
    points: int
    recovered: bool


def usual_level(track: Track, known: Tracks) -> float:
    """What the level is when nothing is wrong."""
    own = sorted(p.value for p in track.points)
    low = min(own[len(own) // 4], median(p.value for p in track.points[:FIRST]))
    others = [median(p.value for p in t.points) for t in known.beside(track) if t.points]
    return max(low, median(others)) if others else low


def raised(track: Track, known: Tracks, factor: float, floor: float, least: int = 3) -> Raised | None:
    """Where at least `least` points in the window lie above `factor` times the usual level and `floor` above it."""
    if len(track.points) < 2:
        return None
    usual = usual_level(track, known)
    limit = max(factor * usual, usual + floor)
    high = [i for i, p in enumerate(track.points) if p.value >= limit and known.inside(track, p)]
    if len(high) < least:
        return None
    first, last = high[0], high[-1]
    while last - first + 1 > len(high) / DENSE and len(high) > least:  # a lone spike long before or after is not part of it
        if high[1] - high[0] > high[-1] - high[-2]:
            high = high[1:]
        else:
            high = high[:-1]
        first, last = high[0], high[-1]
    if last - first + 1 > len(high) / DENSE or len(high) < least:
        return None
    points = track.points
    after = len(points) - 1 - last
    return Raised(track, points[first - 1] if first else None, points[first], points[last], median(points[i].value for i in high), usual, len(high), after >= 2 and after >= len(high) / 4)


def apart(found: list[Raised], share: float = 0.3) -> list[Raised]:
    """Of raised levels on several hosts, those of the order of the highest."""
    top = max((r.level for r in found), default=0.0)
    return [r for r in found if r.level >= share * top]
