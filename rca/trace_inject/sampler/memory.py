"""Memory of the host: /proc/meminfo, and the kills that /proc/vmstat counts. Source: proc(5), Documentation/filesystems/proc.rst."""

from __future__ import annotations

from rca.trace_inject.sampler._place import Place, Values

KIBI = 1024
LEVELS = {"MemAvailable": "mem.available", "MemTotal": "mem.total", "MemFree": "mem.free", "Shmem": "mem.shared"}


def read(place: Place) -> Values:
    """Bytes, and a counter of kills."""
    found: Values = {}
    for line in place.text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name in LEVELS:
            found["", LEVELS[name]] = int(rest.split()[0]) * KIBI
    for line in place.text("/proc/vmstat").splitlines():
        if line.startswith("oom_kill "):
            found["", "mem.oom_kills"] = int(line.split()[1])
    return found
