"""An `nvidia-smi --query-gpu=... --format=csv` loop: a header names the columns, every row is one device at one time.

Only changes become events: a slow-down that begins, a count of uncorrectable errors that rises, a failed remap. What stood in the first row
may be years old. A power cap set by software is no fault. Source: nvidia-smi(1), `--help-query-gpu`.

>>> block = Query(SAMPLE.splitlines()[0])
>>> for row in SAMPLE.splitlines()[1:]:
...     print([(str(kind), place["gpu"], reason) for kind, place, reason in block.feed(row)])
[]
[('device.throttled', 1, 'hw_thermal_slowdown')]
[]
>>> block.feed("program output") is None
True
"""

from __future__ import annotations

import re
from typing import Any

from rca.taxonomy import Kind

SAMPLE = """\
timestamp, index, pci.bus_id, clocks.current.sm [MHz], clocks_event_reasons.hw_thermal_slowdown
1, 00000000:43:00.0, 1905 MHz, Not Active
1, 00000000:43:00.0, 345 MHz, Active
1, 00000000:43:00.0, 345 MHz, Active"""

STARTS = ("timestamp, ", "index, ", "name, ", "uuid, ", "pci.bus_id, ")  # asked first, of every line
HEADER = re.compile(r".{1,2000}\b(?:clocks_(?:event|throttle)_reasons|ecc\.errors|remapped_rows)\.")
SLOWED = re.compile(r"clocks_(?:event|throttle)_reasons\.((?:hw|sw)_(?:thermal_)?slowdown|hw_power_brake_slowdown)$")
COUNTED = re.compile(r"ecc\.errors\.uncorrected\.volatile\.total$")


def is_start(text: str) -> bool:
    """Whether this line is the header of such a loop."""
    return text.startswith(STARTS) and bool(HEADER.match(text))


class Query:
    """Reads the rows below one header. The time, if it is the first column, has been peeled off them."""

    def __init__(self, header: str) -> None:
        names = [name.split(" [", 1)[0] for name in header.strip().split(", ")]
        self.names = names[1:] if names[0] == "timestamp" else names
        self.before: dict[tuple[str | None, str], str] = {}

    def feed(self, text: str) -> list[tuple[Kind, dict[str, Any], str]] | None:
        """What changed for the worse in a row, as (kind, columns, reason); None where the line is no row of this table."""
        values = text.strip().split(", ")
        if len(values) != len(self.names):
            return None
        row = dict(zip(self.names, values, strict=True))
        index = row.get("index", "")
        place = {"gpu": int(index) if index.isdecimal() else None, "bus_id": row.get("pci.bus_id") or row.get("gpu_bus_id")}
        who = place["bus_id"] or index
        found: list[tuple[Kind, dict[str, Any], str]] = []
        for name, value in row.items():
            last = self.before.get((who, name))
            if (slowed := SLOWED.search(name)) and value == "Active" and last != "Active":
                found.append((Kind.DEVICE_THROTTLED, place, slowed[1]))
            elif COUNTED.search(name) and last is not None and last.isdecimal() and value.isdecimal() and int(value) > int(last):
                found.append((Kind.DEVICE_MEMORY_ERROR, place, "uncorrected"))
            elif name == "remapped_rows.failure" and value in ("Yes", "1") and last in ("No", "0"):
                found.append((Kind.DEVICE_MEMORY_ERROR, place, "remap_failed"))
            self.before[who, name] = value
        return found

    def finish(self) -> None:
        """Nothing is pending below the last row."""
