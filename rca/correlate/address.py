"""Which end of an unreachable address is at fault: a refusal comes back at once, only a dropped packet takes the whole time-out.

A client that is refused retries until its time is nearly up: the address it was given is wrong, or nobody listens. A client whose single
attempt lasts to the end of the time-out got no answer at all: something before the server drops its packets.
"""

from __future__ import annotations

import re

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

STATED_MS = re.compile(r"timed out after (\d+) ?ms")
TARGET = re.compile(r"connect to \(?\[?([\w.-]+?)\]?,? ?:?(\d{2,5})\)")
WHOLE = 0.97  # share of the stated time-out from which a single attempt must have lasted throughout


def about(event: Event, view: View) -> Event:
    """The event with `dropped` set, and the server's host as its place, where packets vanished."""
    stated, target = STATED_MS.search(event.text), TARGET.search(event.text)
    writer = view.identity.writer(event.source, event.attrs.get("stream", ""))
    first = writer.info["first"] if writer else None
    if not (stated and target and first and event.time_ns is not None):
        return event
    began = view.clock.resolve(first[0], event.host, not event.time_assumed)
    host = view.identity.name_of(target[1])
    if began is None or event.time_ns - began < WHOLE * int(stated[1]) * 1e6:
        return event
    server = host if host in view.identity.hosts else event.host
    return event.but(host=server, attrs={**event.attrs, "dropped": True, "client": event.host})


def cut_off(event: Event, view: View) -> Event:
    """A peer that cannot be reached, as an event of the peer's host; of the speaker's own where it complains of more hosts than complain of that one."""
    hosts, of = view.identity.hosts, view.identity.name_of
    peer = of(event.attrs.get("peer"))
    if peer not in hosts or event.host is None or peer == event.host:
        return event
    complaints = {(e.host, of(e.attrs.get("peer"))) for e in view.of(Kind.UNREACHABLE) if e.attrs.get("peer")}
    mine, about = {p for h, p in complaints if h == event.host}, {h for h, p in complaints if p == peer}
    if len(mine) > len(about):
        return event
    return event.but(host=peer, role=None, rank=None, local_rank=None, pid=None, actor=None, attrs={**event.attrs, "client": event.host})


def loops_back(event: Event, view: View) -> bool:
    """Whether a peer announced the loopback address although the job has several hosts: nobody else can reach it there."""
    peer = str(event.attrs.get("peer") or event.attrs.get("late_peer") or "")
    return peer.startswith(("127.", "::1", "localhost")) and len(view.identity.hosts) > 1
