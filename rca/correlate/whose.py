"""Whose an event is: the device behind a bus id, the process behind a pid, the worker behind an address in its text.

An event keeps the place that its line states. What follows from it is added: `gpu` from a bus id or from the devices its process may see,
`role` and `rank` from a pid, and as attributes `users` (who uses a device that the kernel speaks of), `holders` (who holds the memory that was
missing) and `about` (the worker that a caller's report is about).
"""

from __future__ import annotations

import re
from typing import Any

from rca.correlate.identity import Identity, Writer
from rca.correlate.roles import world_of
from rca.correlate.workers import Worker
from rca.model import Event
from rca.taxonomy import Kind

HOLDER = re.compile(r"\bProcess (\d{1,9}) has ([\d.]{1,12}) ([KMGT])i?B memory in use")
GIB = {"K": 2**-20, "M": 2**-10, "G": 1.0, "T": 2**10}
ORDINAL = re.compile(r"\bGPU (\d{1,3})\b(?! ?[:/])|\b(?:cuda|npu|xpu|hip):(\d{1,3})\b", re.I)
DEVICE = frozenset(k for k in Kind if str(k).startswith("device."))
#: What a caller reports of somebody else; the report of a process about itself is about nobody else.
CALLS = frozenset({
    Kind.RPC_FAILED, Kind.RPC_TIMEOUT, Kind.RPC_REFUSED, Kind.RPC_ERROR_REPLY, Kind.ACTOR_DIED, Kind.ACTOR_SILENT, Kind.WEIGHTS_FAILED, Kind.WEIGHTS_SKIPPED,
    Kind.PARTIAL_RESULT, Kind.BATCH_MISMATCH, Kind.EVENT_LOST, Kind.EVENT_ACKNOWLEDGED, Kind.REQUEST_OPEN, Kind.SERVICE_LOST, Kind.STOP_FAILED, Kind.RETRIED,
    Kind.LOGGED_ERROR, Kind.PAYLOAD_DIFFERS, Kind.LATENCY_ROSE, Kind.PEER_LOST, Kind.EXCEPTION,
})  # fmt: skip
MOST = 8


def complete(event: Event, identity: Identity, writer: Writer | None) -> Event:
    """The event with what follows from its pid, its bus id, its process and its text."""
    changes: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    worker = writer.worker if writer is not None else None
    if worker is None or (event.pid is not None and worker.pid is not None and event.pid != worker.pid):
        worker = identity.workers.of_pid(event.host, event.pid) or (worker if writer is not None and event.pid == writer.pid else None)
    if worker is None and writer is not None and writer.worker is None and event.rank is not None:
        worker = identity.workers.ranked(writer.role, event.rank)  # one of those whose common file this is
    if worker is not None:
        changes["role"] = worker.role or event.role
        if world_of(worker.role) is None:
            changes["rank"] = event.rank if event.rank is not None else worker.rank
        elif _mixed(worker, writer, identity):
            changes["rank"] = None
            attrs["of"], attrs["index"] = worker.label, worker.rank if worker.rank is not None else worker.index
        if event.host is None:
            changes["host"] = worker.host
    host = changes.get("host", event.host)
    if event.kind in DEVICE:
        gpu = _gpu(event, identity, host, worker, writer)
        if gpu is not None:
            changes["gpu"] = gpu
            if users := _users(identity, host, gpu):
                attrs["users"] = users
        if (holders := HOLDER.findall(event.text)) and event.kind == Kind.DEVICE_OOM:
            attrs |= _holders(holders, identity, host)
    if event.nic or (event.bus_id and event.kind not in DEVICE):
        nic = identity.devices.nic(host, event.nic or event.bus_id)
        if nic is not None:
            changes["nic"] = nic.get("rdma") or event.nic or nic.get("netdev")
            attrs["nic_names"] = sorted(nic.values())
    if event.kind in CALLS and (spoken := [w for w in identity.workers.named_in(event.text[:1000]) if w is not worker][:MOST]):
        attrs["about"] = spoken[0].about()
        if len(spoken) > 1:
            attrs["abouts"] = [w.about() for w in spoken]
    changes = {k: v for k, v in changes.items() if v != getattr(event, k)}
    if not changes and not attrs:
        return event
    return event.but(**changes, attrs={**event.attrs, **attrs})


def _mixed(worker: Worker, writer: Writer | None, identity: Identity) -> bool:
    """Whether ranks of another world stand beside the worker's."""
    if writer is not None and writer.worker is worker:
        return writer.index is not None
    return any(w.index is not None for w in identity.writers if w.worker is worker) or any(w.role == "train" for w in identity.workers)


def _gpu(event: Event, identity: Identity, host: str | None, worker: Worker | None, writer: Writer | None) -> int | None:
    """The index of the device that an event is about."""
    if event.bus_id is not None:
        found = identity.devices.index(host, event.bus_id)
        return found if found is not None else event.gpu
    ordinal = event.gpu
    if ordinal is None and (m := ORDINAL.search(event.text)):
        ordinal = int(m[1] or m[2])
    devices = [d for d in (worker.devices if worker else writer.devices if writer else ()) if d.isdecimal()]
    if ordinal is not None and devices:
        # A process counts what it may see from 0; some print what nvidia-smi shows all the same.
        return int(devices[ordinal]) if ordinal < len(devices) else ordinal if str(ordinal) in devices else None
    if ordinal is not None:
        return ordinal
    if worker is not None and len(worker.gpus) == 1:
        return worker.gpus[0]
    return int(devices[0]) if len(devices) == 1 else None


def _users(identity: Identity, host: str | None, gpu: int) -> list[dict[str, Any]]:
    """Who uses a device, each as an event's `about`."""
    users = [w.about() for w in identity.workers.on(host, gpu)]
    known = {u.get("pid") for u in users}
    for pid in sorted(identity.devices.pids.get((host or "", gpu), ())):
        if pid not in known and (rank := identity.of_pid(identity.rank_of_pid, host, pid)) is not None:
            users.append({"worker": f"rank {rank}", "rank": rank, "host": host, "pid": pid, "gpu": gpu})
    return users


def _holders(found: list[tuple[str, str, str]], identity: Identity, host: str | None) -> dict[str, Any]:
    """The processes that hold memory of the device, the greatest first, and who the greatest is."""
    holders = sorted({int(pid): round(float(amount) * GIB[unit], 3) for pid, amount, unit in found if amount.count(".") < 2 and amount != "."}.items(), key=lambda h: -h[1])
    if not holders:
        return {}
    attrs: dict[str, Any] = {"holders": holders}
    who = identity.workers.of_pid(host, holders[0][0])
    rank = identity.of_pid(identity.rank_of_pid, host, holders[0][0])
    if who is not None:
        attrs["holder"] = who.about()
    elif rank is not None:
        attrs["holder"] = {"worker": f"rank {rank}", "rank": rank, "host": host, "pid": holders[0][0]}
    return attrs
