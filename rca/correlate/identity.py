"""Who wrote what: files and streams become processes with rank, host, pid, attempt and role.

Nothing is required and nothing is unique: the same rank may appear as a torchrun folder (local rank), a log named after it, a
console prefix, a summary entry and an error file. They are joined by what they say, by equal first lines, by the launcher's own map of
local to global ranks, and by what workers, exporters and dumps say of names, addresses and devices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rca.correlate import hosts, members, ranks
from rca.correlate.devices import Devices
from rca.correlate.groups import Groups
from rca.correlate.names import Names, short
from rca.correlate.roles import INDEX, role_of, world_of
from rca.correlate.topology import Topology
from rca.correlate.workers import Worker, Workers
from rca.model import Reading
from rca.taxonomy import Kind

__all__ = ["Identity", "Writer", "resolve", "role_of", "short"]

RANKS_MAX = 1 << 20  # ten times the largest machines; a greater number counts something else


@dataclass
class Writer:
    """One stream of one file, and what is known about the process behind it."""

    source: str
    stream: str
    info: dict[str, Any]
    reading: Reading
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    actor: str | None = None
    attempt: int | None = None
    tree: str | None = None
    lent: bool = False  # its rank is that of the worker it belongs to: a process of its own beside it
    worker: Worker | None = None  # the member of a role that it is
    forwarded: bool = False  # its lines were passed on by somebody else, Ray's driver say, into whose file they came
    devices: tuple[str, ...] = ()  # what it may see of them, where it is no known worker
    index: int | None = None  # its number in a world that is not the trainer's, where `rank` stays None

    @property
    def role(self) -> str | None:
        return self.worker.role if self.worker is not None else role_of(self.actor)


@dataclass
class Identity:
    """The joined picture: writers, hosts, and the world's size."""

    writers: list[Writer]
    of_source: dict[str, dict[str, Writer]] = field(default_factory=dict)  # the same writers by file and stream
    hosts: list[str] = field(default_factory=list)
    world: int | None = None
    ranks_of_hosts: dict[int, str] = field(default_factory=dict)
    attempt_of_pid: dict[tuple[str | None, int], int] = field(default_factory=dict)  # pids count per host
    rank_of_pid: dict[tuple[str | None, int], int] = field(default_factory=dict)
    attempts: int = 1
    stated_world: bool = False  # some line says how many ranks there are
    names: Names = field(default_factory=lambda: Names({}))
    workers: Workers = field(default_factory=lambda: Workers(Names({})))
    devices: Devices = field(default_factory=Devices)
    groups: Groups = field(default_factory=Groups)
    colocated: dict[tuple[str, int], list[str]] = field(default_factory=dict)  # (host, gpu) -> workers of several roles that share it

    def name_of(self, text: str | None) -> str | None:
        """The one name of the host that a text spells: IP, URL, FQDN, pod or node."""
        return self.names.of(text)

    def of_pid(self, table: dict[tuple[str | None, int], int], host: str | None, pid: int | None) -> int | None:
        """What a table says of a pid: on that host, or on the only host that has it."""
        if pid is None:
            return None
        if (host, pid) in table:
            return table[host, pid]
        found = [v for (h, p), v in table.items() if p == pid] if host is None or not any(h == host for h, _ in table) else []
        return found[0] if len(found) == 1 else None

    def writer(self, source: str | None, stream: str) -> Writer | None:
        return self.of_source.get(source or "", {}).get(stream)

    def writers_of(self, source: str) -> list[Writer]:
        """The writers of one file."""
        return list(self.of_source.get(source, {}).values())


def resolve(readings: list[Reading], topology: Topology | None = None) -> Identity:
    """Join the writers of all files; what a topology gives comes before what they say."""
    writers = [_writer(r, key, info) for r in readings for key, info in sorted(r.facts.get("streams", {}).items())]
    identity = Identity(writers)
    for writer in writers:
        identity.of_source.setdefault(writer.source, {})[writer.stream] = writer
    exits = [e for r in readings for e in r.events if e.kind == Kind.EXITED]
    identity.names = hosts.learn(writers, readings, topology)
    hosts.assign(identity, readings, exits, topology)
    _named_after_hosts(identity)
    ranks.same_lines(writers)
    members.learn(identity, readings, topology)
    ranks.ranks(identity, exits)
    if not any(e.rank is not None for e in exits):
        ranks.tasks(identity)
    ranks.spread(identity, exits)
    worlds = Counter(w.info["facts"]["world"] for w in writers if not world_of(w.role) and 0 < w.info["facts"].get("world", 0) <= RANKS_MAX)
    seen = [r for r in (*(w.rank for w in writers), *(e.rank for e in exits)) if r is not None and r < RANKS_MAX]
    stated = max(worlds, key=lambda k: (worlds[k], k)) if worlds else None
    identity.world = max([stated or 0, *(r + 1 for r in seen)]) or None
    identity.stated_world = stated is not None or any(e.rank is not None for e in exits)
    members.group(identity, readings, topology)
    identity.attempts = max([0, *(w.attempt for w in writers if w.attempt is not None)]) + 1
    return identity


def _named_after_hosts(identity: Identity) -> None:
    """`worker-29_server0.log` is a file of the host worker-29 where the run has one, and not of rank 29."""
    for writer in identity.writers:
        number = writer.reading.facts.get("named_rank")
        if number is not None and writer.rank == number and "rank" not in writer.info["facts"] and writer.info["rank"] is None:
            stem = writer.source.rsplit("/", 1)[-1].split(".")[0]
            if any(t != stem and t in identity.hosts and (m := INDEX.search(t)) and int(m[1]) == number for t in hosts.tokens(writer.source)):
                writer.rank = None


def _writer(reading: Reading, key: str, info: dict[str, Any]) -> Writer:
    facts, said = reading.facts, info["facts"]
    actor = info["actor"] or facts.get("actor")
    forwarded = bool(actor) and info["pid"] is not None and key.startswith(f"{actor} {info['pid']}")  # by Ray's driver: another process than the file's
    if actor and not INDEX.search(actor) and actor != facts.get("actor") and role_of(actor) not in ("controller", "meta_server") and not forwarded:
        actor = facts.get("actor")  # `train` is the name of a logger, `train-0` that of a process
    # What a named member of a role calls its rank counts within that role; the launcher's map is asked first (see `ranks.spread`).
    member = role_of(actor) if INDEX.search(actor or "") else None
    own_rank = (None if "named_rank" not in facts or world_of(member) else facts["named_rank"]) if member else said.get("rank", facts.get("named_rank"))
    return Writer(
        reading.source, key, info, reading,
        rank=info["rank"] if info["rank"] is not None else own_rank,
        local_rank=facts.get("local_rank", info["local_rank"] if info["local_rank"] is not None else said.get("local_rank")),
        host=info["host"] or said.get("host"), pid=said.get("pid") or info["pid"] or facts.get("pid"), actor=actor,
        attempt=facts.get("attempt"), tree=facts.get("tree"), forwarded=forwarded,
    )  # fmt: skip
