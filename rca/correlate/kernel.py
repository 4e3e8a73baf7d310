"""What the kernel says in several lines is one event. An OOM report: the kernel prints who asked for memory, a table, the limit that was hit and whom it killed.

The process that *invoked* the killer is not its victim. Source: Linux `mm/oom_kill.c`.
"""

from __future__ import annotations

from rca.model import Event
from rca.taxonomy import Kind

REPORT_BYTES = 64 << 10  # a report with its table of tasks is shorter than this
STACK_BYTES = 16 << 10  # of journal lines in JSON, which are long
SPEAKERS = ("kernel_memory/",)


def join_oom(events: list[Event]) -> list[Event]:
    """Join the lines of each OOM report into the event that names the killed process."""
    out: list[Event] = []
    for event in events:
        if not str(event.attrs.get("signature", "")).startswith(SPEAKERS) or event.kind not in (Kind.HOST_OOM, Kind.KILLED_BY_KERNEL):
            out.append(event)
            continue
        before = out[-1] if out else None
        if before is not None and _one_report(before, event):
            keep, other = (event, before) if event.pid is not None and (before.pid is None or "Killed process" in event.text) else (before, event)
            attrs = {**other.attrs, **keep.attrs}
            out[-1] = keep.but(kind=Kind.KILLED_BY_KERNEL if Kind.KILLED_BY_KERNEL in (keep.kind, other.kind) else keep.kind, also=keep.also + other.records, attrs=attrs, pid=keep.pid or other.pid)
        else:
            out.append(event)
    return out


def join_swap(events: list[Event]) -> list[Event]:
    """A task that hangs, by the stack below the report, because its memory is on the swap device waits for no file: one event that says so."""
    stacks = [e for e in events if e.kind == Kind.SWAPS]
    if not stacks:
        return events
    out, used = [], set()
    for event in events:
        below = [s for s in stacks if s.source == event.source and 0 < s.offset - event.offset < STACK_BYTES] if event.kind == Kind.HUNG_TASK else []
        if below:
            used.update(id(s) for s in below)
            out.append(event.but(kind=Kind.SWAPS, severity="error", also=event.also + below[0].records))
        else:
            out.append(event)
    return [e for e in out if id(e) not in used]


def _one_report(a: Event, b: Event) -> bool:
    kernel = str(a.attrs.get("signature", "")).startswith(SPEAKERS) and a.kind in (Kind.HOST_OOM, Kind.KILLED_BY_KERNEL)
    return kernel and a.source == b.source and abs(a.offset - b.offset) < REPORT_BYTES and (a.pid is None or b.pid is None or a.pid == b.pid)
