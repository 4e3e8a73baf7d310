"""Load of the host: /proc/loadavg, `uptime`, and the number of processors beside them.

Source: proc(5), uptime(1), lscpu(1).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> for line in ("0.20 0.18 0.12 1/80 11206", " 11:24:10 up 3 days,  2:01,  2 users,  load average: 391.20, 0.18, 0.12", "CPU(s):              192"):
...     table = Table(line, (1, 0, ""), found)
>>> [(r[3], r[4]) for r in found.rows()]
[('cpu.load1', 0.2), ('cpu.load1', 391.2), ('cpu.cores', 192.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

START = re.compile(r"(?P<one>\d{1,6}\.\d\d) \d{1,6}\.\d\d \d{1,6}\.\d\d \d{1,7}/\d{1,7} \d{1,8}$|\s{0,3}(?:\d\d:\d\d:\d\d )?up .{1,60}load average: (?P<up>\d{1,6}\.\d\d),|CPU\(s\):\s+(?P<cores>\d{1,5})$|nproc\s?[:=]\s?(?P<nproc>\d{1,5})$")


class Table:
    """One line."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        match = START.match(text)
        if match is None:
            return
        if load := match["one"] or match["up"]:
            found.add("load1", load, at)
        elif cores := match["cores"] or match["nproc"]:
            found.add("cores", cores, at)

    def feed(self, text: str, at: At) -> bool:
        """There is nothing more."""
        return False
