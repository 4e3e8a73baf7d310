"""Disks: mean time of a request between two samples, and time with requests in flight. Source: Documentation/admin-guide/iostats.rst (/proc/diskstats)."""

from __future__ import annotations

import re

from rca.trace_inject.sampler._place import Place, Values, subject

NO_DISK = re.compile(r"(?:loop|ram|zram|sr|fd|dm-|md)\d|(?:sd[a-z]{1,3}|vd[a-z]{1,2}|xvd[a-z]{1,2}|hd[a-z])\d|nvme\d+n\d+p\d|mmcblk\d+(?:p|boot)\d")
MOST = 64


def read(place: Place) -> Values:
    """Milliseconds a request, where there was one; seconds since boot."""
    found: Values = {}
    before = place.memory
    for line in place.text("/proc/diskstats").splitlines()[: 4 * MOST]:
        words = line.split()
        if len(words) < 14 or NO_DISK.match(words[2]):
            continue
        name = words[2]
        reads, reading_ms, writes, writing_ms, busy_ms = (int(words[i]) for i in (3, 6, 7, 10, 12))
        if reads + writes == 0:
            continue
        count, spent = reads + writes, reading_ms + writing_ms
        about = subject(device=name)
        found[about, "disk.io_time_s"] = busy_ms / 1e3
        last_count, last_spent = before.get(name, (count, spent))
        if count > last_count:
            found[about, "disk.await_ms"] = round((spent - last_spent) / (count - last_count), 2)
        before[name] = count, spent
    return found
