"""The loss as a series: it became non-finite, it rose and stayed, or it spiked and came back by itself.

A spike that went by is no failure, whatever it looks like (large models show them in healthy runs). What is told apart: a level that
stays high to the end. Where too few points show a level, an enormous gradient norm beside a loss that rose is a weak hint.

Source: PaLM (section 5.1) and BLOOM's public training chronicles on spikes that recover and runs that diverge.
"""

from __future__ import annotations

import math
from statistics import median

from rca.correlate import series
from rca.correlate.series import Point
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

HUGE_GRADIENT = 1e3  # clipped training has norms about 1; sums over tokens reach hundreds
WORSE = 1.05  # the loss at the end against the beginning, where there are but a few points
WORST = 1.3


def detect(view: View) -> list[Event]:
    """At most one event about the loss of the run, and one `numeric.non_finite` where no line's signature stated it."""
    losses = series.series(view, "loss")
    if not losses:
        return []
    found = _non_finite(losses, view)
    rank, points = max(losses.items(), key=lambda kv: (len(kv[1]), -(kv[0] or 0)))
    numbers = series.finite(points)
    seen = series.shape([p.value for p in numbers])
    if seen is not None and seen.kind == "rose" and seen.before <= 0 and seen.last <= abs(seen.before):
        return found  # an objective about zero, as that of a policy gradient, which came nearer to it: its level says nothing
    if seen is not None and seen.kind == "rose":
        at = numbers[seen.at]
        text = f"the loss rose from {seen.before:.4g} to {seen.last:.4g} and stayed there to the end (at worst {seen.worst:.4g})"
        found.append(_event(Kind.LOSS_ROSE, text, at, numbers, rank, view, weak=False))
    elif seen is not None:
        text = f"the loss jumped from {seen.before:.4g} to {seen.worst:.4g} and came back to {seen.last:.4g} by itself"
        found.append(_event(Kind.LOSS_SPIKE, text, numbers[seen.at], numbers, rank, view, severity="info"))
    elif (weak := _few(numbers, rank, view)) is not None:
        found.append(weak)
    return found


def _event(kind: Kind, text: str, at: Point, numbers: list[Point], rank: int | None, view: View, *, severity: str = "error", **attrs: bool) -> Event:
    columns = series.event_of(at, view, rank)
    columns["also"] = (at.record, numbers[-1].record) if at is not numbers[-1] else (at.record,)
    return Event(kind, text, severity=severity, attrs=attrs, **columns)


def _few(numbers: list[Point], rank: int | None, view: View) -> Event | None:
    """A short excerpt: the loss ends above where it began, it was worse between, and the gradients are enormous."""
    if len(numbers) < 3:
        return None
    values = [p.value for p in numbers]
    norms = [p.value for p in series.finite(series.series(view, "gradient").get(rank, []))]
    if not norms or median(norms) < HUGE_GRADIENT or values[0] <= 0 or values[-1] < WORSE * values[0] or max(values) < WORST * values[0]:
        return None
    at = max(numbers, key=lambda p: p.value)
    text = f"the loss went from {values[0]:.4g} to {values[-1]:.4g} (at worst {at.value:.4g}) with gradient norms of {median(norms):.3g}"
    return _event(Kind.LOSS_ROSE, text, at, numbers, rank, view, weak=True)


def _non_finite(losses: dict[int | None, list[Point]], view: View) -> list[Event]:
    """The first non-finite loss, if no signature took its line."""
    if view.of(Kind.NON_FINITE):
        return []
    bad = [(p, rank) for rank, points in losses.items() for p in points if not math.isfinite(p.value)]
    lasting = [rank for rank, points in losses.items() if points and not math.isfinite(points[-1].value)]
    if not bad or not lasting:
        return []  # a single one that was skipped
    point, rank = min(bad, key=lambda b: (b[0].time_ns or 2**62, b[0].step or 0, b[1] or 0))
    return [Event(Kind.NON_FINITE, f"the loss is {point.value} at step {point.step}", severity="error", **series.event_of(point, view, rank))]
