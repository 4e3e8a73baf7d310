"""The run's pulse: the steps that its lines count. What steps follow is survived; a log that ends on steps shows a run that goes on.

A job trains in lockstep: one dead process stops all, so steps that are made after a fault, anywhere in the job, speak for the whole of it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from rca.correlate.view import View
from rca.model import Event

ENOUGH = 3  # steps after an event before we say that the job went on
GAP_NS = 2_000_000_000  # two logs with whole seconds: a step this near to an event may have been made before it


class Beat(NamedTuple):
    """One step line."""

    step: int
    time_ns: int | None
    source: str
    offset: int


def beats(view: View) -> list[Beat]:
    """Every step line of the last attempt, by file and offset."""
    last = view.identity.attempts - 1
    found: dict[str, list[Beat]] = {}
    for writer in view.identity.writers:
        if writer.attempt is not None and writer.attempt != last:
            continue
        common = view.clock.of_file(writer.host, bool(writer.reading.facts.get("zoned")))
        for mark in writer.info["steps"]:
            if mark[1] is not None:
                found.setdefault(writer.source, []).append(Beat(mark[1], common(mark[0]), writer.source, mark[2] if len(mark) == 3 else mark[4]))
    return [beat for source in sorted(found) for beat in sorted(found[source], key=attrgetter("offset"))]


def steps_after(event: Event, pulse: list[Beat], view: View) -> int:
    """How many distinct steps the job made after `event`: by place in the same file, by time in others."""
    place = max(event.offset, event.attrs.get("last_offset") or 0)
    last_ns = event.attrs.get("last_ns") or event.time_ns
    timed = last_ns is not None and view.clock.dated(last_ns) and not event.attrs.get("inherited")
    after = set()
    for beat in pulse:
        if beat.source == event.source:
            if beat.offset > place:
                after.add(beat.step)
        elif timed and beat.time_ns is not None and view.clock.dated(beat.time_ns) and beat.time_ns > last_ns + event.time_error_ns + GAP_NS:
            after.add(beat.step)
    return len(after)
