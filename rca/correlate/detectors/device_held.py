"""A device whose memory another role's process holds while a stage needs it.

The allocator names the other processes on the device. Where roles take turns on one device and earlier steps went well, a process of
another role that still holds a large part was not told to let go, or did not.
"""

from __future__ import annotations

from rca.correlate.edges.handover import gib
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

SHARE = 0.25  # of the device: less is a context and some buffers


def detect(view: View) -> list[Event]:
    """One event for each report of exhausted memory that names a large holder of another role."""
    if "rollout" not in {p.role for p in view.procs.values()} | {e.role for e in view.events}:
        return []  # nobody takes turns: another process on the device is somebody else's, or the job's own ranks misplaced
    roles = {(w.host, w.pid): w.role for w in view.identity.writers if w.pid and w.role}
    found, seen = [], set()
    for event in view.of(Kind.DEVICE_OOM):
        pid, held, total = event.attrs.get("holder_pid"), gib(event.attrs.get("holder_memory")), gib(event.attrs.get("total_memory"))
        if pid is None or held is None or (total and held < SHARE * total) or (event.step is not None and event.step < 2):
            continue
        role = roles.get((event.host, pid))
        if (event.host, pid, event.step) in seen or (role is not None and role == event.role):
            continue
        seen.add((event.host, pid, event.step))
        text = f"process {pid}{f' ({role})' if role else ''} on {event.host or 'that host'} still holds {held:.1f} GiB of GPU {event.gpu if event.gpu is not None else event.attrs.get('device', '?')}"
        attrs = {"holder_pid": pid, "holder_role": role, "held_gib": held}
        gpu = event.gpu if event.gpu is not None else int(event.attrs["device"]) if str(event.attrs.get("device", "")).isdecimal() else None
        found.append(event.but(
            kind=str(Kind.DEVICE_HELD), text=text, severity="warning", gpu=gpu, source=None, line=None, also=event.records[:1], attrs=attrs, count=1, ranks=(),
        ))  # fmt: skip
    return found
