"""Hand-over of a device between stages: a role that was not told keeps the memory, and the next one finds none."""

from __future__ import annotations

from rca.correlate.concern import follows, host_of
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

STARVED = frozenset({Kind.DEVICE_OOM, Kind.RPC_TIMEOUT, Kind.RPC_ERROR_REPLY, Kind.ACTOR_SILENT, Kind.DEVICE_HELD})
OWN_SHARE = 0.85  # of the device: a process that holds so much itself is short of memory by its own doing


def build(view: View) -> list[Edge]:
    """Edges from an event that was not delivered to who then found the device taken."""
    starved = [e for e in view.events if e.kind in STARVED]
    found = []
    for lost in view.of(Kind.EVENT_LOST, Kind.DEVICE_HELD):
        for event in starved:
            if lost.kind == Kind.DEVICE_HELD and (event.kind != Kind.DEVICE_OOM or event.attrs.get("holder_pid") not in (None, lost.attrs.get("holder_pid"))):
                continue
            if _concerns(lost, event) and follows(lost, event) and not own_doing(event):
                found.append(Edge(lost.event_id, event.event_id, "handover"))
    return found + _waited(view)


WAITS = frozenset({Kind.EXCEPTION, Kind.LOGGED_ERROR, Kind.RPC_ERROR_REPLY, Kind.RPC_TIMEOUT, Kind.RPC_FAILED, Kind.REQUEST_OPEN, Kind.ACTOR_SILENT, Kind.ASSERTION})


def _waited(view: View) -> list[Edge]:
    """Edges from an event that a living receiver never confirmed to what then failed there, or was called there in vain."""
    found = []
    for lost in view.of(Kind.EVENT_LOST):
        told = lost.attrs.get("about") or {}
        if not lost.attrs.get("receiver_lived") or told.get("pid") is None:
            continue
        for event in view.events:
            about = event.attrs.get("about") or {}
            there = (about.get("pid"), about.get("host")) if about.get("pid") is not None else (event.pid, event.host)
            later = lost.time_ns is None or event.time_ns is None or event.time_ns >= lost.time_ns
            if event.kind in WAITS and there[0] == told["pid"] and there[1] in (None, told.get("host")) and later and event.event_id != lost.event_id:
                found.append(Edge(lost.event_id, event.event_id, "handover"))
    return found


def _concerns(lost: Event, event: Event) -> bool:
    if lost.step is not None and event.step is not None and not -1 <= event.step - lost.step <= 1:
        return False
    told = host_of(lost) if lost.attrs.get("about") else None
    there = host_of(event)
    return told is None or there is None or told == there


def own_doing(event: Event) -> bool:
    """Whether an out-of-memory report says that the process itself, and nobody else, fills the device."""
    if event.kind != Kind.DEVICE_OOM:
        return False
    if event.attrs.get("holder_pid") is not None or event.attrs.get("holders"):
        return False
    own, total = gib(event.attrs.get("own_memory")), gib(event.attrs.get("total_memory"))
    return bool(own and total and own / total >= OWN_SHARE)


def gib(text: object) -> float | None:
    """Memory as CUDA prints it, in GiB; None for anything else.

    >>> gib("512.00 MiB"), gib(None)
    (0.5, None)
    """
    number, _, unit = str(text).partition(" ")
    try:
        return float(number) * {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0, "TiB": 2.0**10}[unit]
    except (KeyError, ValueError):
        return None
