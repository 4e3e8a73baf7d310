"""A host that was started anew inside the run: its boot time changed.

Source: node_exporter `node_boot_time_seconds`, proc(5) btime.
"""

from __future__ import annotations

from rca.correlate.tracks import derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

DRIFT_S = 60.0  # a boot time is computed from the clock and moves with it


def detect(view: View) -> list[Event]:
    """One event per restart."""
    known = tracks(view)
    events = []
    for track in known.of("host.boot_time"):
        for before, at in zip(track.points, track.points[1:], strict=False):
            if at.value - before.value > DRIFT_S and known.inside(track, at):
                when = int(at.value * 1e9) if before.time_ns is not None and before.time_ns <= at.value * 1e9 <= (at.time_ns or 0) else None
                event = derived(Kind.HOST_DOWN, f"{track.host or 'a host'} was started anew", track, at, before, severity="error")
                events.append(event if when is None else event.but(time_ns=when, time_error_ns=10**9))
    return events
