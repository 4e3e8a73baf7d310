"""Processors: how many, how many tasks run or are stuck in the kernel. Source: proc(5), /proc/loadavg and /proc/stat."""

from __future__ import annotations

import os

from rca.trace_inject.sampler._place import Place, Values

STAT = {"procs_running": "cpu.runnable", "procs_blocked": "cpu.blocked"}


def read(place: Place) -> Values:
    """Tasks."""
    found: Values = {("", "cpu.cores"): os.cpu_count() or 1}
    if words := place.text("/proc/loadavg").split():
        found["", "cpu.load1"] = float(words[0])
    for line in place.text("/proc/stat").splitlines():
        name, _, rest = line.partition(" ")
        if name in STAT:
            found["", STAT[name]] = int(rest)
    return found
