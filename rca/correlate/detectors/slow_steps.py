"""Steps that became much slower on every rank before the end: the job was throttled from outside, not broken in code."""

from __future__ import annotations

from statistics import median

from rca.correlate import series
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

FACTOR = 3.0  # a step this many times the usual one is slow; compile and save steps stay below or are single
LEAST = 4  # slow steps at the end of the run; one alone recovers or is the failure itself
BASE = 5  # steps that make a baseline
STATED = 1.5  # the same for times that the program itself states: they hold no pauses between steps


def detect(view: View) -> list[Event]:
    """One `steps.slowed` when the last steps of most ranks took several times as long as those before."""
    slowed = []
    for proc in view.ranked:
        gaps = [((b[1] - a[1]) / 1e9 / max(1, b[0] - a[0]), b) for a, b in zip(proc.steps, proc.steps[1:], strict=False) if b[0] > a[0]]
        if len(gaps) < BASE + LEAST:
            continue
        usual = median(g for g, _ in gaps[1 : 1 + max(BASE, len(gaps) // 3)])
        tail = 0
        for gap, _ in reversed(gaps):
            if gap < FACTOR * usual:
                break
            tail += 1
        if usual > 0 and tail >= LEAST:
            slowed.append((proc, gaps[-tail][1], usual, median(g for g, _ in gaps[-tail:])))
    if not slowed:
        return _stated(view)
    if len(slowed) * 2 <= len(view.ranked):
        return []
    proc, (step, when), usual, now = min(slowed, key=lambda s: s[1][1])
    text = f"steps slowed from {usual:.2f} s to {now:.2f} s on {len(slowed)} rank(s)"
    return [Event(Kind.STEPS_SLOWED, text, severity="warning", time_ns=when, step=step, stage="train", attempt=proc.attempt, also=(proc.last,) if proc.last else ())]


def _stated(view: View) -> list[Event]:
    """The same from the seconds per step that the lines state, where they carry no times of their own."""
    for rank, points in sorted(series.series(view, "seconds").items(), key=lambda kv: (-len(kv[1]), kv[0] or 0)):
        values = [p.value for p in points]
        tail = max(LEAST, len(values) // 10)
        if len(values) < BASE + tail:
            continue
        usual, now = median(values[: max(BASE, len(values) // 3)]), median(values[-tail:])
        if usual > 0 and min(values[-tail:]) >= STATED * usual:
            at = next(i for i in range(len(values)) if min(values[i:]) >= STATED * usual)
            text = f"steps slowed from {usual:.3g} s to {now:.3g} s, as the log states"
            return [Event(Kind.STEPS_SLOWED, text, severity="warning", **series.event_of(points[at], view, rank))]
        return []
    return []
