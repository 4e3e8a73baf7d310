"""Who wrote what: files and streams become processes with rank, host, pid, attempt and role.

Nothing is required and nothing is unique: the same rank may appear as a torchrun folder (local rank), a log named after it, a
console prefix, a summary entry and an error file. They are joined by what they say, by equal first lines, and by the
launcher's own map of local to global ranks.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rca.model import Event, Reading
from rca.taxonomy import Kind

TEE = re.compile(r"^\[[^\]\s]*?\d+\]:\s?")
HOSTLIKE = re.compile(r"^(?:[A-Za-z][A-Za-z0-9_-]*\d[\w-]*|(?:node|host|gpu|dgx|hgx|server|machine)[-_][A-Za-z]{1,12})$")
NOT_HOSTS = re.compile(r"^(?:localhost|none|null|127\..*|0\.0\.0\.0|rank\d+|worker_?\d+|kernel|default\d*|python\d*)$", re.I)
ROLES = (
    ("meta_server", re.compile(r"meta")),
    ("controller", re.compile(r"controller|driver|master|orchestrat")),
    ("rollout", re.compile(r"rollout|infer|generat|sampler|vllm|sglang")),
    ("reference", re.compile(r"(?:^|[_-])ref(?:erence)?(?:[_-]|\d|$)")),
    ("reward", re.compile(r"reward|verifier")),
    ("critic", re.compile(r"critic|value")),
    ("dataloader", re.compile(r"data_?loader|data_?worker")),
    ("launcher", re.compile(r"launcher|torchrun|elastic|agent")),
    ("train", re.compile(r"train|actor|policy|learner")),
)
PACKED = re.compile(r"(?:\.tar(?:\.\w{2,4})?|\.tgz|\.zip)!/")  # `node-7.tar.gz!/dmesg.log`
INDEX = re.compile(r"(\d+)$")
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

    @property
    def role(self) -> str | None:
        return role_of(self.actor)


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


def role_of(actor: str | None) -> str | None:
    """The role that an actor's name speaks of, or None.

    >>> role_of("engine_rollout-0"), role_of("meta_server"), role_of("dmesg")
    ('rollout', 'meta_server', None)
    """
    low = (actor or "").lower()
    return next((role for role, pattern in ROLES if pattern.search(low)), None)


def resolve(readings: list[Reading]) -> Identity:
    """Join the writers of all files."""
    writers = [_writer(r, key, info) for r in readings for key, info in sorted(r.facts.get("streams", {}).items())]
    identity = Identity(writers)
    for writer in writers:
        identity.of_source.setdefault(writer.source, {})[writer.stream] = writer
    exits = [e for r in readings for e in r.events if e.kind == Kind.EXITED]
    _hosts(identity, readings, exits)
    _same_lines(writers)
    _ranks(identity, exits)
    if not any(e.rank is not None for e in exits):
        _tasks(identity)
    _spread(identity, exits)
    worlds = Counter(w.info["facts"]["world"] for w in writers if 0 < w.info["facts"].get("world", 0) <= RANKS_MAX)
    seen = [r for r in (*(w.rank for w in writers), *(e.rank for e in exits)) if r is not None and r < RANKS_MAX]
    stated = max(worlds, key=lambda k: (worlds[k], k)) if worlds else None
    identity.world = max([stated or 0, *(r + 1 for r in seen)]) or None
    identity.stated_world = stated is not None or any(e.rank is not None for e in exits)
    identity.attempts = max([0, *(w.attempt for w in writers if w.attempt is not None)]) + 1
    return identity


def _writer(reading: Reading, key: str, info: dict[str, Any]) -> Writer:
    facts, said = reading.facts, info["facts"]
    actor = info["actor"] or facts.get("actor")
    if actor and not INDEX.search(actor) and actor != facts.get("actor") and role_of(actor) not in ("controller", "meta_server"):
        actor = facts.get("actor")  # `train` is the name of a logger, `train-0` that of a process
    # What a named member of a role calls its rank counts within that role; the launcher's map is asked first (see `_spread`).
    own_rank = None if role_of(actor) and INDEX.search(actor or "") else said.get("rank", facts.get("named_rank"))
    return Writer(
        reading.source, key, info, reading,
        rank=info["rank"] if info["rank"] is not None else own_rank,
        local_rank=facts.get("local_rank", info["local_rank"] if info["local_rank"] is not None else said.get("local_rank")),
        host=info["host"] or said.get("host"), pid=said.get("pid") or info["pid"] or facts.get("pid"), actor=actor,
        attempt=facts.get("attempt"), tree=facts.get("tree"),
    )  # fmt: skip


def _hosts(identity: Identity, readings: list[Reading], exits: list[Event]) -> None:
    """Collect host names, then give each file the host that its content, its tree or its name speaks of."""
    names = Counter(short(w.host) for w in identity.writers if w.host and not NOT_HOSTS.match(w.host))
    names.update(short(e.host) for r in readings for e in r.events if e.host and not NOT_HOSTS.match(e.host))
    names.update(short(e.host) for e in exits if e.host)
    tokens = {r.source: [t for t in r.facts.get("tokens", ()) if HOSTLIKE.match(t) and not NOT_HOSTS.match(t)] for r in readings}
    for source, folders in _host_folders(readings).items():
        tokens[source] = tokens[source] + folders
    if len({t for ts in tokens.values() for t in ts}) >= 2:
        names.update(t for ts in tokens.values() for t in ts[-1:])
    names.pop(None, None)
    known = sorted(names, key=lambda n: (-len(n), n))
    by_source: dict[str, str] = {}
    for reading in readings:
        own = Counter(short(w.host) for w in identity.writers_of(reading.source) if w.host and short(w.host) in names)
        own.update(short(e.host) for e in reading.events if e.kind == Kind.EXITED and e.host)
        if len(own) == 1:
            by_source[reading.source] = next(iter(own))
        elif not own:
            path = reading.source.replace("_", ".")
            match = next((n for n in known if n in path and re.search(rf"(?<![\w]){re.escape(n)}(?![\w])", path)), None)
            if match or len(names) == 1:
                by_source[reading.source] = match or known[0]
    for writer in identity.writers:
        host = short(writer.host)
        writer.host = host if host in names else by_source.get(writer.source)
    trees: dict[str, Counter] = {}
    for writer in identity.writers:
        if writer.tree and writer.host:
            trees.setdefault(writer.tree, Counter())[writer.host] += 1
    for writer in identity.writers:
        if writer.host is None and writer.tree in trees:
            writer.host = trees[writer.tree].most_common(1)[0][0]
    identity.hosts = sorted(names)


def _host_folders(readings: list[Reading]) -> dict[str, list[str]]:
    """Folders, or archives, named after hosts: siblings at one depth that all look like host names."""
    by_depth: dict[tuple[int, str], set[str]] = {}
    for reading in readings:
        parts = PACKED.sub("/", reading.source).split("/")[:-1]
        for depth, part in enumerate(parts):
            by_depth.setdefault((depth, "/".join(parts[:depth])), set()).add(part)
    good = {
        (depth, above) for (depth, above), names in by_depth.items()
        if len(names) >= 2 and all(HOSTLIKE.match(n) and not NOT_HOSTS.match(n) and not n.startswith(("attempt_", "none_", "torchrun", "log")) and not re.search(r"rank|step|epoch|run_", n) for n in names)
    }  # fmt: skip
    found: dict[str, list[str]] = {}
    for reading in readings:
        parts = PACKED.sub("/", reading.source).split("/")[:-1]
        found[reading.source] = [p for d, p in enumerate(parts) if (d, "/".join(parts[:d])) in good]
    return found


def short(host: str | None) -> str | None:
    """A host's first label; addresses stay whole.

    >>> short("node-7.cluster.local"), short("10.0.0.1")
    ('node-7', '10.0.0.1')
    """
    return host if host is None or re.fullmatch(r"[\d.]+", host) else host.split(".", 1)[0]


def _same_lines(writers: list[Writer]) -> None:
    """A named log whose first line also opens a file of the torchrun tree is the same process."""
    first: dict[str, Writer] = {}
    for writer in writers:
        if writer.tree and writer.info["first"]:
            first.setdefault(TEE.sub("", writer.info["first"][5]), writer)
    for writer in writers:
        if writer.tree or not writer.info["first"]:
            continue
        twin = first.get(TEE.sub("", writer.info["first"][5]))
        if twin:
            for name in ("rank", "local_rank", "host", "pid"):
                if getattr(writer, name) is None:
                    setattr(writer, name, getattr(twin, name))
            if twin.actor is None and writer.actor:
                twin.actor = writer.actor


def _ranks(identity: Identity, exits: list[Event]) -> None:
    """Fill global ranks from local ones: by the launcher's summary, by a twin that knows both, or by a single node."""
    table: dict[tuple[str | None, int], int] = {}
    for event in exits:
        if event.rank is not None and event.local_rank is not None:
            table[short(event.host), event.local_rank] = event.rank
    for writer in identity.writers:
        if writer.rank is not None and writer.local_rank is not None:
            table.setdefault((writer.host, writer.local_rank), writer.rank)
    nodes = {w.tree for w in identity.writers if w.tree} or {None}
    alone = len(nodes) == 1 and len(identity.hosts) <= 1
    for writer in identity.writers:
        if writer.rank is None and writer.local_rank is not None:
            writer.rank = table.get((writer.host, writer.local_rank), writer.local_rank if alone else None)


