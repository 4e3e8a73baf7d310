"""Checkpoint lineage: what broke while a file was written comes back where it is read, perhaps in a later attempt."""

from __future__ import annotations

from rca.correlate.concern import follows
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

WRITES = frozenset({Kind.NO_SPACE, Kind.READ_ONLY, Kind.IO_ERROR, Kind.STORAGE_HANG, Kind.HUNG_TASK, Kind.UNINTERRUPTIBLE, Kind.WRITE_FAILED, Kind.SAVE_FAILED, Kind.SAVE_OPEN, Kind.LIMIT_REACHED, Kind.KILLED, Kind.AGENT_SIGNALLED, Kind.SCHEDULER_STOP})
HANGS = frozenset({Kind.STORAGE_HANG, Kind.HUNG_TASK, Kind.UNINTERRUPTIBLE})
READS = frozenset({Kind.CHECKPOINT_INVALID, Kind.WEIGHTS_FAILED, Kind.MISSING_FILE})
OF_SAVES = frozenset({Kind.SAVE_OPEN, Kind.WRITE_FAILED, Kind.SAVE_FAILED})
SPOILED = (Kind.NON_FINITE, Kind.LOSS_ROSE)  # what training on weights of a damaged file shows
FOLDERS = 3  # of a checkpoint's own folder: `/data/job/latest`
SAVES = frozenset({"save", "latest_recover_save", "periodic_recover_save"})


def build(view: View) -> list[Edge]:
    """Edges from a broken write to the read of the same file, or of the next save where no path is named; from the read of a changed file to what was trained on it."""
    found = [Edge(cause.event_id, effect.event_id, "checkpoint") for cause in view.of(Kind.CHECKPOINT_INVALID) if cause.attrs.get("verified") for effect in view.of(*SPOILED) if _trained_on(cause, effect)]
    for cause in view.events:
        if cause.kind not in WRITES or cause.attrs.get("outside") or cause.attrs.get("recovered"):
            continue
        saving = cause.stage in SAVES or cause.kind in OF_SAVES
        for effect in view.events:
            reads = effect.kind in READS and _after(cause, effect) and (_same_path(cause, effect) if saving else _same_checkpoint(cause.path, effect.path))
            stops = effect.kind in OF_SAVES and cause.kind in HANGS and saving and effect.event_id != cause.event_id and _gives_up(cause, effect)
            if reads or stops:
                found.append(Edge(cause.event_id, effect.event_id, "checkpoint"))
    return found


def _trained_on(cause: Event, effect: Event) -> bool:
    """Whether the loss is that of a process which read a file that had been found changed, and went on with it."""
    if any(None not in pair and pair[0] != pair[1] for pair in ((cause.host, effect.host), (cause.rank, effect.rank), (cause.pid, effect.pid), (cause.attempt, effect.attempt))):
        return False
    return effect.time_ns is None or cause.time_ns is None or follows(cause, effect)


def _gives_up(cause: Event, effect: Event) -> bool:
    """Whether a save that its caller gave up is the one that the storage's fault fell into."""
    near = cause.step is None or effect.step is None or abs(effect.step - cause.step) <= 1
    return near and (follows(cause, effect) or effect.kind == Kind.SAVE_OPEN)


def _after(cause: Event, effect: Event) -> bool:
    if cause.time_ns is None or effect.time_ns is None:
        return cause.source == effect.source and cause.offset < effect.offset
    return follows(cause, effect)


def _same_checkpoint(written: str | None, read: str | None) -> bool:
    """Whether two paths that are both named are those of one checkpoint: the same, one below the other, or side by side in a folder of their own."""
    if not written or not read:
        return False
    if written == read or written.startswith(read.rstrip("/") + "/") or read.startswith(written.rstrip("/") + "/"):
        return True
    above = written.rpartition("/")[0]
    return above == read.rpartition("/")[0] and above.count("/") >= FOLDERS


def _same_path(cause: Event, effect: Event) -> bool:
    if not cause.path or not effect.path:
        return True
    return cause.path == effect.path or cause.path in effect.path or effect.path in cause.path
