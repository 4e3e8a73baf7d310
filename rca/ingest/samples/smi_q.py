"""`nvidia-smi -q`: an indented tree per device. Keys repeat, so the path above a key is part of its name.

Source: nvidia-smi(1); the parts of the tree changed their names over drivers ("Clocks Throttle Reasons", "Clocks Event Reasons").

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> lines = SAMPLE.splitlines()
>>> table = Table(lines[0], (1, 0, ""), found)
>>> all(table.feed(line, (2, 0, line)) for line in lines[1:])
True
>>> [(r[2][0][1], r[3], r[4]) for r in found.rows()]
[('00000000:3B:00.0', 'gpu.ecc_uncorrected', 2.0), ('00000000:3B:00.0', 'gpu.remap_failed', 1.0), ('00000000:3B:00.0', 'gpu.slow_hot_hw', 1.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

SAMPLE = """\
==============NVSMI LOG==============
Attached GPUs                             : 8
GPU 00000000:3B:00.0
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 2
    Remapped Rows
        Remapping Failure Occurred        : Yes
    Clocks Event Reasons
        HW Slowdown                       : N/A
            HW Thermal Slowdown           : Active"""

START = re.compile(r"=+NVSMI LOG=+")
DEVICE = re.compile(r"GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
KEY = re.compile(r"(?P<indent>\s*)(?P<key>[A-Za-z][\w .()/-]{0,60}?)\s*(?::\s?(?P<value>.*))?$")


class Table:
    """One run of the tool over all devices."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.bus = found, ""
        self.above: list[tuple[int, str]] = []

    def feed(self, text: str, at: At) -> bool:
        """Take a line of the tree."""
        if not text:
            return True
        if match := DEVICE.match(text):
            self.bus, self.above = match["bus"], []
            return True
        match = KEY.match(text)
        if match is None or START.match(text):
            return START.match(text) is not None
        indent, key, value = len(match["indent"]), match["key"].lower(), match["value"]
        while self.above and self.above[-1][0] >= indent:
            self.above.pop()
        path = [k for _, k in self.above]
        if value and self.bus:
            self.found.add(self._name(path, key), value, at, (("bus_id", self.bus),))
        self.above.append((indent, key))
        return True

    @staticmethod
    def _name(path: list[str], key: str) -> str:
        if path and path[0].startswith("clocks") and "reasons" in path[0]:
            return f"clocks/{key}"
        if path and path[0] == "ecc errors":
            return f"ecc/{path[1]}/{key}" if len(path) > 1 else key
        return f"{path[-1]}/{key}" if path else key
