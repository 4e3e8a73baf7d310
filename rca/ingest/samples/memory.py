"""Memory of the host: /proc/meminfo, `free`, the summary of `top`.

Source: proc(5), free(1), top(1).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> table = Table("               total        used        free      shared  buff/cache   available", (1, 0, ""), found)
>>> table.feed("Mem:           2015Gi     1.9Ti        80Gi       1Gi        64Gi        96Gi", (2, 0, "")), Table("MemAvailable:   123 kB", (1, 0, ""), found) and None
(True, None)
>>> [(r[3], r[4] / 2**30) for r in found.rows() if r[3] == "mem.available"]
[('mem.available', 96.0), ('mem.available', 0.00011730194091796875)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

START = re.compile(r"(?P<name>MemTotal|MemAvailable|MemFree):\s+\d{1,15} kB|\s+total\s+used\s+free|(?P<unit>[KMGT]i?B) Mem ?:\s|Mem:\s+\d")
LINE = re.compile(r"(?P<name>[A-Z]\w{2,30}(?:\(\w+\))?):\s+(?P<value>\d{1,15})(?: kB)?$")
SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,3})?)(?P<unit>[KMGTP]?)(?:i?B?)$", re.I)
SCALE = {"": 1024.0, "b": 1.0, "k": 1024.0, "m": 1024.0**2, "g": 1024.0**3, "t": 1024.0**4, "p": 1024.0**5}
FLAG = re.compile(r"\bfree\b.{0,30}? -(?:\w{0,3}([bkmgt])|-(mebi|gibi|kibi|tebi|bytes|mega|giga))")
TOP = re.compile(r"(?P<unit>[KMGT])i?B (?P<what>Mem|Swap) ?:.{0,80}")
AVAILABLE = re.compile(r"(?P<value>[\d.]{1,18}) avail Mem")
TOTAL = re.compile(r"(?P<value>[\d.]{1,18}) total")
WANTED = frozenset({"memtotal", "memavailable", "memfree", "shmem"})


def size_of(text: str, unit: str) -> float | None:
    """Bytes of a size with or without a unit of its own.

    >>> size_of("96Gi", ""), size_of("12", "m"), size_of("x", "")
    (103079215104.0, 12582912.0, None)
    """
    match = SIZE.match(text)
    if match is None:
        return None
    return float(match["number"]) * SCALE[(match["unit"] or unit).lower()]


class Table:
    """One printing."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.names = found, []
        self.unit = ""
        if text.lstrip().startswith("total"):
            self.names = text.split()
            flag = FLAG.search(found.command)
            self.unit = "" if flag is None else (flag[1] or flag[2][0])
        else:
            self.feed(text, at)

    def feed(self, text: str, at: At) -> bool:
        """Take a row."""
        if (match := LINE.match(text)) and not self.names:
            if match["name"].lower() in WANTED:
                self.found.add(match["name"], float(match["value"]) * 1024, at)
            return True
        if text.startswith("Mem:") and self.names:
            values = dict(zip(self.names, text.split()[1:], strict=False))
            for column, printed in (("total", "memtotal"), ("available", "memavailable"), ("free", "memfree")):
                if (size := size_of(values.get(column, ""), self.unit)) is not None:
                    self.found.add(printed, size, at)
            return True
        if match := TOP.match(text):
            scale = SCALE[match["unit"].lower()]
            if match["what"] == "Mem" and (total := TOTAL.search(text)):
                self.found.add("memtotal", _scaled(total["value"], scale), at)
            if available := AVAILABLE.search(text):
                self.found.add("memavailable", _scaled(available["value"], scale), at)
            return True
        return text.startswith(("Swap:", "Total:", "-/+ buffers"))


def _scaled(text: str, scale: float) -> float:
    try:
        return float(text) * scale
    except ValueError:
        return 0.0
