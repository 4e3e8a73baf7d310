"""The job's own processes on this host, known by the journals that they write: resident memory, and threads that the kernel does not let go.

A thread is stuck if it was in uninterruptible sleep (state D) at two samples and did not run in between: one that reads from a slow disk is often found in
that state, but runs between two reads. Source: proc(5), /proc/PID/statm, /proc/PID/task/TID/stat, schedstat (its third number: how often it was given
a processor) and wchan (the function of the kernel in which it waits).
"""

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
THREADS, THREADS_ALL = 256, 4096  # looked at, of one process and of all together
WCHANS = 4  # told of one process
SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s{0,9}(\d{1,20})", re.M)
NOWHERE = ("", "0")


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
    """Bytes, and numbers of threads."""
    found: Values = {}
    before: dict[tuple[int, int], str] = place.memory.get("asleep", {})
    asleep: dict[tuple[int, int], str] = {}  # threads in state D, and how often each had run by then
    living = pids(place)
    for pid in living:
        words = place.text(f"/proc/{pid}/statm").split()
        if len(words) < 2 or words[1] == "0":  # of a process that ended and waits for its parent nothing is left
            continue
        found[subject(pid=pid), "mem.process"] = int(words[1]) * os.sysconf("SC_PAGE_SIZE")
        mine = {(pid, thread): _runs(place, pid, thread) for thread in _threads(place, pid, THREADS_ALL // len(living)) if _state(place.text(f"/proc/{pid}/task/{thread}/stat")) == "D"}
        stuck = [thread for key, runs in mine.items() if before.get(key) == runs for thread in key[1:]]
        found[subject(pid=pid), "proc.stuck_threads"] = len(stuck)
        waits: dict[str, int] = {}
        for thread in stuck:
            where = place.text(f"/proc/{pid}/task/{thread}/wchan").strip()[:80]
            if where not in NOWHERE and (where in waits or len(waits) < WCHANS):
                waits[where] = waits.get(where, 0) + 1
        found |= {(subject(pid=pid, wchan=where), "proc.stuck_in"): count for where, count in waits.items()}
        asleep |= mine
    place.memory["asleep"] = asleep
    return found


def _threads(place: Place, pid: int, share: int) -> list[int]:
    """The first thread and the newest ones: a program starts its pools early, and a thread that saves when there is something to save."""
    found = sorted(int(name) for name in place.names(f"/proc/{pid}/task") if name.isdecimal())
    most = max(2, min(THREADS, share))
    return found if len(found) <= most else [found[0], *found[1 - most :]]


def _state(stat: str) -> str:
    """The letter of a thread's state; its name before may hold anything.

    >>> _state("7 (a) b (S) c) D 1 7 7"), _state("")
    ('D', '')
    """
    return stat.rpartition(")")[2].strip()[:1]


def _runs(place: Place, pid: int, thread: int) -> str:
    """How often it has run so far, or on a kernel that does not count that, how often it stopped running."""
    here = f"/proc/{pid}/task/{thread}"
    return " ".join(place.text(f"{here}/schedstat").split()[2:3]) or " ".join(SWITCHES.findall(place.text(f"{here}/status")))
