"""`vmstat -t N`: two header rows, then a row per interval; the columns go by the header, the last may be a time in the zone that heads it.

The first row is an average since boot. Source: vmstat(8).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> lines = SAMPLE.splitlines()
>>> table = Table(lines[0], (1, 0, ""), found)
>>> [table.feed(line, (2, 0, line)) for line in lines[1:]]
[True, True, True]
>>> sorted((r[3], r[4]) for r in found.rows() if r[3] in ("cpu.runnable", "cpu.steal")), found.rows()[0][0], found.zoned
([('cpu.runnable', 18.0), ('cpu.steal', 1.0)], 1791637427000000000, True)
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples
from rca.ingest.times import read as read_time

SAMPLE = """\
procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu----- -----timestamp-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 UTC
21  1      0 1488449830 812344 187000000    0    0   471  2751 41000 89000 18  3 79  0  0 2026-10-10 13:00:31
18  1      0 1488449830 812344 187000000    0    0   471  2751 41000 89000 18  3 79  0  1 2026-10-10 13:03:47"""

START = re.compile(r"procs -{2,}(?:memory|\s?-)|\s{0,6}r\s{1,6}b\s{1,9}swpd\s{1,9}free\s")
PRINTED = {"r": "runnable", "b": "blocked", "id": "cpu_idle", "st": "cpu_steal"}


class Table:
    """One run of the tool."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.names, self.rows = found, text.split() if text.split()[:2] == ["r", "b"] else [], 0
        self.zone = ""

    def feed(self, text: str, at: At) -> bool:
        """Take a header or a row."""
        fields = text.split()
        if text.startswith("procs "):
            return True
        if fields[:2] == ["r", "b"]:
            again, self.names = bool(self.names), [f for f in fields if f.islower()]
            self.zone = fields[-1] if not fields[-1].islower() else ""
            self.rows = max(self.rows, again)
            return True
        if not fields or not fields[0].isdecimal() or len(fields) < len(self.names):
            return False
        rest = " ".join(fields[len(self.names) :])
        if rest and (stamp := read_time(rest)) and stamp[0]:
            self.found.stamp = stamp[0]
            self.found.zoned = stamp[0].has_zone or self.zone in ("UTC", "GMT")
        self.rows += 1
        if self.rows == 1:
            return True  # since boot
        for name, value in zip(self.names, fields, strict=False):
            if name in PRINTED:
                self.found.add(PRINTED[name], value, at)
        return True
