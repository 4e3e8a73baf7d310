"""Weight sync: everybody who takes part waits for the one that cannot, and both roles report it."""

from __future__ import annotations

from rca.correlate.concern import follows, lasting
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

STOPS = frozenset({
    Kind.NIC_FAULT, Kind.NIC_ERRORS_ROSE, Kind.LINK_DOWN, Kind.UNREACHABLE, Kind.PACKET_LOSS, Kind.EXCEPTION, Kind.ASSERTION, Kind.BAD_ARGUMENT, Kind.SHAPE_MISMATCH,
    Kind.DEVICE_ERROR, Kind.DEVICE_ASSERT, Kind.DEVICE_ILLEGAL_ACCESS, Kind.DEVICE_MEMORY_ERROR, Kind.DEVICE_LOST, Kind.DEVICE_HANG, Kind.DEVICE_OOM, Kind.DEVICE_IPC,
    Kind.KILLED_BY_KERNEL, Kind.HOST_OOM, Kind.FATAL_SIGNAL, Kind.SERVICE_LOST, Kind.CHECKPOINT_INVALID, Kind.CHECKPOINT_MISMATCH, Kind.COLLECTIVE_TIMEOUT,
})  # fmt: skip
WAITED = frozenset({Kind.WEIGHTS_FAILED, Kind.COLLECTIVE_TIMEOUT, Kind.WATCHDOG_STUCK, Kind.RPC_TIMEOUT, Kind.RPC_ERROR_REPLY, Kind.PEER_LOST})
STAGE = "weights_update"


def build(view: View) -> list[Edge]:
    """Edges from what stopped a member during a weight sync to the waits that end it."""
    waited = [e for e in view.events if e.kind in WAITED and (e.stage == STAGE or e.kind == Kind.WEIGHTS_FAILED)]
    found = []
    for cause in view.events:
        if cause.kind not in STOPS or cause.severity == "info" or not lasting(cause) or cause.stage not in (STAGE, None, "rollout", "train"):
            continue
        for effect in waited:
            if cause.event_id == effect.event_id or (cause.kind == Kind.COLLECTIVE_TIMEOUT and effect.kind in (Kind.COLLECTIVE_TIMEOUT, Kind.WATCHDOG_STUCK)):
                continue
            if _same_sync(cause, effect) and follows(cause, effect):
                found.append(Edge(cause.event_id, effect.event_id, "weight_sync"))
    return found


def _same_sync(cause: Event, effect: Event) -> bool:
    if cause.stage not in (STAGE, None):
        return False
    return cause.step is None or effect.step is None or -1 <= effect.step - cause.step <= 1
