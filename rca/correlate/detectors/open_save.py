"""A checkpoint that was begun and never finished: its writer said so, and nothing came after; or the span that wrote it has no end."""

from __future__ import annotations

import re

from rca.correlate.spans import CLIENT, PRODUCER
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

SAVES = frozenset({"save", "latest_recover_save", "periodic_recover_save"})
READS = re.compile(r"(?<!up)(?<!down)(?<!off)load|restore|resume|read", re.I)


def detect(view: View) -> list[Event]:
    """`checkpoint.save_open` for each process and attempt whose last save has no end, and for each span of a save that names a path and was open for longer than others."""
    found = [e.but(kind=Kind.SAVE_OPEN, source=None, also=e.records, event_id=-1) for e in view.of(Kind.REQUEST_OPEN) if _writes(e) and not _told(e, view)]
    for start in view.of(Kind.SAVE_STARTED):
        later = [
            e for e in view.events
            if e.source == start.source and e.offset > start.offset and e.attrs.get("stream") == start.attrs.get("stream")
        ]  # fmt: skip
        after = next((e for e in later if e.kind in (Kind.SAVED, Kind.SAVE_STARTED, Kind.FINISHED)), None)
        if after is not None and after.kind in (Kind.SAVED, Kind.FINISHED):
            continue
        if start.count > 1 or any(start.step is not None and m[0] > start.step for m in _steps_after(view, start)):
            continue
        text = f"{start.text} - and no line says that it ended"
        found.append(start.but(kind=Kind.SAVE_OPEN, text=text, severity="warning", source=None, also=start.records, event_id=-1))
    return found


def _writes(span: Event) -> bool:
    """Whether an open span is the writing of a checkpoint, and no call by which somebody else is asked for it."""
    return span.path is not None and span.stage in SAVES and span.attrs.get("span_kind") not in (CLIENT, PRODUCER) and not READS.search(str(span.attrs.get("op")))


def _told(span: Event, view: View) -> bool:
    """Whether a record of the same process says the same."""
    return any((e.host, e.pid, e.rank, e.step) == (span.host, span.pid, span.rank, span.step) for e in view.of(Kind.SAVE_OPEN) if e.path is not None)


def _steps_after(view: View, start: Event) -> list[tuple[int, int]]:
    proc = next((p for k, p in view.procs.items() if k[1] == (start.rank if start.rank is not None else start.actor)), None)
    return [s for s in proc.steps if start.time_ns is not None and s[1] > start.time_ns and s[0] > (start.step or 0)] if proc else []
