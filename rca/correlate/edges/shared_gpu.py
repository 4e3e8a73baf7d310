"""Shared GPU: a context or a device that is broken stays broken, and the next role that uses it prints the error."""

from __future__ import annotations

from rca.correlate.concern import follows
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

FAULTS = frozenset({Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_LOST, Kind.DEVICE_HANG, Kind.DEVICE_LINK_ERROR})
#: What CUDA calls on such a device return, whatever the call was meant to do.
LATE_REPORTS = frozenset({Kind.DEVICE_ERROR, Kind.DEVICE_ASSERT, Kind.DEVICE_ILLEGAL_ACCESS, Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_LOST, Kind.DEVICE_IPC, Kind.WEIGHTS_FAILED, Kind.ACTOR_DIED})


def build(view: View) -> list[Edge]:
    """Edges from a fault of a device to later errors of those who use that device."""
    late = [e for e in view.events if e.kind in LATE_REPORTS]
    found = []
    for fault in view.events:
        # The driver names the device; an application's own line names only itself.
        if fault.kind not in FAULTS or fault.attrs.get("outside") or (fault.bus_id is None and fault.gpu is None):
            continue
        for report in late:
            if report.event_id != fault.event_id and (report.source != fault.source) and _same_device(fault, report) and follows(fault, report):
                found.append(Edge(fault.event_id, report.event_id, "shared_gpu"))
    return found


def _same_device(fault: Event, report: Event) -> bool:
    host = (report.attrs.get("about") or {}).get("host") or report.host
    if fault.host is None or host != fault.host:
        return False
    gpu = (report.attrs.get("about") or {}).get("gpu")
    gpu = gpu if gpu is not None else report.gpu
    if fault.gpu is not None and gpu is not None:
        return fault.gpu == gpu
    if fault.bus_id is not None and report.bus_id is not None:
        return fault.bus_id == report.bus_id
    users = fault.attrs.get("users")
    if users and report.rank is not None:
        return report.rank in {u.get("rank") if isinstance(u, dict) else u for u in users}
    return True  # one host, and nothing says which device the report means
