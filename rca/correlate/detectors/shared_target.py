"""Several roles fail against one address that none of them serves: what they share is gone.

Train says time-out, rollout says refused, and nobody speaks for the service itself: the address in their messages is what they have in common.
"""

from __future__ import annotations

import re

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import QUIET_KINDS, Kind

ADDRESS = re.compile(r"(?<![\w.])((?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][\w-]{1,40}(?:\.[\w-]{1,40}){0,4}):(\d{4,5})(?![\w.])")
LOOPBACK = re.compile(r"127\.|localhost$|0\.0\.0\.0")
CLIENTS = frozenset({"train", "rollout", "reference", "reward", "critic"})
NEAR_NS = 1200 * 10**9
FAILED = re.compile(r"time[d-]? ?out|refused|unreachable|reset|not confirmed|no answer|no reply|waiting|cannot connect|unavailable|超时|拒绝|无响应", re.I)


def detect(view: View) -> list[Event]:
    """`service.lost` for each address that two roles or more complain of within one failure."""
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in view.events:
        if event.kind in QUIET_KINDS or event.severity not in ("error", "fatal") or event.role not in CLIENTS or event.source is None or not FAILED.search(event.text):
            continue
        for host, port in ADDRESS.findall(event.text[:400]):
            groups.setdefault((host, port), []).append(event)
    found = []
    for (host, port), events in sorted(groups.items()):
        # The last words of a process have no time of their own: they say nothing about when.
        last = max((e.time_ns for e in events if e.time_ns is not None and not e.attrs.get("inherited")), default=None)
        events = [e for e in events if last is None or e.time_ns is None or e.attrs.get("inherited") or last - e.time_ns <= NEAR_NS]
        if len({e.role for e in events}) < 2 or _serves(view, host, port):
            continue
        first = min(events, key=lambda e: (e.time_ns if e.time_ns is not None else 2**62, e.event_id))
        other = next(e for e in events if e.role != first.role)
        where = view.identity.name_of(host) or host
        if LOOPBACK.match(host):  # everybody's own machine: the one that they share, if it is one
            places = {e.host for e in events}
            where = places.pop() if len(places) == 1 else None
        found.append(Event(
            Kind.SERVICE_LOST, f"{host}:{port} does not serve {first.role} and {other.role} any more: {first.text[:120]}", time_ns=first.time_ns, time_error_ns=first.time_error_ns,
            time_assumed=first.time_assumed, host=where, role="meta_server", stage=first.stage, step=first.step, attempt=first.attempt,
            attrs={"address": f"{host}:{port}"}, also=first.records[:1] + other.records[:1],
        ))  # fmt: skip
    return found


def _serves(view: View, host: str, port: str) -> bool:
    """Whether a worker of the job listens there: then it is that worker that does not answer."""
    worker = view.identity.workers.at(view.identity.name_of(host) or host, int(port))
    return worker is not None and worker.role in CLIENTS
