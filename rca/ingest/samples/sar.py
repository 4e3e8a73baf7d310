"""`sar`: the day stands in the first line of the file, rows have a clock only, in twelve hours under some locales.

Source: sar(1). Rates per second of errors become counts again.

>>> from rca.ingest.samples._collect import Samples
>>> from rca.ingest.times import of
>>> found = Samples("x")
>>> found.day = of("11/20/2026 00:00:00")
>>> table = Table("11:24:01 PM   runq-sz  plist-sz   ldavg-1   ldavg-5  ldavg-15   blocked", (1, 0, ""), found)
>>> table.feed("11:25:01 PM       380      4100     391.2     120.0      60.0         2", (2, 0, "")), table.feed("12:00:01 AM 1 4100 391.2 120.0 60.0 2", (2, 0, ""))
(True, True)
>>> [(r[0] // 10**9 % 172800, r[3], r[4]) for r in found.rows() if r[3] == "cpu.runnable"]
[(170701, 'cpu.runnable', 380.0), (1, 'cpu.runnable', 1.0)]
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.samples._collect import At, Samples
from rca.ingest.times import SECOND

CLOCK = re.compile(r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?: (?P<half>[AP]M))?\s+")
HEADS = ("CPU", "runq-sz", "kbmemfree", "IFACE", "DEV", "tps", "proc/s", "atmptf/s", "active/s", "pgpgin/s", "kbswpfree", "call/s", "pswpin/s", "dentunusd")
START = re.compile(rf"\d\d:\d\d:\d\d(?: [AP]M)?\s+(?:{'|'.join(re.escape(h) for h in HEADS)})\s")
DAY_NS = 86400 * SECOND
GAUGES = {"%idle": "cpu_idle", "%steal": "cpu_steal", "runq-sz": "runnable", "ldavg-1": "load1", "blocked": "blocked", "await": "await"}
KILOBYTES = {"kbavail": "memavailable"}
RATES = {"rxerr/s": "rx_errors", "txerr/s": "tx_errors", "rxdrop/s": "rx_dropped", "txdrop/s": "tx_dropped", "retrans/s": "retranssegs"}


class Table:
    """The rows below one header."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        self.names = CLOCK.sub("", text, count=1).split()
        self.before: int | None = None
        self.sums: dict[tuple, float] = {}
        self._moment(text)

    def _moment(self, text: str) -> bool:
        match = CLOCK.match(text)
        if match is None:
            return False
        hour = int(match["h"]) % 12 + 12 * (match["half"] == "PM") if match["half"] else int(match["h"])
        clock = (hour * 3600 + int(match["m"]) * 60 + int(match["s"])) * SECOND
        day = self.found.day
        if day is not None:
            if self.before is not None and clock < self.before - DAY_NS // 2:
                self.found.day = day = day._replace(ns=day.ns + DAY_NS)
            self.found.stamp = day._replace(ns=day.ns + clock)
        self.gap = 0 if self.before is None else max(0, clock - self.before)
        self.before = clock
        return True

    def feed(self, text: str, at: At) -> bool:
        """Take a row; averages at the end are none."""
        if not text:
            return True
        if text.startswith("Average:"):
            return True
        if START.match(text):
            return False
        since, before = self.before, self.found.stamp
        if not self._moment(text):
            return False
        if self.before == since and before is not None:
            self.gap = self.kept
        self.kept = self.gap
        values = CLOCK.sub("", text, count=1).split()
        row = dict(zip(self.names, values, strict=False))
        if row.get("CPU", "all") != "all":
            return True
        about: tuple[tuple[str, Any], ...] = tuple(("device", row[n][:30]) for n in ("IFACE", "DEV") if n in row)
        for name, printed in GAUGES.items():
            if name in row:
                self.found.add(printed, row[name], at, about)
        for name, printed in KILOBYTES.items():
            if row.get(name, "").isdecimal():
                self.found.add(printed, float(row[name]) * 1024, at, about)
        for name, printed in RATES.items():
            if name in row:
                try:
                    self.sums[about, name] = self.sums.get((about, name), 0.0) + float(row[name]) * self.gap / SECOND
                except ValueError:
                    continue
                self.found.add(printed, self.sums[about, name], at, about)
        return True

    kept = 0
