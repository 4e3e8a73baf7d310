"""Shared service: roles that fail together depend on what broke; memory that grows ends in a kill."""

from __future__ import annotations

from rca.correlate.concern import follows, lasting
from rca.correlate.identity import role_of
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

DEATH = frozenset({Kind.SERVICE_LOST, Kind.HOST_OOM, Kind.KILLED_BY_KERNEL, Kind.MEMORY_GREW, Kind.KILLED, Kind.HOST_DOWN})
ASKED = frozenset({Kind.RPC_REFUSED, Kind.RPC_TIMEOUT, Kind.RPC_FAILED, Kind.WEIGHTS_FAILED, Kind.SERVICE_LOST, Kind.RPC_ERROR_REPLY})
WORKERS = ("rollout", "train", "reference", "reward", "critic")
SERVICE_ROLES = ("meta_server", "controller", "scheduler", None)


def build(view: View) -> list[Edge]:
    """Edges from a service's end to the requests that it no longer answers, and from growth to the end."""
    asked = [e for e in view.events if e.kind in ASKED]
    ends = [e for e in view.events if e.kind in (Kind.HOST_OOM, Kind.KILLED_BY_KERNEL, Kind.SERVICE_LOST)]
    found = []
    for cause in view.events:
        if cause.kind not in DEATH or not lasting(cause):
            continue
        if cause.kind == Kind.MEMORY_GREW:
            found += [Edge(cause.event_id, e.event_id, "service") for e in ends if e.event_id != cause.event_id and cause.host in (e.host, None) and follows(cause, e)]
        if address := cause.attrs.get("address"):  # whoever names it asks it
            found += [Edge(cause.event_id, e.event_id, "service") for e in view.events if e.event_id != cause.event_id and e.severity in ("error", "fatal") and address in e.text]
        if cause.role in SERVICE_ROLES and cause.rank is None:
            found += [Edge(cause.event_id, e.event_id, "service") for e in asked if e.event_id != cause.event_id and _asks(cause, e) and follows(cause, e)]
    return found


def _asks(cause: Event, effect: Event) -> bool:
    about = effect.attrs.get("about") or {}
    if (about.get("role") or role_of(about.get("worker"))) in WORKERS:
        return False  # a worker that does not answer is no service that others share
    if about.get("host") and cause.host:
        return about["host"] == cause.host
    return effect.stage == "weights_update" or effect.kind == Kind.WEIGHTS_FAILED