def _tasks(identity: Identity) -> None:
    """The task number before each line (`srun --label`, a launcher's `[3] `) is the rank where nothing else in the run names any.

    With one launcher per node it would count nodes; but then the workers' own lines, tracebacks and summaries state ranks.
    """
    if any(w.rank is not None or w.local_rank is not None or "rank" in w.info["facts"] or "local_rank" in w.info["facts"] for w in identity.writers):
        return
    if len({w.source for w in identity.writers if w.stream.isdecimal()}) != 1:
        return
    tasks = {int(w.stream): w for w in identity.writers if w.stream.isdecimal() and len(w.stream) < 6}
    if len(tasks) > 1 and sorted(tasks) == list(range(len(tasks))):
        for number, writer in tasks.items():
            writer.rank = number


def _spread(identity: Identity, exits: list[Event]) -> None:
    """Let processes lend each other what they know: actor <-> rank, pid -> rank and attempt, rank -> host."""
    by_actor: dict[tuple[str, str], Writer] = {}
    for writer in identity.writers:
        if writer.actor and writer.rank is not None and writer.local_rank is not None and (key := _actor_key(writer.actor)):
            by_actor.setdefault(key, writer)
    for writer in identity.writers:
        twin = by_actor.get(_actor_key(writer.actor) or ("", "")) if writer.rank is None else None
        if twin:
            writer.rank, writer.host = twin.rank, writer.host or twin.host
            writer.lent = writer.actor != twin.actor
        elif writer.rank is None and "rank" in writer.info["facts"]:
            writer.rank, writer.lent = writer.info["facts"]["rank"], True
    labelled = {(w.source, w.stream.lstrip("0") or "0") for w in identity.writers if w.rank is not None and w.stream.isdecimal() and int(w.stream) == w.rank}
    for event in exits:
        task = str(event.attrs.get("tasks") or "")
        if event.host and (event.source, task) in labelled:  # Slurm names the host of a task, and the tasks of this job are its ranks
            identity.ranks_of_hosts.setdefault(int(task), short(event.host) or event.host)
        if event.rank is not None and event.host:
            identity.ranks_of_hosts.setdefault(event.rank, short(event.host) or event.host)
        if event.pid and event.rank is not None:
            identity.rank_of_pid.setdefault((short(event.host), event.pid), event.rank)
        if event.pid and event.attempt is not None:
            identity.attempt_of_pid.setdefault((short(event.host), event.pid), event.attempt)
    for writer in identity.writers:
        if writer.rank is not None and writer.host:
            identity.ranks_of_hosts.setdefault(writer.rank, writer.host)
        if writer.pid and writer.rank is not None and not writer.lent:
            identity.rank_of_pid.setdefault((writer.host, writer.pid), writer.rank)
        if writer.pid and writer.attempt is not None:
            identity.attempt_of_pid.setdefault((writer.host, writer.pid), writer.attempt)
    for writer in identity.writers:
        if writer.host is None and writer.rank is not None:
            writer.host = identity.ranks_of_hosts.get(writer.rank)


def _actor_key(actor: str | None) -> tuple[str, str] | None:
    """`engine_train-1` and `train-1` are one member of one role."""
    role, index = role_of(actor), INDEX.search(actor or "")
    return (role, index[1]) if role and index else None
