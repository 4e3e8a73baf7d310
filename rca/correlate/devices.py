"""Devices: bus id <-> index per host, who uses which, and adapters by all their names.

>>> devices = Devices()
>>> for bus, index in (("00000000:07:00.0", 0), ("0000:52:00.0", 2)): devices.said({"host": "h", "bus": bus, "index": index}, "h")
>>> devices.index("h", "PCI:0000:52:00"), devices.index("h", "0000:07:00.0"), devices.index("h", "0000:99:00"), devices.index("g", "0000:52:00")
(2, 0, None, 2)

What a host's own files do not say is taken from the others if they agree.
"""

from __future__ import annotations

import re
from typing import Any

SPELLED = re.compile(r"(?:PCI:)?(?:([\dA-Fa-f]{4,8}):)?([\dA-Fa-f]{2}):([\dA-Fa-f]{2})(?:\.(\d))?\Z")


def bus_key(text: str | None) -> tuple[int, int, int] | None:
    """Domain, bus and device of a bus id in any spelling; the function is 0 for every GPU.

    >>> bus_key("00000000:1B:00.0") == bus_key("PCI:0000:1b:00") == bus_key("1b:00.0"), bus_key("eth0")
    (True, None)
    """
    match = SPELLED.match(text.strip()) if text else None
    return (int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16)) if match else None


class Devices:
    """What is known of the devices of every host."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, tuple[int, int, int]], int] = {}
        self._uuid: dict[str, tuple[str, int]] = {}
        self._listed: dict[str, set[tuple[int, int, int]]] = {}  # bus ids that a full listing of the host shows
        self._count: dict[str, set[int]] = {}
        self.pids: dict[tuple[str, int], set[int]] = {}  # device -> pids that use it
        self._nics: dict[str, list[dict[str, str]]] = {}

    def said(self, fields: dict[str, Any], host: str | None) -> None:
        """Take one statement about a device of `host`."""
        if host is None:
            return
        bus, index = bus_key(fields.get("bus")), fields.get("index")
        if index is not None:
            self._count.setdefault(host, set()).add(index)
            if fields.get("uuid"):
                self._uuid[fields["uuid"]] = (host, index)
        elif bus is not None and fields.get("uuid") in self._uuid:
            index = self._uuid[fields["uuid"]][1]
        if bus is not None:
            if index is not None:
                self._index.setdefault((host, bus), index)
            elif "pid" not in fields:
                self._listed.setdefault(host, set()).add(bus)
        index = index if index is not None else self._index.get((host, bus)) if bus else None
        if index is not None and fields.get("pid") is not None:
            self.pids.setdefault((host, index), set()).add(fields["pid"])

    def index(self, host: str | None, bus_id: str | None) -> int | None:
        """The index that nvidia-smi shows of a bus id: as stated; else by the order of the bus ids, which is that of the indexes."""
        bus = bus_key(bus_id)
        if bus is None or host is None:
            return None
        if (host, bus) in self._index:
            return self._index[host, bus]
        listed = sorted(self._listed.get(host, ()))
        if bus in listed and len(listed) >= max(2, len(self._count.get(host, ()))):
            return listed.index(bus)
        if any(h == host for h, _ in self._index):
            return None
        elsewhere = {i for (_, b), i in self._index.items() if b == bus}  # hosts of one cluster are built alike
        return elsewhere.pop() if len(elsewhere) == 1 else None

    def bus(self, host: str | None, index: int | None) -> str | None:
        """The bus id of an index, spelled as nvidia-smi does in lower case."""
        found = next((bus for (h, bus), i in sorted(self._index.items()) if h == host and i == index), None)
        return f"{found[0]:08x}:{found[1]:02x}:{found[2]:02x}.0" if found else None

    def of_uuid(self, uuid: str) -> int | None:
        return self._uuid[uuid][1] if uuid in self._uuid else None

    def count(self, host: str | None) -> int:
        """How many devices of a host are known."""
        return max(len(self._count.get(host or "", ())), len({b for h, b in self._index if h == host}))

    def said_nic(self, fields: dict[str, Any], host: str | None) -> None:
        """Take one statement about an adapter of `host`; names that share one are the same adapter."""
        if host is None:
            return
        told = {k: fields[k] for k in ("rdma", "netdev", "pci") if fields.get(k)}
        known = self._nics.setdefault(host, [])
        for nic in known:
            if any(nic.get(k) == v for k, v in told.items()):
                nic.update(told)
                return
        known.append(told)

    def nic(self, host: str | None, name: str | None) -> dict[str, str] | None:
        """All names of the adapter that has this RDMA name, interface or bus id."""
        bus = bus_key(name)
        return next((n for n in self._nics.get(host or "", ()) if name in n.values() or (bus is not None and bus == bus_key(n.get("pci")))), None)
