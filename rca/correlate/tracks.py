"""Samples to tracks: one per host, device and quantity, in the common time, whatever tools and files they came from.

A track is judged by its change inside the run's window, against its own past and against the same quantity elsewhere. The window is that of the job's own
processes; where the zone of one of the two is not stated, nothing is outside of it.
"""

from __future__ import annotations

import re
import weakref
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from rca.correlate.identity import short
from rca.correlate.view import View
from rca.model import Event, Record

BEFORE_NS = 300 * 10**9  # what changed minutes before the first line may still matter to the run
AFTER_NS = 120 * 10**9  # clocks of hosts differ by a minute or two
SPAN_NS = 5 * 10**9
#: Names under which lines of host monitors state the same (`ingest/blocks/counters.py`); carriers and retransmissions of lines have a judge of their own.
OF_LINES = {
    "tcp_timeouts": "net.tcp_timeouts", "drops": "net.rx_drops", "oom_kill": "mem.oom_kills", "carrier_changes": "net.carrier_changes",
    "symbol_errors": "rdma.symbol_errors", "link_downed": "rdma.link_downed", "port_errors": "rdma.rx_errors", "service_bytes": "mem.service",
}  # fmt: skip
BETWEEN = frozenset({"net.rtt_ms", "net.ping_lost", "net.loss_percent"})  # measured from one host to another


class Point(NamedTuple):
    """One sample in the common time. Where no time is known, the order of the file counts."""

    time_ns: int | None
    value: float
    record: Record


@dataclass
class Track:
    """One quantity of one device of one host. `about` are the pairs that name the device, `metric` the tool's own name among them."""

    host: str | None
    about: dict[str, Any]
    name: str
    points: list[Point]
    judged: bool = True  # its times can be compared with the run's window

    @property
    def device(self) -> tuple[tuple[str, Any], ...]:
        """What tells the device apart on its host."""
        return tuple((k, v) for k, v in self.about.items() if k != "metric")

    @property
    def metric(self) -> str:
        return str(self.about.get("metric") or self.name)

    def place(self) -> dict[str, Any]:
        """The columns of an event about this device."""
        about = self.about
        nic = about.get("device") if self.name.startswith(("rdma.", "net.")) else None
        return {"host": self.host, "gpu": about.get("gpu"), "bus_id": about.get("bus_id"), "nic": nic, "path": about.get("mount")}


class Tracks:
    """All tracks of a run, by quantity."""

    def __init__(self, found: dict[str, list[Track]], window: tuple[int, int] | None) -> None:
        self._found, self.window = found, window

    def of(self, *names: str) -> list[Track]:
        """The tracks of some quantities."""
        return [t for name in names for t in self._found.get(name, ())]

    def __iter__(self) -> Iterator[Track]:
        return (t for tracks in self._found.values() for t in tracks)

    def beside(self, track: Track) -> list[Track]:
        """The same quantity of the same kind of device, elsewhere."""
        return [t for t in self._found.get(track.name, ()) if t is not track and t.metric == track.metric]

    def inside(self, track: Track, point: Point) -> bool:
        """Whether a point lies in the run's window, or may."""
        if self.window is None or point.time_ns is None or not track.judged:
            return True
        return self.window[0] - BEFORE_NS <= point.time_ns <= self.window[1] + AFTER_NS


_last: tuple[Any, Tracks] | None = None


def tracks(view: View) -> Tracks:
    """The tracks of a view; those of the view that was asked last are kept."""
    global _last
    if _last is not None and _last[0]() is view:
        return _last[1]
    found = _tracks(view)
    _last = weakref.ref(view), found
    return found


