"""Memory and load by process: the rows of `top -b` and `ps aux`.

Source: top(1), ps(1).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> table = Table("    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND", (1, 0, ""), found)
>>> table.feed("  23790 root      20   0  812.3g 611.2g  55120 S  99.0  30.1  81:02.11 python", (2, 0, ""))
True
>>> [(dict(r[2])["pid"], r[3], round(r[4] / 2**30, 1)) for r in found.rows()]
[('23790', 'mem.process', 611.2)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples
from rca.ingest.samples.memory import size_of

START = re.compile(r"\s{0,9}PID USER\s.{0,60}\bRES\b|USER\s+PID\s+%CPU\s+%MEM\s+VSZ\s+RSS|top - .{0,80}load average: |Tasks:\s+\d+ total")
LOAD = re.compile(r"load average: (?P<one>[\d.]{1,9}),")
CPU = re.compile(r"%?Cpu\(s\):.{0,60}?(?P<idle>[\d.]{1,6})[% ]?id.{0,60}?(?P<steal>[\d.]{1,6})[% ]?st")
ROWS = 400


class Table:
    """One printing."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.names, self.rows = found, [], 0
        self.feed(text, at)

    def feed(self, text: str, at: At) -> bool:
        """Take a line."""
        if match := LOAD.search(text):
            self.found.add("load1", match["one"], at)
            return True
        if text.startswith("Tasks:"):
            return True
        if match := CPU.match(text):
            self.found.add("cpu_idle", match["idle"], at)
            self.found.add("cpu_steal", match["steal"], at)
            return True
        if START.match(text):
            self.names = text.split()
            return True
        fields = text.split(None, len(self.names) - 1) if self.names else []
        if not fields or len(fields) < len(self.names):
            return not text
        row = dict(zip(self.names, fields, strict=True))
        if not row["PID"].isdecimal():
            return False
        self.rows += 1
        if self.rows <= ROWS and (size := size_of(row.get("RES") or row.get("RSS") or "", "k")) is not None and size >= 1 << 30:
            self.found.add("rss", size, at, (("pid", row["PID"]), ("process", row[self.names[-1]][:60])))
        return True
