"""One time axis: missing years and zones from the run's other sources, and offsets between hosts, with error bars.

The offsets are estimated in `offsets`. File dates and the zone of the analyzing machine are never asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rca.correlate import offsets, zone
from rca.correlate.identity import Identity
from rca.correlate.offsets import Offset
from rca.model import Event, Reading
from rca.taxonomy import Kind

YEAR_STATED_NS = 94_694_400 * 10**9  # 1973: stamps without a year carry the leap year 1972
BOOT_NS = 63_072_000 * 10**9  # below 1972: seconds since boot
ZONE_STEP_NS = 900 * 10**9  # zones are multiples of a quarter of an hour


class Clock:
    """Turns the times that files state into the run's common time."""

    def __init__(self, stamps: list[int], zone_ns: int, offsets: dict[str, Any]) -> None:
        self.zone_ns = zone_ns
        self.offsets = {host: Offset(*said) for host, said in offsets.items()}
        stated = [s for s in stamps if s >= YEAR_STATED_NS]
        self.years = Counter(datetime.fromtimestamp(s // 10**9, UTC).year for s in stated)
        self.middle = sorted(stated)[len(stated) // 2] if stated else None

    def resolve(self, ns: int | None, host: str | None, zoned: bool) -> int | None:
        """Common time of a stated time; None when it has no date at all."""
        if ns is None or ns < BOOT_NS:
            return None
        if ns < YEAR_STATED_NS:
            ns = self._with_year(ns)
        offset = self.offsets.get(host or "")
        return ns - (0 if zoned else self.zone_ns) - (offset.when(ns) if offset else 0)

    def shift(self, host: str | None, zoned: bool, at_ns: int | None = None) -> int:
        """What to take from a time with a year, about `at_ns`, to make it common time: for loops over many times of one file."""
        offset = self.offsets.get(host or "")
        return (0 if zoned else self.zone_ns) + (0 if not offset else offset.ns if at_ns is None else offset.when(at_ns))

    def error(self, host: str | None) -> int:
        """How far a corrected time of a host may be off."""
        offset = self.offsets.get(host or "")
        return offset.error_ns if offset else 0

    def of_file(self, host: str | None, zoned: bool) -> Callable[[int | None], int | None]:
        """`resolve` for the many times of one file."""
        offset = self.offsets.get(host or "")
        if offset and offset.drift:
            return lambda ns: self.resolve(ns, host, zoned)
        shift = self.shift(host, zoned)

        def common(ns: int | None) -> int | None:
            return ns - shift if ns is not None and ns >= YEAR_STATED_NS else self.resolve(ns, host, zoned)

        return common

    def _with_year(self, ns: int) -> int:
        """The stated year that brings a date nearest to the middle of the run; without one the placeholder stays."""
        if self.middle is None:
            return ns
        moment = datetime.fromtimestamp(ns // 10**9, UTC)
        candidates = []
        for year in sorted({y + d for y in self.years for d in (-1, 0, 1)}):
            try:
                moved = int(moment.replace(year=year).timestamp()) * 10**9 + ns % 10**9
            except ValueError:  # 29 February
                continue
            candidates.append((abs(moved - self.middle), moved))
        return min(candidates)[1] if candidates else ns

    def dated(self, ns: int | None) -> bool:
        """Whether a resolved time has a real year."""
        return ns is not None and ns >= YEAR_STATED_NS


def estimate(identity: Identity, events: list[Event], bounds: Iterable[offsets.Bound] = (), readings: Sequence[Reading] = ()) -> Clock:
    """Learn years, zone and host offsets from everything the run says about time. `bounds` are what calls say of pairs of hosts."""
    stamps = [m[0] for w in identity.writers for m in (w.info["first"], w.info["last"]) if m and m[0]]
    stamps += [e.time_ns for e in events if e.time_ns]
    clock = Clock(stamps, _zone(events) or zone.by_traces(identity) or zone.by_statement(readings), {})
    shift = clock.shift(None, False)
    clock.offsets = offsets.estimate(identity, lambda ns: ns - shift if ns >= YEAR_STATED_NS else clock.resolve(ns, None, False), [*bounds, *_served(identity, events)])
    return clock


def _served(identity: Identity, events: list[Event]) -> list[offsets.Bound]:
    """What a time service says of a host's clock, as bounds against the time that it serves."""
    found = []
    for event in events:
        writer = identity.writer(event.source, event.attrs.get("stream", "")) if event.kind == Kind.CLOCK_OFF else None
        if (host := event.host or (writer.host if writer else None)) and event.kind == Kind.CLOCK_OFF:
            ahead = int(float(event.attrs["seconds"]) * 1e9) * (1 if event.attrs["way"] == "fast" else -1)
            found.append((offsets.CENTRAL, host, ahead - offsets.RESOLUTION_NS, ahead + offsets.RESOLUTION_NS))
    return found


def _zone(events: list[Event]) -> int:
    """The local zone's offset: an error file's epoch time against the same traceback's local time."""
    local = {(e.rank, e.local_rank, e.attrs.get("exception"), e.text[:80]): e for e in events if e.attrs.get("traceback") and e.time_assumed and e.time_ns and e.time_ns >= YEAR_STATED_NS}
    gaps = []
    for event in events:
        if not event.attrs.get("document") or event.time_ns is None:
            continue
        twins = [e for key, e in local.items() if key[2:] == (event.attrs.get("exception"), event.text[:80])]
        gaps += [round((twin.time_ns - event.time_ns) / ZONE_STEP_NS) for twin in twins if twin.time_ns is not None]
    return Counter(gaps).most_common(1)[0][0] * ZONE_STEP_NS if gaps else 0


def describe(clock: Clock) -> tuple[dict[str, Any], ...]:
    """Offsets as the report states them: how far each host's clock was ahead; its drift and what else than steps it is known by, where that is so."""
    out = []
    for host, o in sorted(clock.offsets.items()):
        told = {"host": host, "offset_ms": round(o.ns / 1e6, 1), "error_ms": round(o.error_ns / 1e6, 1)}
        out.append(told | ({"drift_ppm": round(o.drift * 1e6, 1)} if o.drift else {}) | ({"by": o.by} if o.by != "steps" else {}))
    return tuple(out)
