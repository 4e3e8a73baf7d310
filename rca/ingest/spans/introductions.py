"""Who is who, as traces show it: each process with its role and number, and the process that answered at each address that was called.

Sightings as `rca.ingest.sightings` gives them for lines: `alias` joins a host's name and an address, `worker` is a process by role and index.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.spans.table import CALLS, CONSUMER, SERVER, Table

SPANS_PER_PEER = 8  # calls of one callee whose other half is looked for
MOST = 4000
NAMED = re.compile(r"([A-Za-z][A-Za-z_. -]{0,60}?)[/_#:\[ -]{0,2}(\d{1,6})\]?")
IP = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")

Sighting = tuple[str, dict[str, Any]]


def sight(table: Table) -> list[Sighting]:
    """The sightings of one file."""
    found: list[Sighting] = []
    used = set(table.columns["proc"])
    for number, about in enumerate(table.procs):
        if number not in used:
            continue
        host, address = about.get("host"), about.get("address")
        if host and address and IP.fullmatch(str(address)):
            found.append(("alias", {"a": str(host), "b": str(address)}))
        if (worker := _worker(about.get("worker"), about.get("role") or about.get("service"))) is not None:
            fields = worker | {"host": host, "ip": address, "port": about.get("port"), "pid": about.get("pid"), "rank": about.get("rank"), "local_rank": about.get("local_rank"), "own": True, "stream": f"span:{number}"}
            found.append(("worker", {k: v for k, v in fields.items() if v is not None}))
    for peer, number in sorted(served(table).items()):
        (name, address, port), about = table.peers[peer], table.procs[number]
        host = about.get("host")
        if host and address and IP.fullmatch(address):
            found.append(("alias", {"a": str(host), "b": address}))
        if (worker := _worker(name, None)) is not None:
            fields = worker | {"host": host, "ip": address if address and IP.fullmatch(address) else None, "port": port, "pid": about.get("pid")}
            found.append(("worker", {k: v for k, v in fields.items() if v is not None}))
    return found[:MOST]


def _worker(text: Any, base: Any) -> dict[str, Any] | None:
    """`rollout/9`, or a number of a role, as name and index."""
    if isinstance(text, str) and (match := NAMED.fullmatch(text)):
        return {"name": match[1], "index": int(match[2])}
    if isinstance(text, int) or (isinstance(text, str) and text.isdecimal() and len(text) < 7):
        return {"name": str(base), "index": int(text)} if base else None
    return None


def served(table: Table) -> dict[int, int]:
    """Callee -> the process whose span is the other half of a call to it, of those in this file."""
    columns = table.columns
    calls: dict[int, int] = {}  # id of a caller's span -> callee
    seen: dict[int, int] = {}
    wanted = len(table.peers) - 1
    for span, peer, mark in zip(columns["span"], columns["peer"], columns["mark"], strict=True):
        if peer and mark & 7 in CALLS and seen.get(peer, 0) < SPANS_PER_PEER:
            seen[peer] = seen.get(peer, 0) + 1
            calls[span] = peer
            if seen[peer] == SPANS_PER_PEER and not (wanted := wanted - 1):
                break
    found: dict[int, int] = {}
    if calls:
        left = set(calls.values())
        for parent, proc, mark in zip(columns["parent"], columns["proc"], columns["mark"], strict=True):
            if parent in calls and mark & 7 in (SERVER, CONSUMER):
                found.setdefault(calls[parent], proc)
                left.discard(calls[parent])
                if not left:
                    break
    return found
