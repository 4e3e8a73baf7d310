"""Checkpoint lineage: what broke while a file was written comes back where it is read, perhaps in a later attempt."""

from __future__ import annotations

import re

from rca.correlate.concern import follows
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

WRITES = frozenset({Kind.NO_SPACE, Kind.READ_ONLY, Kind.IO_ERROR, Kind.STORAGE_HANG, Kind.HUNG_TASK, Kind.UNINTERRUPTIBLE, Kind.WRITE_FAILED, Kind.SAVE_FAILED, Kind.SAVE_OPEN, Kind.LIMIT_REACHED, Kind.KILLED, Kind.AGENT_SIGNALLED, Kind.SCHEDULER_STOP})
HANGS = frozenset({Kind.STORAGE_HANG, Kind.HUNG_TASK, Kind.UNINTERRUPTIBLE})
READS = frozenset({Kind.CHECKPOINT_INVALID, Kind.WEIGHTS_FAILED, Kind.MISSING_FILE})
OF_SAVES = frozenset({Kind.SAVE_OPEN, Kind.WRITE_FAILED, Kind.SAVE_FAILED})
#: What a caller says of a save that it waited for.
WAITS = frozenset({Kind.SAVE_FAILED, Kind.RPC_TIMEOUT})
GAVE_UP = re.compile(r"time[d_ -]{0,2}out|deadline|超时", re.I)
NUMBERED = re.compile(r"^[a-z_]{1,40}[/-]\d{1,6}$")
SPOILED = (Kind.NON_FINITE, Kind.LOSS_ROSE)  # what training on weights of a damaged file shows
FOLDERS = 3  # of a checkpoint's own folder: `/data/job/latest`
SAVES = frozenset({"save", "latest_recover_save", "periodic_recover_save"})


def build(view: View) -> list[Edge]:
    """Edges from a broken write to the read of the same file, or of the next save where no path is named; from the read of a changed file to what was trained on it."""
    found = [Edge(cause.event_id, effect.event_id, "checkpoint") for cause in view.of(Kind.CHECKPOINT_INVALID) if cause.attrs.get("verified") for effect in view.of(*SPOILED) if _trained_on(cause, effect)]
    open_saves = bool(view.of(Kind.SAVE_OPEN))
    for cause in view.events:
        if cause.kind == Kind.UNINTERRUPTIBLE and open_saves and not cause.attrs.get("saving"):
            continue  # it was not the process that saved
        if cause.kind not in WRITES or cause.attrs.get("outside") or cause.attrs.get("recovered"):
            continue
        saving = cause.stage in SAVES or cause.kind in OF_SAVES
        for effect in view.events:
            reads = effect.kind in READS and _after(cause, effect) and (_same_path(cause, effect) if saving else _same_checkpoint(cause.path, effect.path))
            stops = effect.kind in OF_SAVES and cause.kind in HANGS and saving and effect.event_id != cause.event_id and _gives_up(cause, effect)
            waits = effect.kind in WAITS and cause.kind == Kind.SAVE_OPEN and effect.event_id != cause.event_id and _waited_for(cause, effect)
            if reads or stops or waits:
                found.append(Edge(cause.event_id, effect.event_id, "checkpoint"))
    return found


def _trained_on(cause: Event, effect: Event) -> bool:
    """Whether the loss is that of a process which read a file that had been found changed, and went on with it."""
    if any(None not in pair and pair[0] != pair[1] for pair in ((cause.host, effect.host), (cause.rank, effect.rank), (cause.pid, effect.pid), (cause.attempt, effect.attempt))):
        return False
    return effect.time_ns is None or cause.time_ns is None or follows(cause, effect)


def _gives_up(cause: Event, effect: Event) -> bool:
    """Whether a save that its caller gave up is the one that the storage's fault fell into."""
    if cause.attrs.get("saving") and effect.kind == Kind.SAVE_OPEN and (cause.host, cause.rank) != (effect.host, effect.rank):
        return False  # its own save is known
    near = cause.step is None or effect.step is None or abs(effect.step - cause.step) <= 1
    return near and (follows(cause, effect) or effect.kind == Kind.SAVE_OPEN)


def _waited_for(save: Event, told: Event) -> bool:
    """Whether a caller tells that it waited for this save in vain."""
    if not (GAVE_UP.search(told.text) or told.attrs.get("answer") == "open") or not (told.stage in SAVES or told.attrs.get("called") == "save"):
        return False
    if None not in (save.step, told.step) and save.step != told.step:
        return False
    if not follows(save, told):
        return False
    about = told.attrs.get("about") or {}
    if None not in (about.get("rank"), save.rank):
        return about["rank"] == save.rank and about.get("role") in (None, save.role)
    if None not in (about.get("pid"), save.pid):
        return bool(about["pid"] == save.pid)
    if None not in (about.get("worker"), save.role, save.rank) and NUMBERED.search(about["worker"]):
        return str(about["worker"]).replace("-", "/") == f"{save.role}/{save.rank}"
    return save.step is not None and save.step == told.step and (about.get("host") is None or about["host"] == save.host)


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
    return _within(cause.path, effect.path) or _within(effect.path, cause.path)


def _within(short: str, long: str) -> bool:
    """Whether a path is the other one, or a part of it from one name to another: it may be relative to a folder that nobody states.

    >>> _within("ckpt/step-1", "/data/ckpt/step-1/model.pt"), _within("/ckpt/step-1", "/ckpt/step-10")
    (True, False)
    """
    return f"/{short.strip('/')}/" in f"/{long.strip('/')}/"
