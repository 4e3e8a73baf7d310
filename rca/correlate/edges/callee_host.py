"""Shared host, seen from afar: what is wrong with a machine is what callers report of the workers on it."""

from __future__ import annotations

from rca.correlate.concern import about_host, follows, lasting
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

NET = frozenset({Kind.PACKET_LOSS, Kind.LATENCY_ROSE, Kind.NIC_FAULT, Kind.NIC_ERRORS_ROSE, Kind.LINK_DOWN, Kind.UNREACHABLE})
LOAD = frozenset({Kind.CPU_STARVED, Kind.CPU_THROTTLED, Kind.UNINTERRUPTIBLE, Kind.HUNG_TASK, Kind.SWAPS, Kind.STORAGE_HANG, Kind.HOST_DOWN})
DEATH = frozenset({Kind.KILLED_BY_KERNEL, Kind.HOST_OOM, Kind.MEMORY_GREW, Kind.KILLED})
DEVICE = frozenset({Kind.DEVICE_LOST, Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_HANG, Kind.DEVICE_LINK_ERROR})
#: What a caller says of a worker that it cannot reach, or got too little from.
REPORTS = frozenset({
    Kind.RPC_TIMEOUT, Kind.RPC_FAILED, Kind.RPC_REFUSED, Kind.PARTIAL_RESULT, Kind.PAYLOAD_DIFFERS, Kind.ACTOR_SILENT, Kind.ACTOR_DIED,
    Kind.REQUEST_OPEN, Kind.SERVICE_LOST, Kind.PEER_LOST,
})  # fmt: skip
WIRE_ONLY = frozenset({Kind.PAYLOAD_DIFFERS})


def build(view: View) -> list[Edge]:
    """Edges from a host's fault to reports about the workers of that host."""
    reports = [e for e in view.events if e.kind in REPORTS]
    found = []
    for cause in view.events:
        if cause.kind not in NET | LOAD | DEATH | DEVICE or not lasting(cause):
            continue
        for effect in reports:
            if cause.event_id != effect.event_id and about_host(effect, cause.host) and _fits(cause, effect) and follows(cause, effect):
                found.append(Edge(cause.event_id, effect.event_id, "host"))
    return found


def _fits(cause: Event, effect: Event) -> bool:
    if effect.kind in WIRE_ONLY:
        return cause.kind in NET
    if cause.attrs.get("threads") and (effect.attrs.get("about") or {}).get("pid") not in (None, cause.pid):
        return False  # one process is stuck, and this is about another
    if cause.kind in DEVICE:
        users = cause.attrs.get("users") or ()
        gpu = (effect.attrs.get("about") or {}).get("gpu")
        return cause.gpu is None or gpu is None or cause.gpu == gpu or not users
    return True
