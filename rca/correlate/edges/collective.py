"""Collective membership: who dies, hangs or leaves makes all the others wait or lose a peer."""

from __future__ import annotations

from rca.correlate.progress import DEADLY, key_of
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

EFFECTS = frozenset({
    Kind.PEER_LOST, Kind.COLLECTIVE_TIMEOUT, Kind.STORE_LOST, Kind.STORE_TIMEOUT, Kind.WATCHDOG_STUCK, Kind.ALL_WAITED,
    Kind.MESH_FAILED, Kind.RENDEZVOUS_TIMEOUT, Kind.RANK_LOG_MISSING,
})  # fmt: skip
#: These end or stop a process in the middle of its collectives.
DERIVED = frozenset({Kind.RANK_SILENT, Kind.RANK_OUTLIER, Kind.UNINTERRUPTIBLE, Kind.CPU_THROTTLED, Kind.SAVE_OPEN, Kind.LINK_DOWN, Kind.PACKET_LOSS, Kind.NIC_FAULT})
EARLY_NS = 1_500_000_000  # clocks and log resolution: an effect may seem to come this much before its cause


def build(view: View) -> list[Edge]:
    """Edges from what stopped one process to what the others of its attempt then reported."""
    effects = [e for e in view.events if e.kind in EFFECTS]
    found = []
    for cause in view.events:
        if not _stops(cause):
            continue
        key = key_of(cause)
        for effect in effects:
            if effect.event_id == cause.event_id or (key is not None and key == key_of(effect) and not effect.ranks):
                continue
            if cause.attempt is not None and effect.attempt is not None and cause.attempt != effect.attempt:
                continue
            if _late(cause, effect):
                continue
            found.append(Edge(cause.event_id, effect.event_id, "collective"))
    return found


def _stops(event: Event) -> bool:
    if event.kind in VICTIM_KINDS or event.kind in QUIET_KINDS or event.attrs.get("lived_on") or event.attrs.get("outside"):
        return False
    return event.kind in DEADLY or event.kind in DERIVED or bool(event.attrs.get("traceback")) or event.severity in ("error", "fatal")


def _late(cause: Event, effect: Event) -> bool:
    """Whether the supposed cause came clearly after the effect."""
    if cause.time_ns is None or effect.time_ns is None or cause.kind in (Kind.KILLED, Kind.FATAL_SIGNAL, Kind.NATIVE_ABORT):
        return False  # an exit is stamped when the launcher noticed it
    margin = EARLY_NS + cause.time_error_ns + effect.time_error_ns
    return cause.time_ns - effect.time_ns > margin
