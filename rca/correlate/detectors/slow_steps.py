"""Steps that became much slower on every rank before the end: the job was throttled from outside, not broken in code."""

from __future__ import annotations

from statistics import median

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

FACTOR = 3.0  # a step this many times the usual one is slow; compile and save steps stay below or are single
LEAST = 4  # slow steps at the end of the run; one alone recovers or is the failure itself
BASE = 5  # steps that make a baseline


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
    if not slowed or len(slowed) * 2 <= len(view.ranked):
        return []
    proc, (step, when), usual, now = min(slowed, key=lambda s: s[1][1])
    text = f"steps slowed from {usual:.2f} s to {now:.2f} s on {len(slowed)} rank(s)"
    return [Event(Kind.STEPS_SLOWED, text, severity="warning", time_ns=when, step=step, stage="train", attempt=proc.attempt, also=(proc.last,) if proc.last else ())]
