"""Checkpoint lineage: what broke while a file was written comes back where it is read, perhaps in a later attempt."""

from __future__ import annotations

from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

WRITES = frozenset({Kind.NO_SPACE, Kind.READ_ONLY, Kind.IO_ERROR, Kind.STORAGE_HANG, Kind.WRITE_FAILED, Kind.SAVE_OPEN, Kind.LIMIT_REACHED, Kind.KILLED, Kind.AGENT_SIGNALLED, Kind.SCHEDULER_STOP})
READS = frozenset({Kind.CHECKPOINT_INVALID, Kind.WEIGHTS_FAILED, Kind.MISSING_FILE})
SAVES = frozenset({"save", "latest_recover_save", "periodic_recover_save"})


def build(view: View) -> list[Edge]:
    """Edges from a broken write to the read of the same file, or of the next save where no path is named."""
    found = []
    for cause in view.events:
        if cause.kind not in WRITES or (cause.stage not in SAVES and cause.kind not in (Kind.SAVE_OPEN, Kind.WRITE_FAILED)):
            continue
        for effect in view.events:
            if effect.kind in READS and _after(cause, effect) and _same_path(cause, effect):
                found.append(Edge(cause.event_id, effect.event_id, "checkpoint"))
    return found


def _after(cause: Event, effect: Event) -> bool:
    if cause.time_ns is not None and effect.time_ns is not None:
        return cause.time_ns <= effect.time_ns
    return cause.source == effect.source and cause.offset < effect.offset


def _same_path(cause: Event, effect: Event) -> bool:
    if not cause.path or not effect.path:
        return True
    return cause.path == effect.path or cause.path in effect.path or effect.path in cause.path
