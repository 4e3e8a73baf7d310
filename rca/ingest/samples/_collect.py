"""Where every reader puts what it finds: thinned series of samples, and the gaps it saw.

A series is what one tool printed under one name about one subject of one host. Of a level that does not change only the ends are kept, and of a
long series ever fewer points, so that an export of any size costs a bounded memory.
"""

from __future__ import annotations

import math
import re
from typing import Any

from rca.ingest.samples._names import table
from rca.ingest.times import Stamp, read

SERIES_MAX = 20_000  # series of one file: thousands of GPUs with ten quantities each
POINTS_MAX = 600  # of one series
TOTAL_MAX = 120_000  # samples of one file, some 30 MB
RAW_CUT = 240  # characters of the line that travel with a sample
LARGEST = 1e30  # beyond, a number is no measurement
ABSENT = frozenset({"", "-", "n/a", "[n/a]", "na", "[not supported]", "not supported", "unknown", "[unknown error]", "unknown error", "[insufficient permissions]", "nan"})
WORDS = {"yes": 1.0, "no": 0.0, "active": 1.0, "not active": 0.0, "enabled": 1.0, "disabled": 0.0, "up": 1.0, "down": 0.0}
NUMBER = re.compile(r"0x[0-9a-f]{1,16}|[-+]?(?:\d[\d.]{0,400}(?:e[-+]?\d{1,4})?|inf(?:inity)?)", re.I)
EPOCH = re.compile(r"(?<!\d)(1[5-9]\d{8})(?:\d{3})?(?!\d)")
DAY = re.compile(r"(?<!\d)(20[2-4]\d)-?(\d\d)-?(\d\d)[T_-](\d\d)[-:]?(\d\d)[-:]?(\d\d)(?!\d)")
Subject = tuple[tuple[str, Any], ...]
At = tuple[int | None, int, str]  # line, offset, raw


def number(text: str) -> float | None:
    """The number that a field begins with, words of state included; None where it holds none. May be infinite or NaN.

    >>> number("31133 MiB"), number("Not Active"), number("N/A"), number("0x08"), number("12.5%")
    (31133.0, 0.0, None, 8.0, 12.5)
    """
    low = text.strip().lower()
    if low in WORDS:
        return WORDS[low]
    found = NUMBER.match(low)
    try:
        return None if found is None else float(int(found[0], 16)) if found[0][:2] == "0x" else float(found[0])
    except (ValueError, OverflowError):
        return None


def moment_of(name: str) -> Stamp | None:
    """The time in a file's name, for a dump without one of its own.

    >>> moment_of("logs/dcgm-1788545988_h1.prom").ns, moment_of("node_20260904T184439.txt").has_zone, moment_of("step_000123.log")
    (1788545988000000000, False, None)
    """
    stem = name.rsplit("/", 1)[-1]
    if found := EPOCH.search(stem):
        return Stamp(int(found[1]) * 10**9, 500_000_000, True, True, False)
    if found := DAY.search(stem):
        stamp = read("{}-{}-{} {}:{}:{}".format(*found.groups()))
        return stamp[0] if stamp else None
    return None


class Samples:
    """The samples of one file. `shape` is what the file turned out to be."""

    def __init__(self, name: str, shape: str = "samples") -> None:
        self.name, self.shape = name, shape
        self.raw_cut = RAW_CUT
        self.stamp: Stamp | None = None  # of the lines that follow
        self.host: str | None = None
        self.zoned = self.timed = self.tabular = False
        self.asked: str | None = None  # the host that reports of one way were about
        self.command = ""  # whose output follows
        self.day: Stamp | None = None  # for tables that print a clock without a day
        self.shape_lines = 0
        self.seen: dict[str, int] = {}  # tables of a kind so far: the first of some tools tells of the time since boot
        self.server_clock = False  # times are those of the collecting server, not of the host that they speak of
        self.addresses: dict[str, str] = {}  # address -> host, as labels state it
        self.understood = 0  # bytes
        self.gaps: dict[str, int] = {}
        self._series: dict[tuple[str | None, Subject, str], list[tuple]] = {}
        self._kept = 0
        self._names: dict[str, Any] = {}

    def gap(self, what: str, count: int = 1) -> None:
        """Note something that could not be used."""
        self.gaps[what] = self.gaps.get(what, 0) + count

    def add(self, printed: str, value: str | float, at: At, subject: Subject = (), *, ns: int | None = None, host: str | None = None) -> bool:
        """Take one value under the name that a tool printed; False where nobody asks for that name."""
        known = self._names.get(printed, ABSENT)
        if known is ABSENT:
            known = self._names[printed] = table().get(printed.lower())
        if known is None:
            return False
        parsed: float | None
        if isinstance(value, str) and value.isdecimal() and len(value) < 30:
            parsed = float(value)
        elif isinstance(value, str):
            low = value.strip().lower()
            parsed = None if low in ABSENT else number(low)
            if parsed is None:
                if low not in ABSENT and low not in ("nan", "+nan"):
                    self.gap("values that are no numbers")
                elif "nan" in low:
                    self.gap("values that are NaN")
                return True
        else:
            parsed = value
        if not math.isfinite(parsed) or abs(parsed) > LARGEST:
            self.gap("values that are NaN, infinite or absurdly large")
            return True
        name, factor = known
        if ns is None and self.stamp is not None:
            ns = self.stamp.ns
        key = (host or self.host, (*subject, ("metric", printed)), name)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= SERIES_MAX:
                self.gap("series beyond the limit")
                return True
            series = self._series[key] = []
        value = parsed * factor
        point = (ns, value, at[0], at[1], at[2][: self.raw_cut])
        if len(series) > 1 and series[-1][1] == value == series[-2][1]:
            series[-1] = point
            return True
        series.append(point)
        self._kept += 1
        if len(series) > POINTS_MAX:
            self._thin(series)
        if self._kept > TOTAL_MAX:
            for longest in sorted(self._series.values(), key=len)[-max(1, len(self._series) // 4) :]:
                if len(longest) > 8:
                    self._thin(longest)
        return True

    def _thin(self, series: list[tuple]) -> None:
        """Drop every second point of the older half; what stands out from both neighbours stays."""
        half = len(series) // 2
        kept = [p for i, p in enumerate(series[:half]) if i % 2 == 0 or i in (1, half - 1) or _peak(series[i - 1][1], p[1], series[i + 1][1])]
        self._kept -= half - len(kept)
        if len(kept) > half * 9 // 10:  # a saw: nothing but peaks
            self._kept -= len(kept) - len(kept[::2])
            kept = kept[::2]
        series[:half] = kept

    def rows(self) -> list[tuple]:
        """All samples: `(time_ns, host, subject, name, value, line, offset, raw)`."""
        return [(p[0], host, subject, name, *p[1:]) for (host, subject, name), series in self._series.items() for p in series]

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        return not self._series

    def last_ns(self) -> int | None:
        """The latest stated time."""
        return max((p[0] for s in self._series.values() for p in s[-1:] if p[0] is not None), default=None)


def _peak(before: float, value: float, after: float) -> bool:
    return (value - before) * (after - value) < 0 and abs(value - before) > 4 * abs(after - before) + 1e-9
