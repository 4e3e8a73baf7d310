"""Time in which tasks waited for memory, disk or processors: /proc/pressure. Source: Documentation/accounting/psi.rst (microseconds)."""

from __future__ import annotations

import re

from rca.trace_inject.sampler._place import Place, Values

TOTAL = re.compile(r"(some|full) [^\n]{0,100}total=(\d{1,20})")
NAMES = {("memory", "full"): "psi.mem_full_s", ("io", "full"): "psi.io_full_s", ("cpu", "some"): "cpu.waiting_s"}


def read(place: Place) -> Values:
    """Seconds since boot."""
    return {
        ("", NAMES[kind, which]): int(total) / 1e6
        for kind in ("memory", "io", "cpu")
        for which, total in TOTAL.findall(place.text(f"/proc/pressure/{kind}"))
        if (kind, which) in NAMES
    }