def _tracks(view: View) -> Tracks:
    series: dict[str, dict[tuple, list[tuple]]] = defaultdict(dict)
    zoned_run = _zoned_run(view)
    for reading in view.readings:
        rows = reading.facts.get("samples")
        if not rows:
            continue
        measured = reading.facts.get("measured")
        writer = view.identity.writer(reading.source, "")
        own = writer.host if writer else None
        zoned = bool(reading.facts.get("zoned"))
        judged = zoned_run is None or zoned == zoned_run
        for order, (ns, said, subject, name, value, line, offset, raw) in enumerate(rows):
            if measured is None:
                name, subject = OF_LINES.get(name), (("device", subject),) if subject else ()
                if name is None or isinstance(value, str):
                    continue
                if name == "mem.service":
                    subject = (*subject, ("source", reading.source))  # what two processes hold is not one series
            host = _host(view, said) or _host(view, own)
            if name in BETWEEN and (observer := _observer(reading.source, host, view)):
                subject = (*subject, ("observer", observer))
            clock_of = None if measured and measured.get("server_clock") else host
            when = view.clock.resolve(ns, clock_of, zoned)
            key = (host, subject, judged)
            series[name].setdefault(key, []).append((when if when is not None else -1, reading.source, order, Point(when, float(value), Record(reading.source, line, offset, raw))))
    found: dict[str, list[Track]] = {}
    for name, by_key in series.items():
        for (host, subject, judged), points in sorted(by_key.items(), key=lambda kv: str(kv[0])):
            points.sort(key=lambda p: p[:3])
            found.setdefault(name, []).append(Track(host, dict(subject), name, [p[3] for p in points], judged))
    return Tracks(found, _window(view))


def _host(view: View, said: str | None) -> str | None:
    """The canonical name of the host that a sample states."""
    if said is None:
        return None
    name_of = getattr(view.identity, "name_of", None)
    named = name_of(said) if name_of else None
    if named:
        return named
    return _addresses(view).get(said) or short(said)


def _observer(source: str, target: str | None, view: View) -> str | None:
    """The host that measured the way to another one: the path of the file names it, beside the target."""
    parts = source.split("/")
    folder = next((p for p in parts[:-1] if p in view.identity.hosts and p != target), None)
    named = [h for h in view.identity.hosts if h != target and len(h) > 3 and re.search(rf"(?<![\w-]){re.escape(h)}(?![\w-])", parts[-1].replace("_", " "))]
    return folder or (named[0] if len(named) == 1 else None)


def _addresses(view: View) -> dict[str, str]:
    found: dict[str, str] = {}
    for reading in view.readings:
        if measured := reading.facts.get("measured"):
            found |= {a: short(h) or h for a, h in measured.get("addresses", {}).items()}
    return found


def _window(view: View) -> tuple[int, int] | None:
    """From the first to the last sign of life of the job's processes."""
    spans = [(p.first_ns, p.last_ns) for p in view.procs.values() if p.first_ns is not None and p.last_ns is not None and view.clock.dated(p.first_ns)]
    long = [(a, b) for a, b in spans if b - a >= SPAN_NS]  # a few lines at the end do not show when it began, but when it ended
    return (min(a for a, _ in long), max(b for _, b in spans)) if long else None


def _zoned_run(view: View) -> bool | None:
    """Whether the job's own files state a zone; None where they differ or say nothing."""
    said = {bool(w.reading.facts.get("zoned")) for p in view.procs.values() for w in p.writers}
    return said.pop() if len(said) == 1 else None


def derived(kind: str, text: str, track: Track, at: Point, before: Point | None = None, last: Point | None = None, **more: Any) -> Event:
    """An event that begins between two points of a track, resting on these lines."""
    when, error = at.time_ns, 0
    if when is not None and before is not None and before.time_ns is not None:
        error = (when - before.time_ns) // 2
        when -= error
    basis = tuple(dict.fromkeys(p.record for p in (at, before, last) if p is not None))
    columns = {"severity": "warning", **{k: v for k, v in track.place().items() if v is not None}}
    attrs = {"metric": track.metric, **more.pop("attrs", {})}
    also = tuple(dict.fromkeys((*basis, *more.pop("also", ()))))
    return Event(kind, text, time_ns=when, time_error_ns=error, attrs=attrs, also=also, **(columns | more))
