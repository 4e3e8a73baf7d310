"""Members: which worker each writer is, on which device, and in whose world its rank counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rca.correlate.groups import Groups, agreed
from rca.correlate.roles import INDEX, role_of, world_of
from rca.correlate.topology import Topology
from rca.correlate.workers import NOUN, Worker, Workers, colocated
from rca.model import Reading

if TYPE_CHECKING:
    from rca.correlate.identity import Identity, Writer

ROLE_FOLDERS = 2  # folders above a file whose name may tell the role of a `server_0.log` in it


def learn(identity: Identity, readings: list[Reading], topology: Topology | None) -> None:
    """Learn workers and devices, then tell every writer which worker it is."""
    workers = identity.workers = Workers(identity.names)
    host_of = _host_of(identity)
    own: dict[tuple[str, str], list[Worker]] = {}
    later: list[tuple[str, dict[str, Any], str]] = []  # of devices, in files whose host only their worker tells
    for reading in readings:
        for kind, fields in reading.facts.get("sightings", ()):
            if kind == "worker":
                writer = identity.writer(reading.source, fields.get("stream", ""))
                host = writer.host if writer else host_of.get(reading.source)
                worker = workers.said(fields, host, role=_role_of_place(fields.get("name"), reading.source))
                if fields.get("own") and (worker is not None or fields.get("index") is None):
                    own.setdefault((reading.source, fields.get("stream", "")), []).append(worker or _nameless(fields))
            elif kind in ("gpu", "nic"):
                where = identity.names.of(fields["host"]) if fields.get("host") else host_of.get(reading.source)
                if where is None:
                    later.append((kind, fields, reading.source))
                else:
                    _device(identity, kind, fields, where)
            elif kind == "actor":
                for writer in identity.writers_of(reading.source):
                    writer.actor = writer.actor or fields["name"]
    if topology is not None:
        _given(identity, topology)
    _by_file_name(identity)
    workers.settle()
    for writer in identity.writers:
        _bind(writer, identity, own.get((writer.source, writer.stream), []))
    _prefixed(identity)
    _by_rank(identity)
    _drivers(identity)
    _number(identity)
    for kind, fields, source in later:
        hosts = {w.host or (w.worker.host if w.worker is not None else None) for w in identity.writers_of(source)} - {None}
        if len(hosts) == 1:
            _device(identity, kind, fields, hosts.pop())
    for worker in workers:
        worker.gpus = _gpus(worker, identity)


def _device(identity: Identity, kind: str, fields: dict[str, Any], host: str) -> None:
    (identity.devices.said if kind == "gpu" else identity.devices.said_nic)(fields, host)


def group(identity: Identity, readings: list[Reading], topology: Topology | None) -> None:
    """The parallel groups of the trainer's ranks, and the devices that several roles share."""
    stated: list[dict[str, int]] = []
    places: dict[int, dict[str, int]] = {}
    for reading in readings:
        if any(world_of(w.role) for w in identity.writers_of(reading.source)):
            continue  # an engine prints its own degrees
        for kind, fields in reading.facts.get("sightings", ()):
            if kind == "sizes":
                stated.append(fields)
            elif kind == "place" and fields.get("world") == identity.world:
                places[fields["rank"]] = {axis: n for axis, n in fields.items() if axis not in ("rank", "world")}
    sizes = topology.sizes if topology is not None and topology.sizes else agreed(stated)
    whole = places if len(places) == identity.world else None
    identity.groups = Groups(sizes, identity.world, topology.groups if topology is not None else None, whole)
    identity.colocated = colocated(identity.workers)


def _host_of(identity: Identity) -> dict[str, str]:
    hosts: dict[str, Counter[str]] = {}
    for writer in identity.writers:
        if writer.host:
            hosts.setdefault(writer.source, Counter())[writer.host] += 1
    return {source: names.most_common(1)[0][0] for source, names in hosts.items() if len(names) == 1}


