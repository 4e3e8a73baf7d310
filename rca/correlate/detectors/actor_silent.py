"""An RPC callee that does not answer: gone (refused, reset) or stopped (timed out), as its callers saw it.

The callee is found by its name in the caller's message or by the port that it said it serves on. Refusals while everything starts up are
not evidence: a callee that answered later was merely late.
"""

from __future__ import annotations

import re

from rca.correlate.edges.rpc import callees, ports_of
from rca.correlate.progress import Proc, key_of
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

FAILED = frozenset({Kind.RPC_REFUSED, Kind.RPC_TIMEOUT, Kind.RPC_FAILED, Kind.WEIGHTS_FAILED, Kind.ACTOR_DIED})
REFUSED = re.compile(r"refused|reset by peer|errno 111|errno 104|closed connection|disconnected", re.I)
TIMED_OUT = re.compile(r"timed? ?out|deadline", re.I)
STOPPING = re.compile(r"/stop\b|stop job|shutdown|cleanup", re.I)
SAYS = {
    "refused": "does not answer: its connection is refused or reset", "timeout": "does not answer: requests to it time out",
    "cut": "answered, and its answers do not arrive: the connection breaks on the way",
}  # fmt: skip
LATER_NS = 3_000_000_000  # a callee that still writes this long after an unanswered request was only late


def detect(view: View) -> list[Event]:
    """`actor.silent` for each callee, from the first request that it did not answer."""
    ports = ports_of(view)
    calls: dict[object, list[Event]] = {}
    for event in view.events:
        if event.kind not in FAILED or STOPPING.search(event.text):
            continue
        for name in callees(event, view, ports):
            calls.setdefault(name, []).append(event)
    found: dict[tuple, Event] = {}
    for name, events in sorted(calls.items(), key=lambda kv: str(kv[0])):
        proc = next((p for p in view.procs.values() if name in (p.actor, p.rank) or any(w.actor == name for w in p.writers)), None)
        if proc is None:
            continue
        events = [e for e in events if key_of(e) != proc.key and not _answered_later(proc, e)]
        how = "cut" if _answered(events) else _how(events)
        if how is None:
            continue
        first = min(events, key=lambda e: (e.time_ns if e.time_ns is not None else 2**62, e.event_id))
        meta = any("meta" in (w.actor or "").lower() for w in proc.writers)
        text = f"{proc.actor or f'rank {proc.rank}'} {SAYS[how]}"
        callers = sorted({e.actor or f"rank {e.rank}" for e in events})
        found.setdefault(proc.key, Event(
            Kind.ACTOR_SILENT, text, time_ns=first.time_ns, host=proc.host, role="meta_server" if meta else proc.role, actor=proc.actor, rank=proc.rank, pid=min(proc.pids) if len(proc.pids) == 1 else None,
            stage=first.stage, step=first.step, attempt=proc.attempt, attrs={"how": how, "role_meta": meta, "callers": callers},
            also=first.records[:1] + ((proc.last,) if proc.last else ()),
        ))  # fmt: skip
    return list(found.values())


def _answered_later(proc: Proc, event: Event) -> bool:
    return bool(event.time_ns is not None and proc.last_ns is not None and proc.last_ns - event.time_ns > LATER_NS)


def _answered(events: list[Event]) -> bool:
    """Whether the callee's own spans show that it ended all these calls well: what failed lies between."""
    answers = {e.attrs.get("answer") for e in events if e.attrs.get("span")}
    return answers == {"ok"}


def _how(events: list[Event]) -> str | None:
    """`refused` outweighs `timeout`: a process that is gone may first let requests hang."""
    if any(REFUSED.search(e.text) or e.kind in (Kind.RPC_REFUSED, Kind.ACTOR_DIED) for e in events):
        return "refused"
    return "timeout" if any(TIMED_OUT.search(e.text) or e.kind == Kind.RPC_TIMEOUT for e in events) else None
