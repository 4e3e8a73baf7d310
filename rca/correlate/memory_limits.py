"""Limits of memory that control groups have, and who is not heard of any more once one was reached."""

from __future__ import annotations

from typing import Any

from rca.correlate.rises import Rise
from rca.correlate.tracks import Point, Track, Tracks
from rca.correlate.view import View

UNLIMITED = 1e15
FULL = 0.8  # of the limit; the kernel kills at all of it, samples come a moment before
SAMPLED_NS = 60 * 10**9
SLACK_NS = 2 * 10**9  # between two writers of one host: a record of the killed process and the sample that counts the kill


def limit_of(track: Track, known: Tracks) -> float:
    """The limit in bytes of the group that a track is about; 0 where it has none, or none is known."""
    limit = max((p.value for t in known.of("mem.group_limit") if (t.host, _group(t)) == (track.host, _group(track)) for p in t.points), default=0.0)
    return limit if 0 < limit < UNLIMITED else 0.0


def limit_reached(track: Track, kills: Rise, known: Tracks) -> float:
    """The limit of a group in which processes were killed, if what it used was near it at that time; else 0."""
    limit = limit_of(track, known)
    for used in known.of("mem.group_used"):
        if limit and (used.host, _group(used)) == (track.host, _group(track)):
            near = [p.value for p in used.points if p.time_ns is None or kills.at.time_ns is None or abs(p.time_ns - kills.at.time_ns) <= SAMPLED_NS]
            if max(near, default=0.0) >= FULL * limit:
                return limit
    return 0.0


def silent_since(host: str | None, at: Point, view: View) -> list[Any]:
    """The job's processes of a host that did not finish and whose last sign of life is not after a point."""
    if at.time_ns is None:
        return []
    return [p for p in view.procs.values() if p.host == host and not p.finished and p.last_ns is not None and p.last_ns <= at.time_ns + SLACK_NS]


def _group(track: Track) -> tuple[tuple[str, Any], ...]:
    return tuple((k, v) for k, v in track.device if k != "own")
