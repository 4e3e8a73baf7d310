"""Workers: role, index, place, pid and devices of every process that somebody introduces or calls.

A worker is known by its role and index (`rollout/9`), by its address (`10.4.7.17:30001`), or by host and pid. Each statement adds to what
is known; an address that several workers are said to have is nobody's. A restart gives a worker another pid: the last one stated stands for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rca.correlate.names import Names
from rca.correlate.roles import role_of

#: Nouns that say nothing of the role; what listens and answers requests for text is mostly an engine of the rollout.
NOUN = re.compile(r"(?:worker|engine|server|replica|instance|process|proc|client|workerdict)\Z", re.I)
URL = re.compile(r"(?<![\w.-])((?:\d{1,3}\.){3}\d{1,3}|[A-Za-z][A-Za-z\d.-]{1,80}):(\d{4,5})(?!\d)")
CONNECT = re.compile(r"\('((?:\d{1,3}\.){3}\d{1,3}|[\w.-]{2,80})', (\d{4,5})\)")
MENTION = re.compile(r"(?<![\w./-])'?([A-Za-z][A-Za-z_-]{1,40}?)(?:[ _/-]?#|[ /_:-]|\[| rank | no\.? )(\d{1,5})(?![\w.%]|:\d)")
BRACKET = re.compile(r"(?<![\w./-])([A-Za-z][A-Za-z_-]{1,30})[ /_-](\d{1,5}) \(((?:\d{1,3}\.){3}\d{1,3})(?::\d{2,5})?\)")


@dataclass
class Worker:
    """One process that has a role and a number in it."""

    role: str | None
    index: int
    host: str | None = None
    port: int | None = None
    pid: int | None = None
    devices: tuple[str, ...] = ()  # as its *_VISIBLE_DEVICES says: physical indexes or uuids, in the order of its own ordinals
    gpus: tuple[int, ...] = ()  # the indexes that nvidia-smi shows of those it uses
    rank: int | None = None  # global within its role's world
    local_rank: int | None = None
    world: int | None = None
    actor: str | None = None  # what its own log calls it
    pids: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.role or 'worker'}/{self.index}"

    @property
    def label(self) -> str:
        """The actor that stands for it among the processes."""
        return self.actor or f"{self.role or 'worker'}-{self.index}"

    def about(self) -> dict[str, Any]:
        """What an event that speaks of it carries."""
        told = {"worker": self.name, "role": self.role, "rank": self.rank if self.rank is not None else self.index, "host": self.host, "pid": self.pid,
                "gpu": self.gpus[0] if len(self.gpus) == 1 else None, "gpus": list(self.gpus) or None}  # fmt: skip
        return {k: v for k, v in told.items() if v is not None}


class Workers:
    """All workers of a run, and how to find them."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._named: dict[tuple[str | None, int], Worker] = {}
        self._ports: dict[tuple[str, int], set[tuple[str | None, int]]] = {}
        self._votes: dict[tuple[str | None, int], Counter[tuple[str, int | None]]] = {}
        self._pids: dict[tuple[str | None, int], Worker] = {}
        self.of_proc: dict[tuple[str | None, int], dict[str, Any]] = {}  # what processes without role say of themselves, by host and pid

    def __iter__(self) -> Any:
        return iter(sorted(self._named.values(), key=lambda w: (str(w.role), w.index)))

    def get(self, role: str | None, index: int | None) -> Worker | None:
        return self._named.get((role, index)) if index is not None else None

    def ranked(self, role: str | None, rank: int | None) -> Worker | None:
        """The member of a role's world that introduced itself with that rank, or with that number where it told no rank."""
        if rank is None:
            return None
        worker = self.get(role or "train", rank)
        if worker is None or worker.rank not in (None, rank):
            worker = next((w for w in self if w.role == (role or "train") and w.rank == rank), None)
        return worker if worker is not None and (worker.pid is not None or worker.devices) else None

    def listens(self, role: str | None, index: int, host: str | None, port: int | None) -> None:
        """Note where a worker listens, as somebody who knows says."""
        if host is not None and port is not None:
            self._ports[host, port] = {(role, index)}

    def add(self, role: str | None, index: int) -> Worker:
        return self._named.setdefault((role, index), Worker(role, index))

    def said(self, fields: dict[str, Any], host: str | None, *, role: str | None = None) -> Worker | None:
        """Take one statement; `host` is where the speaker runs, which counts where it speaks of itself."""
        own = bool(fields.get("own"))
        where = self.names.of(fields.get("host") or fields.get("ip")) or (host if own else None)
        role = role or role_of(fields.get("name"))
        index = fields.get("index")
        if index is None:
            if where is not None and fields.get("pid") is not None:
                self.of_proc.setdefault((where, fields["pid"]), {}).update({k: fields[k] for k in ("rank", "local_rank", "devices") if k in fields})
            return None
        port = fields.get("port")
        if role is None:
            return None
        if not own and not (where and port):
            return None
        worker = self.add(role, index)
        if own:
            if worker.pid is not None and fields.get("pid") not in (None, worker.pid):
                worker = self._named[role, index] = Worker(role, index, actor=worker.actor, pids=worker.pids)  # started anew
            worker.host = where or worker.host
            for name in ("port", "pid", "rank", "local_rank", "world"):
                if name in fields:
                    setattr(worker, name, fields[name])
            if "devices" in fields:
                worker.devices = tuple(d for d in fields["devices"].split(",") if d)
            if worker.pid is not None:
                worker.pids.add(worker.pid)
                self._pids[worker.host, worker.pid] = worker
        if where and port:
            self._ports.setdefault((where, port), set()).add((role, index))
            if not own:
                self._votes.setdefault((role, index), Counter())[where, port] += 1
        return worker

    def settle(self) -> None:
        """Give every worker the address that is said of it most often and of nobody else."""
        for key, votes in self._votes.items():
            worker = self._named[key]
            fitting = [(place, n) for place, n in votes.items() if len(self._ports.get(place, ())) == 1]
            if fitting and worker.port is None:
                worker.host, worker.port = min(fitting, key=lambda v: (-v[1], v[0]))[0] if worker.host is None else (worker.host, worker.port)
                if worker.port is None:
                    worker.port = next((p for (h, p), _ in sorted(fitting, key=lambda v: -v[1]) if h == worker.host), None)
        self._named = {k: w for k, w in self._named.items() if w.host is not None or w.pid is not None or w.actor is not None}

    def at(self, host: str | None, port: int | None) -> Worker | None:
        """The one worker that listens there."""
        keys = self._ports.get((self.names.of(host) or "", port or 0), ())
        return self._named.get(next(iter(keys))) if len(keys) == 1 else None

    def of_pid(self, host: str | None, pid: int | None) -> Worker | None:
        """The worker with that pid: on that host, or the only one where the host is not known."""
        if pid is None:
            return None
        if host is not None:
            return self._pids.get((host, pid))
        found = {id(w): w for (_, p), w in self._pids.items() if p == pid}
        return next(iter(found.values())) if len(found) == 1 else None

    def on(self, host: str | None, gpu: int) -> list[Worker]:
        """The workers that use a device."""
        return [w for w in self if w.host == host and gpu in w.gpus] if host is not None else []

    def named_in(self, text: str) -> list[Worker]:
        """The workers that a text speaks of, by address or by role and number, in the order of the text."""
        found: dict[str, tuple[int, Worker]] = {}
        for pattern in (URL, CONNECT):
            for m in pattern.finditer(text):
                if (worker := self.at(m[1], int(m[2]))) is not None:
                    found.setdefault(worker.name, (m.start(), worker))
        for m in BRACKET.finditer(text):
            if (worker := self.numbered(m[1], int(m[2]), m[3])) is not None:
                found.setdefault(worker.name, (m.start(), worker))
        for m in MENTION.finditer(text):
            role = role_of(m[1])
            worker = self.get(role, int(m[2])) if role is not None and not m[1].lower().endswith(("step", "batch", "version")) else None
            if worker is not None and (m[0][-len(m[2]) - 1] != " " or NOUN.search(m[1])):
                found.setdefault(worker.name, (m.start(), worker))
        return [worker for _, worker in sorted(found.values(), key=lambda v: v[0])]

    def numbered(self, noun: str, index: int, address: str | None) -> Worker | None:
        """`server 0 (10.10.102.70)`: by role and number; a noun without a role means the one worker of that number on that host."""
        host = self.names.of(address) if address else None
        role = role_of(noun)
        if role is not None:
            return self.get(role, index)
        if not NOUN.search(noun) or host is None:
            return None
        fitting = [w for w in self if w.index == index and w.host == host]
        if len(fitting) > 1:  # what serves requests is an engine of the rollout rather than a rank of the trainer
            fitting = [w for w in fitting if w.role == "rollout"]
        return fitting[0] if len(fitting) == 1 else None


def colocated(workers: Iterable[Worker]) -> dict[tuple[str, int], list[str]]:
    """Devices that workers of several roles use, with the workers' names.

    >>> a, b = Worker("train", 1, host="h", gpus=(1,)), Worker("rollout", 9, host="h", gpus=(1,))
    >>> colocated([a, b])
    {('h', 1): ['train/1', 'rollout/9']}
    """
    users: dict[tuple[str, int], list[Worker]] = {}
    for worker in workers:
        for gpu in worker.gpus if worker.host else ():
            users.setdefault((worker.host or "", gpu), []).append(worker)
    return {place: [w.name for w in who] for place, who in sorted(users.items()) if len({w.role for w in who}) > 1}
