"""Every log ends in the middle, at once, and nobody says why: the machine or its watcher is gone."""

from __future__ import annotations

from rca.correlate.progress import NOT_TERMINAL
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

TOGETHER_NS = 5_000_000_000  # logs that end within this time ended together


def detect(view: View) -> list[Event]:
    """`run.cut_short` when no process ended, finished or complained."""
    procs = [p for p in view.attempt(view.identity.attempts - 1) if p.rank is not None and p.last_ns is not None]
    if len(procs) < 2 or any(not p.alive or p.exit is not None for p in procs):
        return []
    if any(e.kind not in NOT_TERMINAL and e.severity in ("error", "fatal") for e in view.events) or view.of(Kind.AGENT_SIGNALLED, Kind.EXITED):
        return []
    ends = sorted(p.last_ns for p in procs if p.last_ns is not None)
    if ends[-1] - ends[0] > TOGETHER_NS:
        return []
    proc = max(procs, key=lambda p: (p.last_ns or 0, -(p.rank or 0)))
    text = f"the logs of all {len(procs)} ranks end within {(ends[-1] - ends[0]) / 1e9:.1f} s, in the middle and without an error"
    return [Event(Kind.CUT_SHORT, text, time_ns=ends[-1], host=proc.host, stage=proc.last_stage, step=proc.last_step, attempt=proc.attempt, also=tuple(p.last for p in procs[:3] if p.last))]
