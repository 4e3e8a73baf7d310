"""Shared host: what the kernel, its counters and its devices report acts on the processes that run there."""

from __future__ import annotations

import re

from rca.correlate.progress import LEADERS
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

CAUSES = frozenset({
    Kind.KILLED_BY_KERNEL, Kind.UNINTERRUPTIBLE, Kind.CPU_THROTTLED, Kind.LINK_DOWN, Kind.PACKET_LOSS, Kind.NIC_FAULT, Kind.STORAGE_HANG,
    Kind.HUNG_TASK, Kind.READ_ONLY, Kind.IO_ERROR, Kind.DEVICE_LOST, Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_HANG, Kind.DEVICE_LINK_ERROR,
    Kind.HOST_DOWN, Kind.SHM_EXHAUSTED, Kind.HOST_OOM, Kind.DEVICE_THROTTLED,
})  # fmt: skip
DEVICE = frozenset({Kind.DEVICE_LOST, Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_HANG, Kind.DEVICE_LINK_ERROR})
NETWORK = frozenset({Kind.LINK_DOWN, Kind.PACKET_LOSS, Kind.NIC_FAULT})
#: Between one process, its device and its files: no wire takes part.
LOCAL = frozenset({Kind.DEVICE_IPC, Kind.DEVICE_OOM, Kind.DEVICE_ASSERT, Kind.DEVICE_ILLEGAL_ACCESS, Kind.CHECKPOINT_MISMATCH, Kind.IMPORT_FAILED, Kind.NON_FINITE})
STORAGE = frozenset({Kind.STORAGE_HANG, Kind.READ_ONLY, Kind.IO_ERROR})
STORAGE_EFFECTS = frozenset({
    Kind.SAVE_OPEN, Kind.WRITE_FAILED, Kind.NO_SPACE, Kind.READ_ONLY, Kind.IO_ERROR, Kind.CHECKPOINT_INVALID, Kind.MISSING_FILE, Kind.RANK_SILENT,
    Kind.UNINTERRUPTIBLE, Kind.COLLECTIVE_TIMEOUT, Kind.LOADER_TIMEOUT, Kind.CORRUPT_DATA, Kind.RANK_OUTLIER, Kind.RPC_TIMEOUT, Kind.PERMISSION,
})  # fmt: skip
SLOW_EFFECTS = frozenset({Kind.STEPS_SLOWED, Kind.RANK_SILENT, Kind.COLLECTIVE_TIMEOUT, Kind.RPC_TIMEOUT})
#: Faults of one host that are one incident: the first says what the job met, the second what the device or the mount said on the way there.
NAMES = frozenset({
    (Kind.LINK_DOWN, Kind.NIC_FAULT), (Kind.LINK_DOWN, Kind.NIC_ERRORS_ROSE), (Kind.READ_ONLY, Kind.STORAGE_HANG), (Kind.UNREACHABLE, Kind.STORAGE_HANG), (Kind.UNREACHABLE, Kind.NIC_FAULT), (Kind.STORAGE_HANG, Kind.HUNG_TASK),
    (Kind.DEVICE_THROTTLED, Kind.RANK_SLOW), (Kind.DEVICE_THROTTLED, Kind.STEPS_SLOWED),
})  # fmt: skip
FIRST = frozenset(first for first, _ in NAMES)
INCIDENT_NS = 600 * 10**9
NEVER = frozenset({Kind.FINISHED, Kind.STARTED, Kind.SAVED, Kind.LOADED, Kind.STACK_DUMP})
HALF_HOUR_NS = 1800 * 10**9
ZONE_SLACK_NS = 15 * 10**9
JOB_NAMES = re.compile(r"python|^pt_|^ray|torch|train|deepspeed|accelerate|vllm|sglang", re.I)
ENGINE_NAMES = re.compile(r"^ray|vllm|sglang|^pt_", re.I)
AFTER_NS = 2_000_000_000  # kernel clocks have whole seconds, and `dmesg -T` drifts


def build(view: View) -> list[Edge]:
    """Edges from a host's event to what befell the processes of that host, by pid where the kernel names one."""
    found = []
    for cause in view.events:
        if cause.kind not in CAUSES and cause.kind not in FIRST:
            continue
        for effect in view.events:
            if effect.event_id != cause.event_id and effect.kind not in NEVER and _acts(cause, effect, view):
                found.append(Edge(cause.event_id, effect.event_id, "host"))
    return found


