"""The job's own processes on this host, known by the journals that they write: resident memory. Source: proc(5), /proc/PID/statm."""

from __future__ import annotations

import os
import re
import socket
import time

from rca.trace_inject.identity import UNSAFE
from rca.trace_inject.sampler._place import Place, Values, subject

JOURNAL = re.compile(r"(.{1,200})-(\d{1,8})\.rca\.jsonl$")
MOST = 64
AGAIN_S = 1.0  # between two looks at the folder


def pids(place: Place) -> list[int]:
    """Processes of this host that have a journal and live."""
    now = time.monotonic()
    due, known = place.memory.get("pids", (0.0, []))
    if now >= due:
        mine = UNSAFE.sub("_", socket.gethostname())[:80]
        try:
            names = os.listdir(place.folder) if place.folder else []
        except OSError:
            names = []
        found = [match for name in names if (match := JOURNAL.match(name)) and match[1].endswith(f"-{mine}") and not name.startswith("sampler-")]
        known = sorted(int(match[2]) for match in found)[-MOST:]
        place.memory["pids"] = now + AGAIN_S, known
    return [pid for pid in known if os.path.exists(place.path(f"/proc/{pid}"))]


def read(place: Place) -> Values:
    """Bytes."""
    found: Values = {}
    for pid in pids(place):
        words = place.text(f"/proc/{pid}/statm").split()
        if len(words) > 1 and words[1] != "0":  # of a process that ended and waits for its parent nothing is left
            found[subject(pid=pid), "mem.process"] = int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    return found
