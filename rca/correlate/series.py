"""What a sequence of numbers shows: a level that rose and stayed, a spike that went by.

Robust throughout: levels are medians, noise is the lower quartile of the changes from one point to the next, so that the event that is looked
for does not hide itself by widening its own yardstick.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from rca.correlate.view import View
from rca.model import Record

LEAST = 5  # points; fewer show no level
STAYED = 3  # points at the end that must all lie high, or a tenth of the series
ROSE = 0.3  # of the best level: how far the end must lie above it
SPIKE = 0.5  # of the level before: how far one point must lie above it
BACK = 0.1  # of the best level: how near the end must come back to it
NOISES = 8.0


class Point(NamedTuple):
    """One value of a series and the line that states it."""

    step: int | None
    time_ns: int | None
    value: float
    record: Record


class Shape(NamedTuple):
    """`kind` is "rose" or "spiked"; `before`, `worst` and `last` are levels; `at` is the index where it began."""

    kind: str
    at: int
    before: float
    worst: float
    last: float


def shape(numbers: list[float]) -> Shape | None:
    """Whether finite `numbers` of a quantity that should fall rose and stayed, or spiked and came back.

    >>> shape([2.2, 2.2, 2.6, 2.2, 2.3, 5.1, 3.5, 3.2, 2.8, 2.2, 2.2])
    Shape(kind='spiked', at=5, before=2.2, worst=5.1, last=2.2)
    >>> shape([9.0, 6.1, 4.0, 3.5, 3.4, 3.3, 5.9, 7.0, 7.2, 7.1, 7.2]).kind
    'rose'
    >>> shape([9.0, 6.1, 4.0, 3.5, 3.4, 3.3, 3.5, 3.2, 3.3, 3.1]), shape([3.0, 3.1])
    (None, None)
    """
    if len(numbers) < LEAST:
        return None
    changes = sorted(abs(b - a) for a, b in pairwise(numbers))
    noise = changes[len(changes) // 4]
    smooth = [median(numbers[max(0, i - 1) : i + 2]) for i in range(len(numbers))]
    best_at = min(range(len(smooth)), key=lambda i: smooth[i])
    best = smooth[best_at]
    tail = numbers[-max(STAYED, len(numbers) // 10) :]
    low, high = best + max(NOISES / 2 * noise, ROSE / 2 * abs(best)), best + max(NOISES * noise, ROSE * abs(best))
    if best_at < len(numbers) - len(tail) and min(tail) > low and median(tail) > high:
        at = next(i for i in range(best_at, len(numbers)) if min(numbers[i:]) > low)
        return Shape("rose", at, best, max(numbers[at:]), median(tail))
    for at in range(2, len(numbers) - 2):
        before = min(smooth[: at - 1])
        last = median(numbers[-2:])
        if numbers[at] > before + max(NOISES * noise, SPIKE * abs(before)) and last <= before + max(NOISES / 2 * noise, BACK * abs(before)):
            worst = max(range(at, len(numbers)), key=lambda i: numbers[i])
            return Shape("spiked", worst, before, numbers[worst], last)
    return None


def series(view: View, name: str) -> dict[int | None, list[Point]]:
    """The points of one quantity by rank, in the order of their lines; of a rank that several files speak for, those of the longest."""
    found: dict[int | None, list[Point]] = {}
    for writer in view.identity.writers:
        own: dict[int | None, list[Point]] = {}
        common = view.clock.of_file(writer.host, bool(writer.reading.facts.get("zoned")))
        for step, ns, rank, line, offset, raw, values in writer.info.get("series", ()):
            if name in values:
                who = writer.rank if writer.rank is not None else rank
                own.setdefault(who, []).append(Point(step, common(ns), values[name], Record(writer.source, line, offset, raw)))
        for who, points in own.items():
            if len(points) > len(found.get(who, ())):
                found[who] = points
    return found


def finite(points: list[Point]) -> list[Point]:
    """The points whose value is a number."""
    return [p for p in points if math.isfinite(p.value)]


def event_of(point: Point, view: View, rank: int | None, **more: Any) -> dict[str, Any]:
    """The columns that an event derived from a point has."""
    writer = next((w for w in view.identity.writers if w.source == point.record.source and (rank is None or w.rank in (rank, None))), None)
    return {"time_ns": point.time_ns, "step": point.step, "rank": rank, "host": writer.host if writer else None, "stage": "train", "attempt": view.identity.attempts - 1, "also": (point.record,), **more}
