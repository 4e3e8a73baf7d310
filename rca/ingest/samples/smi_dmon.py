"""`nvidia-smi dmon` and `pmon`: two header rows that begin with `#` and come again, then a row per device (and process). Columns go by the header.

Source: nvidia-smi(1), "Device Monitoring", "Process Monitoring".

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> lines = SAMPLE.splitlines()
>>> table = Table(lines[0], (1, 0, ""), found)
>>> all(table.feed(line, (2, 0, line)) for line in lines[1:])
True
>>> sorted((r[2][0][1], r[3], r[4]) for r in found.rows() if r[3].startswith("gpu.ecc"))
[(3, 'gpu.ecc_corrected', 0.0), (3, 'gpu.ecc_uncorrected', 2.0)]
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.samples._collect import At, Samples
from rca.ingest.times import of

SAMPLE = """\
# gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk sbecc dbecc   pci rxpci txpci
# Idx     W     C     C     %     %     %     %   MHz   MHz  errs  errs  errs  MB/s  MB/s
    3    73    37     -    29     4     0     0  2505   875     0     2     0     -     -"""

START = re.compile(r"#\s?(?:Date\s{1,9}Time\s{1,9}|Time\s{1,9})?gpu\s")
USED = frozenset({"gtemp", "sm", "pclk", "sbecc", "dbecc", "pci", "fb"})


class Table:
    """The rows below one header. A date and time before them have been taken off."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        self._header(text)

    def _header(self, text: str) -> None:
        names = text.lstrip("# ").split()
        self.clock = names[0] == "Time"
        self.names = [n for n in names if n not in ("Date", "Time")]

    def feed(self, text: str, at: At) -> bool:
        """Take a header or a row."""
        if not text:
            return True
        if text.startswith("#"):
            if START.match(text):
                self._header(text)
            return True
        fields = text.split()
        if len(fields) == len(self.names) + 2 and len(fields[0]) == 8 and (stamp := of(f"{fields[0]} {fields[1]}")):  # -o DT
            self.found.stamp, self.found.zoned = stamp, False
            fields = fields[2:]
        fields = fields[self.clock :]
        if len(fields) < len(self.names) or not fields[0].isdecimal():
            return False
        row = dict(zip(self.names, fields, strict=False))
        about: list[tuple[str, Any]] = [("gpu", int(fields[0][:4]))]
        if row.get("pid", "-").isdecimal():
            about += [("pid", row["pid"]), ("process", row.get("command", "")[:60])]
        elif "pid" in row:
            return True
        for name in USED & row.keys():
            self.found.add(name, row[name], at, tuple(about))
        return True
