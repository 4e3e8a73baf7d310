"""Control groups of this process and of the job's: memory used, its limit, kills, and time without processor. Both versions.

A limit may stand at any level above: each level with one is told. Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
import posixpath

from rca.trace_inject.sampler._place import Place, Values, subject
from rca.trace_inject.sampler.processes import pids

FS = "/sys/fs/cgroup"
UNLIMITED = 1 << 60
LEVELS = 6  # from a process's own group upwards
MOST = 16


def read(place: Place) -> Values:
    """Bytes, counters, seconds."""
    known: dict[str, str] = place.memory.setdefault("groups", {})  # as the kernel names them -> folder; a group is followed when its last process is gone, too
    for pid in ("self", *pids(place)):
        for line in place.text(f"/proc/{pid}/cgroup").splitlines():
            _, controllers, group = line.split(":", 2)
            kinds = [""] if controllers == "" else sorted({"memory", "cpu"} & set(controllers.split(",")))
            for kind in kinds:
                for level in _upwards(group):
                    if len(known) < MOST and (folder := _folder(place, kind, level)):
                        known.setdefault(f"{kind}:{level}", folder)
    found: Values = {}
    for name, folder in list(known.items()):
        group = name.partition(":")[2]
        if not os.path.isdir(place.path(folder)):
            del known[name]
            continue
        found.update({(subject(group=group), quantity): value for quantity, value in (_memory(place, folder) | _processor(place, folder)).items()})
    return found


def _upwards(group: str) -> list[str]:
    """A group and those above it; the root has no limit, except as a container sees it."""
    found = [group]
    while group not in ("/", "") and len(found) < LEVELS:
        group = posixpath.dirname(group)
        found.append(group)
    return found


def _folder(place: Place, kind: str, group: str) -> str | None:
    mounts = (f"{FS}/{kind}", f"{FS}/{kind},cpuacct") if kind else (FS, f"{FS}/unified")
    return next((path for mount in mounts if os.path.isdir(place.path(path := posixpath.normpath(f"{mount}/{group}")))), None)


def _memory(place: Place, folder: str) -> dict[str, float]:
    used = next((v for file in ("memory.current", "memory.usage_in_bytes") if (v := place.number(f"{folder}/{file}")) is not None), None)
    limit = next((v for file in ("memory.max", "memory.limit_in_bytes") if (v := place.number(f"{folder}/{file}")) is not None), None)
    if used is None or limit is None or limit >= UNLIMITED:
        return {}  # without a limit of its own it tells nothing that the host and the processes do not
    found: dict[str, float] = {"mem.group_used": used, "mem.group_limit": limit}
    for file in ("memory.events", "memory.oom_control"):
        for line in place.text(f"{folder}/{file}").splitlines():
            if line.startswith("oom_kill "):
                found["mem.oom_kills"] = int(line.split()[1])
    return found


def _processor(place: Place, folder: str) -> dict[str, float]:
    """Seconds in which a quota kept the group's tasks from running."""
    for line in place.text(f"{folder}/cpu.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("throttled_usec", "throttled_time") and value.strip().isdecimal():
            seconds = int(value) / (1e6 if name == "throttled_usec" else 1e9)
            return {"cpu.throttled_s": seconds}  # a zero as well: from where it rises is the news
    return {}
