"""When a counter began to rise as it never did before, there and on no other device.

Rates, not levels: what a counter stood at when the run began is old. A counter that falls was reset. The yardstick of a step is the calm quarter of the
counter's own steps and the middle of the others' rates, so that a fault which lasts for most of the run does not hide itself.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import NamedTuple

from rca.correlate.tracks import Point, Track, Tracks

CALM, HALF = 0.25, 0.5
UNTIMED_NS = 60 * 10**9  # between two dumps of which nobody says when they were made


class Step(NamedTuple):
    """From one sample to the next: how much was added, and how fast (per second)."""

    before: Point
    at: Point
    added: float
    rate: float


class Rise(NamedTuple):
    """A counter's rise: where it began, the last point that still rose, what it grew by, at which rate, against the usual one."""

    track: Track
    before: Point
    at: Point
    last: Point
    grown: float
    rate: float
    usual: float
    recovered: bool  # calm again for the rest of the series

    @property
    def seconds(self) -> float:
        """How long it rose."""
        return (self.last.time_ns - self.before.time_ns) / 1e9 if self.last.time_ns is not None and self.before.time_ns is not None else 0.0


def steps(track: Track) -> list[Step]:
    """The steps of a counter; those over a reset add nothing."""
    found = []
    for a, b in pairwise(track.points):
        gap = b.time_ns - a.time_ns if a.time_ns is not None and b.time_ns is not None else UNTIMED_NS
        if gap <= 0:
            continue
        added = max(0.0, b.value - a.value)
        found.append(Step(a, b, added, added / (gap / 1e9)))
    return found


def typical(own: list[Step], share: float) -> float:
    """The rate that was not exceeded in that share of the time: samples of a level that does not change were left out."""
    total = sum(_seconds(s) for s in own)
    passed = 0.0
    for step in sorted(own, key=lambda s: s.rate):
        passed += _seconds(step)
        if passed >= share * total:
            return step.rate
    return 0.0


def _seconds(step: Step) -> float:
    return (step.at.time_ns - step.before.time_ns) / 1e9 if step.at.time_ns is not None and step.before.time_ns is not None else UNTIMED_NS / 1e9


def rise(track: Track, known: Tracks, least: float, factor: float = 10.0, quiet: float = 0.0) -> Rise | None:
    """The rise of a counter inside the run's window, or None.

    A step belongs to it that adds at least `least` at a rate of `factor` times the usual one and above `quiet` per second.
    """
    own = steps(track)
    if not own:
        return None
    others = [typical(s, HALF) for t in known.beside(track) if (s := steps(t))]
    usual = max(typical(own, CALM) if len(own) > 1 else 0.0, median(others) if others else 0.0)
    rose = [i for i, s in enumerate(own) if s.added >= least and s.rate > quiet and s.rate >= factor * usual and known.inside(track, s.at)]
    if not rose:
        return None
    first, last = rose[0], rose[-1]
    grown = sum(own[i].added for i in rose)
    rate = max(own[i].rate for i in rose)
    over = len(own) - 1 - last >= 2 and len(own) - 1 - last >= (last - first + 1) / 4
    return Rise(track, own[first].before, own[first].at, own[last].at, grown, rate, usual, over)


def standing_out(rises: list[Rise], share: float = 0.3) -> list[Rise]:
    """Those of several hosts' rises that are of the order of the largest: who talks to a faulty host shows a little of it too."""
    if not rises:
        return []
    top = max(r.rate for r in rises)
    return [r for r in rises if r.rate >= share * top]