def _nameless(fields: dict[str, Any]) -> Worker:
    """What a process says of itself that names no role: only its devices and ranks."""
    devices = tuple(d for d in fields.get("devices", "").split(",") if d)
    return Worker(None, -1, pid=fields.get("pid"), rank=fields.get("rank"), local_rank=fields.get("local_rank"), devices=devices)


def _role_of_place(name: str | None, source: str) -> str | None:
    """The role that a worker's own noun tells; of a bare `server` or `worker` that of the folder its file lies in."""
    if role := role_of(name):
        return role
    if name is None or not NOUN.search(name):
        return None
    parts = source.split("/")
    return next((role for part in reversed(parts[-1 - ROLE_FOLDERS :]) if (role := role_of(part.split(".")[0])) and role not in ("controller", "launcher")), None)


def _by_file_name(identity: Identity) -> None:
    """`actor-worker-3.log`, `ref_1.log`, `vllm/server_0.log`: a role and a number in a name are a worker."""
    for writer in identity.writers:
        actor = writer.actor
        number = INDEX.search(actor or "")
        if actor is None or number is None or len(number[1]) > 5 or actor != writer.reading.facts.get("actor"):
            continue
        role = _role_of_place(actor[: number.start()].rstrip("-_.#") or None, writer.source)
        if role is None or role in ("controller", "launcher", "meta_server", "dataloader"):
            continue
        worker = identity.workers.add(role, int(number[1]))
        worker.actor = worker.actor or actor
        worker.host = worker.host or writer.host


def _bind(writer: Writer, identity: Identity, own: list[Worker]) -> None:
    """Tell a writer which worker it is: by its own introduction, by host and pid, or by its name."""
    distinct = {(w.role, w.index): w for w in own}
    worker = next(iter(distinct.values())) if len(distinct) == 1 else None
    if worker is not None and worker.index < 0:
        writer.pid = writer.pid if writer.pid is not None else worker.pid
        if writer.local_rank is None:
            writer.local_rank = worker.local_rank
        writer.devices = worker.devices
        worker = None
    worker = worker or identity.workers.of_pid(writer.host, writer.pid)
    number = INDEX.search(writer.actor or "")
    if worker is None and number is not None and writer.actor == writer.reading.facts.get("actor") and len(number[1]) <= 5:
        worker = identity.workers.get(_role_of_place(writer.actor[: number.start()].rstrip("-_.#") or None, writer.source), int(number[1]))
    if worker is None:
        return
    writer.worker = worker
    writer.host = writer.host or worker.host
    worker.host = worker.host or writer.host
    if writer.pid is None and len(worker.pids) < 2:
        writer.pid = worker.pid
    if worker.pid is None:
        worker.pid = writer.pid
    if writer.local_rank is None:
        writer.local_rank = worker.local_rank
    if worker.actor is None and number is not None and role_of(writer.actor) == worker.role:
        worker.actor = writer.actor


def _prefixed(identity: Identity) -> None:
    """`(PolicyActor pid=7) [rank2]: ...` is one process, with and without the inner prefix: each lends the other what it knows."""
    for streams in identity.of_source.values():
        for name, inner in streams.items():
            outer = streams.get(name.rpartition("/")[0]) if "/" in name else None
            if outer is None or inner.pid is None or inner.pid != outer.pid:
                continue
            for key in ("rank", "host", "worker"):
                mine, other = getattr(inner, key), getattr(outer, key)
                if (mine is None) != (other is None):
                    setattr(inner if mine is None else outer, key, other if mine is None else mine)


