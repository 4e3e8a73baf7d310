"""Kubernetes objects and node tables: pods with their addresses and nodes, nodes with theirs.

>>> for sighting in of_objects([{"kind": "Pod", "metadata": {"name": "t-0"}, "spec": {"nodeName": "gn7"}, "status": {"podIP": "10.244.1.7", "hostIP": "10.0.0.7"}}]):
...     print(sighting)
('alias', {'a': 'gn7', 'b': 't-0', 'node': True})
('alias', {'a': 'gn7', 'b': '10.244.1.7', 'node': True})
('alias', {'a': 'gn7', 'b': '10.0.0.7', 'node': True})

Source: Kubernetes API reference, Pod and Node.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rca.ingest.sightings.hosts import ip_of, name_of
from rca.ingest.sources import Source, read_range

LITERALS = (b"podip",)
MOST_BYTES = 8 << 20
OPENS = re.compile(rb"\s{0,64}[{\[]")
KINDS = re.compile(rb"\"(?:podIP|hostIP|InternalIP)\"")


def opens(head: bytes) -> bool:
    """Whether a file may be such objects."""
    return OPENS.match(head) is not None and KINDS.search(head) is not None


def read(source: Source, size: int) -> list[tuple[str, dict[str, Any]]] | None:
    """The sightings of a file of objects; None where it is something else after all."""
    if size > MOST_BYTES:
        return None
    try:
        loaded = json.loads(read_range(source, 0, size))
    except (ValueError, RecursionError):
        return None
    items = loaded.get("items", [loaded]) if isinstance(loaded, dict) else loaded
    return of_objects(items) if isinstance(items, list) else None


def of_objects(items: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """The names of one machine that each object gives: the node's is the machine's own."""
    found: list[tuple[str, dict[str, Any]]] = []
    for item in items:
        if not isinstance(item, dict):
            continue
        spec, status, meta = (item.get(k) if isinstance(item.get(k), dict) else {} for k in ("spec", "status", "metadata"))
        node = spec.get("nodeName") or (meta.get("name") if item.get("kind") == "Node" else None)
        pod = meta.get("name") if item.get("kind") != "Node" else None
        addresses = [status.get("podIP"), status.get("hostIP"), *(a.get("address") for a in status.get("addresses") or () if isinstance(a, dict))]
        names = [pod, spec.get("hostname"), *addresses]
        node = name_of(node) if isinstance(node, str) else None
        if node is None:
            node, names = (name_of(pod) if isinstance(pod, str) else None), addresses[:1]
        for other in names:
            if isinstance(other, str) and node and (name := ip_of(other) or name_of(other)) and name != node:
                found.append(("alias", {"a": node, "b": name, "node": True}))
    return found
