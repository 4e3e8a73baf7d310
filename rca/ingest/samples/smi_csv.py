"""`nvidia-smi --query-gpu=... --format=csv -l N`: a header names the columns, every row is one device at one time.

Source: nvidia-smi(1), `--help-query-gpu`.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> table = Table("timestamp, index, pci.bus_id, memory.used [MiB], ecc.errors.uncorrected.volatile.total", (1, 0, ""), found)
>>> table.feed("7, 00000000:DB:00.0, 31208 MiB, 1", (2, 0, ""))
True
>>> [(r[2][:2], r[3], r[4]) for r in found.rows()]
[((('gpu', 7), ('bus_id', '00000000:DB:00.0')), 'gpu.mem_used', 32723959808.0), ((('gpu', 7), ('bus_id', '00000000:DB:00.0')), 'gpu.ecc_uncorrected', 1.0)]
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.samples._collect import At, Samples

START = re.compile(r"(?:timestamp|index|name|uuid|gpu_uuid|pci\.bus_id|gpu_bus_id), ?.{0,2000}(?:utilization\.|memory\.|temperature\.|ecc\.|clocks|pci\.|power\.|remapped_rows|pstate)")


class Table:
    """The rows below one header. The time, if it is the first column, has been taken off them."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        names = [name.strip().split(" [", 1)[0] for name in text.strip().split(",")]
        self.names = names[1:] if names[0] == "timestamp" else names

    def feed(self, text: str, at: At) -> bool:
        """Take a row, or the header again."""
        values = [v.strip() for v in text.strip().split(",")]
        if len(values) == len(self.names) + 1 and values[0] == "timestamp":
            return True
        if len(values) != len(self.names):
            return False
        row = dict(zip(self.names, values, strict=True))
        about: list[tuple[str, Any]] = []
        if (index := row.get("index", "")).isdecimal():
            about.append(("gpu", int(index)))
        if bus := row.get("pci.bus_id") or row.get("gpu_bus_id"):
            about.append(("bus_id", bus[:40]))
        elif uuid := row.get("uuid") or row.get("gpu_uuid"):
            about.append(("uuid", uuid[:60]))
        for name, value in row.items():
            self.found.add(name, value, at, tuple(about))
        return True
