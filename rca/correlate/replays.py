"""What replays say, kept apart from the run: a replay is made afterwards, by nobody of the run, and with clocks and processes of its own.

Nothing of it takes part in the run's identity, clock, progress, graph or end. Its events come behind those of the run, with the places that they name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rca.correlate.clock import Clock
from rca.correlate.identity import Identity
from rca.model import Event, Missing, Reading

SHAPE, RECORDING = "rca_replay", "rca_recording"
LEFT_ALONE = "recording of requests"  # why the walk over a folder lists a recording and reads none of it
NONE_YET = Missing("whether the failed request fails again in fresh processes: its requests were recorded, and no replay is here", "rca replay RUN")


def apart(readings: Iterable[Reading]) -> tuple[list[Reading], list[Reading]]:
    """The readings of the run's own files, and those of replays and of what they start from."""
    own: list[Reading] = []
    others: list[Reading] = []
    for reading in readings:
        (others if reading.format in (SHAPE, RECORDING) else own).append(reading)
    return own, others


def events(replays: Iterable[Reading], who: Identity, clock: Clock, first: int) -> list[Event]:
    """The events of replays with ids from `first`; the hosts under their names in the run, the times, which are those of the recorded requests, in its time."""
    found = [e for r in replays for e in r.events]
    return [_placed(e, who, clock).but(event_id=first + i) for i, e in enumerate(sorted(found, key=lambda e: (e.source or "", e.offset)))]


def _placed(event: Event, who: Identity, clock: Clock) -> Event:
    host = who.name_of(event.host) if event.host else None
    actor = f"{event.role}-{event.rank}" if event.role and event.rank is not None else event.role
    return event.but(host=host, actor=actor, time_ns=clock.resolve(event.time_ns, host, True), time_error_ns=clock.error(host))


def readings(others: Iterable[Reading]) -> list[Reading]:
    """Their readings as files that say nothing of who wrote in the run, or when."""
    return [replace(r, facts={}, first_ns=None, last_ns=None) for r in others]


def missing(own: Iterable[Reading], others: Iterable[Reading], ended: str) -> tuple[Missing, ...]:
    """That a replay could be made, where there is only what it starts from."""
    shapes = {r.format for r in others} | {RECORDING for r in own if r.reason == LEFT_ALONE}
    return (NONE_YET,) if RECORDING in shapes and SHAPE not in shapes and ended != "finished" else ()