def _acts(cause: Event, effect: Event, view: View) -> bool:
    if cause.kind == Kind.HOST_DOWN and effect.kind == Kind.NIC_FAULT and effect.attrs.get("peer") and effect.host != cause.host:
        return not cause.attrs.get("outside")  # whoever sent to a host that is down gets no answer: its own adapter is sound
    if (cause.kind, effect.kind) in NAMES and not (cause.attrs.get("outside") or cause.attrs.get("recovered")) and _same_host(cause, effect):
        return True
    if cause.kind == Kind.STORAGE_HANG and effect.kind == Kind.IO_ERROR and effect.source != cause.source and _same_host(cause, effect):
        return True  # what a program reads from a server that does not answer ends in EIO
    if (cause.kind, effect.kind) == (Kind.IO_ERROR, Kind.STORAGE_HANG) and effect.source == cause.source and _same_host(cause, effect):
        return True  # while of one disk the kernel says both
    if (cause.kind == Kind.STORAGE_HANG and effect.kind == Kind.READ_ONLY) or cause.attrs.get("outside") or (effect.kind in CAUSES and effect.rank is None):
        return False
    if cause.kind == effect.kind and cause.host is None and cause.source is not None:
        return False  # who tells of it without a host tells what a worker told
    if cause.kind == Kind.DEVICE_THROTTLED and not (effect.kind in SLOW_EFFECTS or "Timeout" in str(effect.attrs.get("exception"))):
        return False  # a slow device breaks nothing; it only lets somebody's patience run out
    if cause.kind in NETWORK and effect.kind in LOCAL:
        return False
    if cause.kind in STORAGE and not (effect.kind in STORAGE_EFFECTS or effect.attrs.get("exception") == "OSError"):
        return False
    if cause.host and effect.host and cause.host != effect.host:
        return False
    late = cause.time_ns is not None and effect.time_ns is not None and cause.time_ns > effect.time_ns + AFTER_NS + effect.time_error_ns
    if late and cause.kind == Kind.KILLED_BY_KERNEL and effect.kind == Kind.KILLED and _zone_apart(cause, effect):
        late = False
    if late and cause.kind in DEVICE and effect.attrs.get("inherited"):
        late = False  # a traceback without a time came at some time after the line above it
    if late:
        return effect.kind in (Kind.RANK_SILENT,) and cause.rank == effect.rank
    if cause.kind == Kind.KILLED_BY_KERNEL:
        return effect.kind in (Kind.KILLED, Kind.EXITED, Kind.LOADER_WORKER_DIED, Kind.ACTOR_DIED) and foreign(cause, view) is not True and _pid_fits(cause, effect)
    if cause.attrs.get("threads") and None not in (cause.pid, effect.pid) and cause.pid != effect.pid:
        return False  # seen by the job's own sampler, which knows its processes by the pids that they have themselves
    if cause.rank is not None and cause.kind in DEVICE:
        return effect.rank == cause.rank  # the driver names the process whose channel it was
    if cause.rank is not None:
        return effect.rank == cause.rank and effect.kind in (Kind.RANK_SILENT, Kind.SAVE_OPEN, Kind.RANK_OUTLIER)
    return effect.rank is not None


def _same_host(a: Event, b: Event) -> bool:
    near = a.time_ns is None or b.time_ns is None or abs(a.time_ns - b.time_ns) <= INCIDENT_NS
    return near and ((a.host is not None and a.host == b.host) or (a.source == b.source and None in (a.host, b.host)))


def _pid_fits(cause: Event, effect: Event) -> bool:
    named = effect.attrs.get("worker_pid") or effect.pid
    # Inside a container the same process has another pid than in the kernel's log.
    return cause.pid is None or named is None or cause.pid == named or effect.kind in (Kind.LOADER_WORKER_DIED, Kind.KILLED)


def _zone_apart(cause: Event, effect: Event) -> bool:
    """Whether two local times differ by a zone's offset and not by anything else: a kernel log in another zone than the job's."""
    gap = abs((cause.time_ns or 0) - (effect.time_ns or 0))
    return cause.time_assumed and gap <= 14 * 3600 * 10**9 and min(gap % HALF_HOUR_NS, HALF_HOUR_NS - gap % HALF_HOUR_NS) <= ZONE_SLACK_NS


def foreign(event: Event, view: View) -> bool | None:
    """Whether the killed pid belongs to nobody of this job; None where the job's pids are unknown (containers have others)."""
    pids = {pid for _, pid in view.identity.rank_of_pid} | {e.attrs.get("worker_pid") for e in view.events if e.attrs.get("worker_pid")}
    pids |= {e.pid for e in view.events if e.pid is not None and e.attrs.get("victim")}
    if pids:  # whoever is known besides the ranks
        pids |= {w.pid for w in view.identity.writers} | {pid for w in view.identity.workers for pid in (w.pid, *w.pids)} - {None}
    if event.pid is None or event.pid in pids:
        return None if event.pid is None else False
    name = event.attrs.get("name") or event.attrs.get("process") or event.attrs.get("comm")
    if name and not JOB_NAMES.search(str(name)):
        return True
    if name and ENGINE_NAMES.search(str(name)):
        return None  # engines start processes of their own, whose pids no log of the job names
    died = any(e.kind in (Kind.KILLED, Kind.LOADER_WORKER_DIED) and (not e.host or not event.host or e.host == event.host) for e in view.events)
    led = any(p.role in LEADERS and not p.pids for p in view.procs.values())  # a process of the job whose pid nothing tells
    return None if died or led or not pids else True