def _by_rank(identity: Identity) -> None:
    """In a console that all ranks share each says once where it runs, under which pid and on which device: `rank 7/8 on gn9 (10.0.0.9) pid 216 device cuda:3`."""
    said: dict[int, dict[tuple[str, int], dict[str, Any]]] = {}
    for (host, pid), fields in identity.workers.of_proc.items():
        if "rank" in fields and host is not None:
            said.setdefault(fields["rank"], {})[host, pid] = fields
    for rank, places in said.items():
        hosts = {host for host, _ in places}
        if len(hosts) > 1:
            continue  # ranks of several worlds
        identity.ranks_of_hosts.setdefault(rank, next(iter(hosts)))
        for place in places:
            identity.rank_of_pid.setdefault(place, rank)
        devices = {fields.get("devices") for fields in places.values()} - {None}
        for writer in identity.writers:
            if writer.rank == rank and writer.worker is None and not writer.devices and len(devices) == 1:
                writer.devices = tuple(d for d in next(iter(devices)).split(",") if d)


def _drivers(identity: Identity) -> None:
    """Ray's driver names the address of every worker but those on its own node: where these are, it is."""
    for streams in identity.of_source.values():
        near = {w.host for w in streams.values() if w.forwarded and w.info["host"] is None and w.host}
        if len(near) == 1:
            host = next(iter(near))
            for writer in streams.values():
                writer.host = writer.host or host


def _number(identity: Identity) -> None:
    """Keep the worlds apart: only the trainer's ranks stay ranks while the run is joined; others are numbered within their role."""
    mine = [w for w in identity.writers if w.worker is None or world_of(w.role) is None]
    ranks = {r for w in mine for r in (w.rank, w.worker.rank if w.worker else None) if r is not None}
    counted = _counted(identity)
    for writer in identity.writers:
        worker = writer.worker
        if worker is None:
            continue
        if world_of(worker.role) is None:
            # `train worker 5` is rank 5 where no launcher counts otherwise.
            number = worker.rank if worker.rank is not None else worker.index if worker.role == "train" and writer.tree is None and worker.pid is not None and (worker.world is not None or counted) else None
            writer.rank = number if number is not None else writer.rank
        elif writer.rank is not None and worker.rank is None and writer.rank != worker.index and writer.rank not in ranks:
            continue  # counted behind the trainers: the members of a group that spans both roles
        elif ranks:
            writer.index = worker.rank if worker.rank is not None else worker.index
            writer.rank = None
            writer.actor = worker.label


def _counted(identity: Identity) -> bool:
    """Whether the trainer's workers are its ranks: counted from 0 without a gap, each on one device, and none says otherwise."""
    mine = sorted((w for w in identity.workers if w.role == "train"), key=lambda w: w.index)
    return len(mine) > 1 and [w.index for w in mine] == list(range(len(mine))) and all(w.pid is not None and len(w.devices) == 1 and w.rank in (None, w.index) for w in mine)


def _gpus(worker: Worker, identity: Identity) -> tuple[int, ...]:
    """The indexes of the devices that a worker uses: as NCCL or nvidia-smi tells of its pid, else as it was allowed to see."""
    devices = identity.devices
    if worker.pid is not None and worker.host and (used := sorted(i for (h, i), pids in devices.pids.items() if h == worker.host and worker.pid in pids)):
        return tuple(used)
    seen = [int(d) if d.isdecimal() else devices.of_uuid(d) for d in worker.devices]
    known = tuple(d for d in seen if d is not None)
    if len(known) > 1 and worker.role == "train" and worker.local_rank is not None and worker.local_rank < len(known):
        return (known[worker.local_rank],)  # each rank takes the device of its number among those it sees
    if not known and worker.local_rank is not None and worker.role == "train":
        return (worker.local_rank,)
    return known


def _given(identity: Identity, topology: Topology) -> None:
    """What the operator gives holds before anything that was learned."""
    for host in topology.hosts:
        for index, bus in enumerate(host.gpus):
            identity.devices.said({"index": index, "bus": bus}, host.name)
        for nic in host.nics:
            identity.devices.said_nic(nic, host.name)
    for member in topology.ranks:
        worker = identity.workers.add(member.role, member.rank)
        worker.rank = member.rank
        worker.host = identity.names.of(member.host) or worker.host
        worker.devices = tuple(str(g) for g in member.gpus) or worker.devices
        worker.port = member.port or worker.port
        identity.workers.listens(member.role, member.rank, worker.host, member.port)
