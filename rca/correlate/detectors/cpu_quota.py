"""A control group whose quota of processor time is used up: its tasks stand still for a good part of every period.

Source: Documentation/scheduler/sched-bwc.rst (`throttled_time`), cgroup-v2.rst (`throttled_usec`).
"""

from __future__ import annotations

from rca.correlate.rises import rise
from rca.correlate.tracks import derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

LEAST_S = 0.05
SHARE = 0.5  # of the time: a job that is denied the CPU half of the time is not merely busy
SECONDS = 3.0  # for which it must last


def detect(view: View) -> list[Event]:
    """One event per group."""
    known = tracks(view)
    found = []
    for track in known.of("cpu.throttled_s"):
        rose = rise(track, known, LEAST_S, quiet=SHARE, factor=4.0)
        if rose is not None and rose.seconds >= SECONDS:
            group = track.about.get("group") or track.about.get("container") or "a control group"
            text = f"the CPU quota of {group} on {track.host or 'a host'} was used up for {rose.grown:.0f} s"
            found.append(derived(Kind.CPU_THROTTLED, text, track, rose.at, rose.before, rose.last, attrs={"grown_s": rose.grown, "recovered": rose.recovered}))
    return found
