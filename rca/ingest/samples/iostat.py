"""`iostat -x -t N`: processors, then a row per block device; the first report tells of the time since boot.

Source: iostat(1).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> for report in range(2):
...     table = Table("Device            r/s     w/s  r_await w_await  %util", (1, 0, ""), found)
...     table.feed("nvme0n1          0.10    9.00     0.40   812.0   99.9", (2, 0, ""))
True
True
>>> [(r[3], r[4]) for r in found.rows()]
[('disk.await_ms', 0.4), ('disk.await_ms', 812.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

START = re.compile(r"avg-cpu:\s+%user|Device:?\s+(?:rrqm/s|r/s|tps|rkB/s)")
USED = ("await", "r_await", "w_await", "f_await")


class Table:
    """The processors or the devices of one report."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        self.names = text.replace("Device:", "Device").split()
        kind = self.names[0]
        found.seen[kind] = found.seen.get(kind, 0) + 1
        self.first = found.seen[kind] == 1

    def feed(self, text: str, at: At) -> bool:
        """Take a row."""
        fields = text.split()
        if not fields:
            return True
        if len(fields) < len(self.names) - 1 or START.match(text):
            return False
        if self.first:
            return True
        if self.names[0] == "avg-cpu:":
            row = dict(zip(self.names[1:], fields, strict=False))
            for name, printed in (("%idle", "cpu_idle"), ("%steal", "cpu_steal")):
                if name in row:
                    self.found.add(printed, row[name], at)
            return True
        row = dict(zip(self.names, fields, strict=False))
        for name in USED:
            if name in row:
                self.found.add(name, row[name], at, (("device", fields[0][:60]),))
        return True
