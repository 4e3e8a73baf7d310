"""Control flow: after a failure the controller stops everything, and what goes wrong while it stops is not why."""

from __future__ import annotations

from rca.correlate.concern import follows
from rca.correlate.view import View
from rca.model import Edge
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

CLEANUP = "cleanup"


def build(view: View) -> list[Edge]:
    """Edges from failures before the clean-up to those that belong to it."""
    tail = [e for e in view.events if e.kind == Kind.STOP_FAILED or (e.stage == CLEANUP and e.severity in ("error", "fatal"))]
    found = []
    for cause in view.events if tail else ():
        if cause.kind in QUIET_KINDS or cause.severity == "info" or cause.stage == CLEANUP or cause.attrs.get("outside") or cause.attrs.get("foreign"):
            continue
        if cause.kind in VICTIM_KINDS and cause.kind != Kind.RPC_ERROR_REPLY:
            continue
        found += [Edge(cause.event_id, e.event_id, "controller") for e in tail if e.event_id != cause.event_id and follows(cause, e)]
    return found
