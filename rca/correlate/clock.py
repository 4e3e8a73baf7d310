"""One time axis: missing years and zones from the run's other sources, and offsets between hosts, with error bars.

Steps of a synchronous job end together on all ranks, so the median difference of equal steps' times between two hosts is
the difference of their clocks. File dates and the zone of the analyzing machine are never asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import Any

from rca.correlate.identity import Identity
from rca.model import Event

YEAR_STATED_NS = 94_694_400 * 10**9  # 1973: stamps without a year carry the leap year 1972
BOOT_NS = 63_072_000 * 10**9  # below 1972: seconds since boot
ZONE_STEP_NS = 900 * 10**9  # zones are multiples of a quarter of an hour
MIN_STEPS = 3  # fewer common steps than this tell nothing about two clocks
LATEST_NS = 2**63  # beyond any time that a file states
WORTH_NS = 1_000_000_000  # an offset below a second is not corrected: logs have that resolution


class Clock:
    """Turns the times that files state into the run's common time."""

    def __init__(self, stamps: list[int], zone_ns: int, offsets: dict[str, tuple[int, int]]) -> None:
        self.zone_ns, self.offsets = zone_ns, offsets
        stated = [s for s in stamps if s >= YEAR_STATED_NS]
        self.years = Counter(datetime.fromtimestamp(s // 10**9, UTC).year for s in stated)
        self.middle = sorted(stated)[len(stated) // 2] if stated else None

    def resolve(self, ns: int | None, host: str | None, zoned: bool) -> int | None:
        """Common time of a stated time; None when it has no date at all."""
        if ns is None or ns < BOOT_NS:
            return None
        if ns < YEAR_STATED_NS:
            ns = self._with_year(ns)
        return ns - self.shift(host, zoned)

    def shift(self, host: str | None, zoned: bool) -> int:
        """What to take from a time with a year to make it common time: for loops over many times of one file."""
        return (0 if zoned else self.zone_ns) + self.offsets.get(host or "", (0, 0))[0]

    def of_file(self, host: str | None, zoned: bool) -> Callable[[int | None], int | None]:
        """`resolve` for the many times of one file."""
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


def estimate(identity: Identity, events: list[Event]) -> Clock:
    """Learn years, zone and host offsets from everything the run says about time."""
    stamps = [m[0] for w in identity.writers for m in (w.info["first"], w.info["last"]) if m and m[0]]
    stamps += [e.time_ns for e in events if e.time_ns]
    clock = Clock(stamps, _zone(events), {})
    clock.offsets = _offsets(identity, clock)
    return clock


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


def _offsets(identity: Identity, clock: Clock) -> dict[str, tuple[int, int]]:
    """Offset and error of every host's clock against the reference host (the one of the lowest rank)."""
    shift = clock.shift(None, False)
    ends: dict[str, dict[int, int]] = {}  # per host: when the first of its ranks ended a step
    for writer in identity.writers:
        marks = [(m[0], m[1]) for m in writer.info["steps"] if m[0] and m[1] is not None] if writer.host and writer.rank is not None else []
        ended = ends.setdefault(writer.host or "", {}) if marks else {}
        for stated, step in marks:
            ns = stated - shift if stated >= YEAR_STATED_NS else clock.resolve(stated, None, False)
            if ns is not None and ns < ended.get(step, LATEST_NS):
                ended[step] = ns
    if len(ends) < 2:
        return {}
    reference = min((w.rank, w.host) for w in identity.writers if w.rank is not None and w.host in ends)[1]
    base = ends[reference]
    found: dict[str, tuple[int, int]] = {}
    for host in sorted(ends):
        gaps = [ns - base[step] for step, ns in ends[host].items() if step in base]
        if host == reference or len(gaps) < MIN_STEPS:
            continue
        middle = int(median(gaps))
        error = int(median([abs(g - middle) for g in gaps])) + 50_000_000
        if abs(middle) > max(WORTH_NS, 3 * error):
            found[host] = (middle, error)
    return found


def describe(clock: Clock) -> tuple[dict[str, Any], ...]:
    """Offsets as the report states them."""
    return tuple(
        {"host": host, "offset_ms": round(offset / 1e6, 1), "error_ms": round(error / 1e6, 1)}
        for host, (offset, error) in sorted(clock.offsets.items())
    )
