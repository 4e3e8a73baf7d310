"""Shared host: what the kernel, its counters and its devices report acts on the processes that run there."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

CAUSES = frozenset({
    Kind.KILLED_BY_KERNEL, Kind.UNINTERRUPTIBLE, Kind.CPU_THROTTLED, Kind.LINK_DOWN, Kind.PACKET_LOSS, Kind.NIC_FAULT, Kind.STORAGE_HANG,
    Kind.HUNG_TASK, Kind.READ_ONLY, Kind.IO_ERROR, Kind.DEVICE_LOST, Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_HANG, Kind.DEVICE_LINK_ERROR,
    Kind.HOST_DOWN, Kind.SHM_EXHAUSTED, Kind.HOST_OOM,
})  # fmt: skip
STORAGE = frozenset({Kind.STORAGE_HANG, Kind.READ_ONLY, Kind.IO_ERROR})
STORAGE_EFFECTS = frozenset({
    Kind.SAVE_OPEN, Kind.WRITE_FAILED, Kind.NO_SPACE, Kind.READ_ONLY, Kind.IO_ERROR, Kind.CHECKPOINT_INVALID, Kind.MISSING_FILE, Kind.RANK_SILENT,
    Kind.UNINTERRUPTIBLE, Kind.COLLECTIVE_TIMEOUT, Kind.LOADER_TIMEOUT, Kind.CORRUPT_DATA, Kind.RANK_OUTLIER, Kind.RPC_TIMEOUT, Kind.PERMISSION,
})  # fmt: skip
NEVER = frozenset({Kind.FINISHED, Kind.STARTED, Kind.SAVED, Kind.LOADED, Kind.STACK_DUMP})
AFTER_NS = 2_000_000_000  # kernel clocks have whole seconds, and `dmesg -T` drifts


def build(view: View) -> list[Edge]:
    """Edges from a host's event to what befell the processes of that host, by pid where the kernel names one."""
    found = []
    for cause in view.events:
        if cause.kind not in CAUSES:
            continue
        for effect in view.events:
            if effect.event_id != cause.event_id and effect.kind not in NEVER and _acts(cause, effect, view):
                found.append(Edge(cause.event_id, effect.event_id, "host"))
    return found


def _acts(cause: Event, effect: Event, view: View) -> bool:
    if cause.attrs.get("outside") or (effect.kind in CAUSES and effect.rank is None):
        return False
    if cause.kind in STORAGE and not (effect.kind in STORAGE_EFFECTS or effect.attrs.get("exception") == "OSError"):
        return False
    if cause.host and effect.host and cause.host != effect.host:
        return False
    if cause.time_ns is not None and effect.time_ns is not None and cause.time_ns > effect.time_ns + AFTER_NS + effect.time_error_ns:
        return effect.kind in (Kind.RANK_SILENT,) and cause.rank == effect.rank
    if cause.kind == Kind.KILLED_BY_KERNEL:
        return effect.kind in (Kind.KILLED, Kind.EXITED, Kind.LOADER_WORKER_DIED, Kind.ACTOR_DIED) and foreign(cause, view) is not True and _pid_fits(cause, effect)
    if cause.rank is not None:
        return effect.rank == cause.rank and effect.kind in (Kind.RANK_SILENT, Kind.SAVE_OPEN, Kind.RANK_OUTLIER)
    return effect.rank is not None


def _pid_fits(cause: Event, effect: Event) -> bool:
    named = effect.attrs.get("worker_pid") or effect.pid
    return cause.pid is None or named is None or cause.pid == named or effect.kind == Kind.LOADER_WORKER_DIED


def foreign(event: Event, view: View) -> bool | None:
    """Whether the killed pid belongs to nobody of this job; None where the job's pids are unknown (containers have others)."""
    if event.pid is None or not view.identity.rank_of_pid:
        return None
    workers = {e.attrs.get("worker_pid") for e in view.events if e.attrs.get("worker_pid")}
    return event.pid not in view.identity.rank_of_pid and event.pid not in workers
