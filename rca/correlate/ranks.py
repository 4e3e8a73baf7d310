"""Ranks: local ones become global, and processes lend each other what they know.

The same rank may appear as a torchrun folder (local rank), a log named after it, a console prefix, a summary entry and an error file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rca.correlate.roles import INDEX, role_of
from rca.model import Event

if TYPE_CHECKING:
    from rca.correlate.identity import Identity, Writer

TEE = re.compile(r"^\[[^\]\s]*?\d+\]:\s?")


def same_lines(writers: list[Writer]) -> None:
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


def ranks(identity: Identity, exits: list[Event]) -> None:
    """Fill global ranks from local ones: by the launcher's summary, by a twin that knows both, or by a single node."""
    table: dict[tuple[str | None, int], int] = {}
    for event in exits:
        if event.rank is not None and event.local_rank is not None:
            table[identity.name_of(event.host), event.local_rank] = event.rank
    for writer in identity.writers:
        if writer.rank is not None and writer.local_rank is not None:
            table.setdefault((writer.host, writer.local_rank), writer.rank)
    nodes = {w.tree for w in identity.writers if w.tree} or {None}
    alone = len(nodes) == 1 and len(identity.hosts) <= 1
    for writer in identity.writers:
        if writer.rank is None and writer.local_rank is not None:
            writer.rank = table.get((writer.host, writer.local_rank), writer.local_rank if alone else None)


def tasks(identity: Identity) -> None:
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


def spread(identity: Identity, exits: list[Event]) -> None:
    """Let processes lend each other what they know: actor <-> rank, pid -> rank and attempt, rank -> host."""
    by_actor: dict[tuple[str, str], Writer] = {}
    for writer in identity.writers:
        if writer.actor and writer.rank is not None and writer.local_rank is not None and (key := actor_key(writer.actor)):
            by_actor.setdefault(key, writer)
    for writer in identity.writers:
        if writer.index is not None:
            continue  # counted in its role's own world
        twin = by_actor.get(actor_key(writer.actor) or ("", "")) if writer.rank is None else None
        if twin:
            writer.rank, writer.host = twin.rank, writer.host or twin.host
            writer.lent = writer.actor != twin.actor
        elif writer.rank is None and "rank" in writer.info["facts"]:
            writer.rank, writer.lent = writer.info["facts"]["rank"], True
    labelled = {(w.source, w.stream.lstrip("0") or "0") for w in identity.writers if w.rank is not None and w.stream.isdecimal() and int(w.stream) == w.rank}
    for event in exits:
        task = str(event.attrs.get("tasks") or "")
        if event.host and (event.source, task) in labelled:  # Slurm names the host of a task, and the tasks of this job are its ranks
            identity.ranks_of_hosts.setdefault(int(task), identity.name_of(event.host) or event.host)
        if event.rank is not None and event.host:
            identity.ranks_of_hosts.setdefault(event.rank, identity.name_of(event.host) or event.host)
        if event.pid and event.rank is not None:
            identity.rank_of_pid.setdefault((identity.name_of(event.host), event.pid), event.rank)
        if event.pid and event.attempt is not None:
            identity.attempt_of_pid.setdefault((identity.name_of(event.host), event.pid), event.attempt)
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


def actor_key(actor: str | None) -> tuple[str, str] | None:
    """`engine_train-1` and `train-1` are one member of one role."""
    role, index = role_of(actor), INDEX.search(actor or "")
    return (role, index[1]) if role and index else None
