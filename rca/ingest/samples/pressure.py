"""Pressure stall information: `some avg10=... total=...` and `full ...`, of the host or of a control group.

Source: Documentation/accounting/psi.rst. Which resource a pair of lines is about is in the path before them, the command above, or the file's name.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("h1/pressure_io.txt")
>>> table = Table("some avg10=0.86 avg60=0.34 avg300=0.64 total=6408823", (1, 0, ""), found)
>>> table.feed("full avg10=0.00 avg60=0.00 avg300=0.00 total=4000000", (2, 0, ""))
True
>>> [(r[3], r[4]) for r in found.rows()]
[('psi.io_full_s', 4.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

START = re.compile(r"(?:==> )?(?P<path>\S{0,200}?(?P<resource>cpu|io|memory)(?:\.pressure)?)?(?: <==|:)?\s?(?:(?P<who>some|full) avg10=[\d.]{1,8} avg60=[\d.]{1,8} avg300=[\d.]{1,8} total=(?P<total>\d{1,20})$|(?<=<==)$)")
NAMED = re.compile(r"(?:pressure|psi)\W?_?(?:\w{0,12}_)?(cpu|io|memory)|(cpu|io|memory)(?:\.|_)?(?:pressure|psi)", re.I)
USED = {("io", "full"): "psi_io_full_us", ("memory", "full"): "psi_memory_full_us", ("cpu", "some"): "psi_cpu_some_us"}


class Table:
    """The two lines of one resource."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        match = START.match(text)
        named = NAMED.search(found.command) or NAMED.search(found.name.rsplit("/", 1)[-1])
        self.resource = (match["resource"] if match and match["resource"] else None) or (next(g for g in named.groups() if g).lower() if named else None)
        if match and match["who"]:
            self._take(match, at)

    def _take(self, match: re.Match[str], at: At) -> None:
        name = USED.get((match["resource"] or self.resource or "", match["who"]))
        if name:
            self.found.add(name, match["total"], at)

    def feed(self, text: str, at: At) -> bool:
        """Take the other line."""
        match = START.match(text) if text else None
        if match is None or not match["who"]:
            return False
        if match["resource"] is None and match["who"] == "some" and self.resource is None:
            return False
        self._take(match, at)
        return True
