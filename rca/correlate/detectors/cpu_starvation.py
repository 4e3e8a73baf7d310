"""A host whose tasks wait for CPUs as on no other host: many times the usual run queue or load, no idle time, stolen time.

Source: vmstat(8), Documentation/accounting/psi.rst, node_exporter's loadavg and pressure collectors.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from rca.correlate.levels import apart, raised
from rca.correlate.rises import rise, standing_out
from rca.correlate.tracks import Point, Track, Tracks, derived, tracks
from rca.correlate.view import View
from rca.model import Event, Record
from rca.taxonomy import Kind

FACTOR, FLOOR, LEAST = 4.0, 48.0, 3
STEAL_PERCENT = 20.0
WAITING_RATE = 0.5  # of the time in which some task waited for a CPU
IDLE_PERCENT = 10.0  # above, there is CPU to be had
PER_CORE = 1.3


def detect(view: View) -> list[Event]:
    """One event per starved host."""
    known = tracks(view)
    signs: dict[str | None, list[tuple[Track, Point | None, Point, Point, str, bool]]] = defaultdict(list)
    for name, said in (("cpu.runnable", "runnable tasks"), ("cpu.load1", "load")):
        for found in apart([r for t in known.of(name) if (r := raised(t, known, FACTOR, FLOOR, LEAST))]):
            if _enough(found.track, found.level, known) and not _idle(found.track.host, found.at, found.last, known):
                signs[found.track.host].append((found.track, found.before, found.at, found.last, f"{found.level:.0f} {said} instead of {found.usual:.0f}", found.recovered))
    for found in apart([r for t in known.of("cpu.steal") if (r := raised(t, known, 2.0, STEAL_PERCENT, LEAST))]):
        signs[found.track.host].append((found.track, found.before, found.at, found.last, f"{found.level:.0f} % of the CPU time is stolen", found.recovered))
    for rose in standing_out([r for t in known.of("cpu.waiting_s") if (r := rise(t, known, 10, 4.0, WAITING_RATE))]):
        signs[rose.track.host].append((rose.track, rose.before, rose.at, rose.last, f"tasks waited for a CPU for {rose.grown:.0f} s", rose.recovered))
    return [_event(host, found) for host, found in sorted(signs.items(), key=lambda kv: str(kv[0]))]


def _enough(track: Track, level: float, known: Tracks) -> bool:
    """Whether it is more than the cores that the host is known to have."""
    cores = max((p.value for t in known.of("cpu.cores") if t.host == track.host for p in t.points), default=0.0)
    return not cores or level > PER_CORE * cores


def _idle(host: str | None, first: Point, last: Point, known: Tracks) -> bool:
    """Whether CPUs were idle meanwhile: then the tasks wait for something else."""
    if first.time_ns is None or last.time_ns is None:
        return False
    values = [p.value for t in known.of("cpu.idle") if t.host == host for p in t.points if p.time_ns is not None and first.time_ns <= p.time_ns <= last.time_ns]
    return bool(values) and sorted(values)[len(values) // 2] > IDLE_PERCENT


def _event(host: str | None, found: list[tuple]) -> Event:
    track, before, at, last, *_ = min(found, key=lambda f: (f[2].time_ns if f[2].time_ns is not None else 0))
    attrs: dict[str, Any] = {"recovered": all(f[5] for f in found)}
    if at.time_ns is not None and last.time_ns is not None:
        attrs["seconds"] = (last.time_ns - at.time_ns) / 1e9
    more: tuple[Record, ...] = tuple(f[2].record for f in found)
    return derived(Kind.CPU_STARVED, f"tasks on {host or 'a host'} wait for CPUs: {', '.join(f[4] for f in found[:3])}", track, at, before, last, attrs=attrs, also=more)
