"""What a process says about itself in its first lines: host, pid, ranks, the size of its world, the ports it serves.

>>> facts = {}
>>> introduce(facts, "ready: rank 3 of 8 pid=811 hostname=node-7", "ready: rank 3 of 8 pid=811 hostname=node-7", known=False)
>>> facts
{'host': 'node-7', 'pid': 811, 'world': 8, 'rank': 3}
>>> introduce(facts, "ready: rank 4 of 8 pid=812 hostname=node-7", "ready: rank 4 of 8 pid=812 hostname=node-7", known=False)
>>> facts
{'world': 8, 'shared': True}
"""

from __future__ import annotations

import re
from typing import Any

#: Name, words of which a line must hold one, pattern.
FACTS = (
    ("host", ("host", "node_name", "nodename", " on "), re.compile(r"\b(?:(?:hostname|host|node_name|nodename)\s*[=:]\s*'?|rank \d+(?: of |/)\d+ on )([A-Za-z][\w.-]*)")),
    ("pid", ("pid",), re.compile(r"\bpid\s*[=: ]\s*(\d+)")),
    ("local_rank", ("local_rank",), re.compile(r"\blocal_rank\s*[=:]\s*(\d+)", re.I)),
    ("world", ("world", "ranks", " of ", "/"), re.compile(r"\b(?:world_size|world|nranks|num_ranks)\s*[=: ]\s*(\d+)|\brank \d+(?: of |/)(\d+)", re.I)),
)
RANK = re.compile(r"\b(?:global_rank|rank|process index)(?:\s*[=:]\s*|\s+(?=\d+(?: of |/)\d))(\d+)", re.I)  # asked for last: it counts only beside another fact
SERVES = re.compile(r"\b(?:ready|listening|serving|started|running)\b.{0,40}?:(\d{4,5})\b", re.I)


def introduce(facts: dict[str, Any], text: str, low: str, *, known: bool) -> None:
    """Add what a line tells of its writer. `low` is the text in lower case; `known` lines, those that a signature speaks for, tell only of ports."""
    if ("ready" in low or "listening" in low or "serving" in low or "started" in low or "running" in low) and (served := SERVES.search(text)):
        facts.setdefault("ports", []).append(served[1])
    if known or not ("rank" in text or "world" in text or "host" in text or "pid" in text):
        return
    found = {}
    for name, words, pattern in FACTS:
        for word in words:
            if word in low:
                if match := pattern.search(text):
                    found[name] = match
                break
    if found and (match := RANK.search(text)):
        found["rank"] = match
    # A process introduces itself with several facts in one line; a single `rank 3` may speak of anybody.
    if len(found) > 1 or "world" in found:
        said = {name: (m[1] or m[m.lastindex or 1]) if name == "host" else int(m[1] or m[m.lastindex or 1]) for name, m in found.items()}
        if "rank" in said and facts.get("rank", said["rank"]) != said["rank"]:
            facts["shared"] = True  # a console of several processes: it is none of them
            for name in ("rank", "pid", "local_rank", "host"):
                facts.pop(name, None)
        if facts.get("shared"):
            said = {"world": said["world"]} if "world" in said else {}
        for name, value in said.items():
            facts.setdefault(name, value)
