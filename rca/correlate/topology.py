"""The topology that an operator gives: hosts, their addresses and devices, ranks, parallel groups, storage and colocated roles.

TOML or JSON of one shape, see docs/topology.md. What is given holds before anything that is learned from logs; everything may be left out.
"""

from __future__ import annotations

import ipaddress
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rca.correlate.devices import bus_key
from rca.errors import RcaError, did_you_mean
from rca.taxonomy import ROLES

MOST_BYTES = 16 << 20
AXES = ("dp", "tp", "pp", "ep", "cp", "sp")
TOP = ("host", "rank", "parallel", "storage", "colocated")
HOST = ("name", "names", "ips", "gpus", "nics", "rack", "switch")
NIC = ("rdma", "netdev", "pci")
RANK = ("role", "rank", "first", "host", "gpus", "port")
PARALLEL = (*AXES, "groups")


@dataclass(frozen=True)
class Host:
    """One machine. `gpus` are bus ids by index; `nics` are tables of names of one adapter."""

    name: str
    names: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    nics: tuple[dict[str, str], ...] = ()
    rack: str | None = None
    switch: str | None = None


@dataclass(frozen=True)
class Member:
    """One rank of one role's world and where it runs."""

    role: str
    rank: int
    host: str | None = None
    gpus: tuple[int, ...] = ()
    port: int | None = None


@dataclass(frozen=True)
class Topology:
    """What is given; everything may be empty."""

    hosts: tuple[Host, ...] = ()
    ranks: tuple[Member, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)  # degrees of parallelism by axis
    groups: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)  # ranks by axis
    storage: tuple[str, ...] = ()  # names or addresses of servers
    colocated: tuple[frozenset[str], ...] = ()  # roles that share devices


def read(path: Path) -> Topology:
    """The topology of a file. Raises RcaError, naming file and key, for whatever is wrong in it."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RcaError("a topology of more than 16 MiB is not read", str(path))
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise RcaError(f"no such file or folder: `{path}`") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "it is no UTF-8 text"
        raise RcaError(f"the topology cannot be read: {reason[:1].lower()}{reason[1:]}", str(path)) from None
    try:
        loaded = json.loads(text) if text.lstrip()[:1] == "{" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # both decoders say line and column
        raise RcaError(f"the topology is neither TOML nor JSON: {str(error) or type(error).__name__}", str(path)) from None
    return _Reader(path).topology(loaded)


class _Reader:
    """Checks one file; every complaint names the key it is about."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _wrong(self, key: str, message: str, hint: str | None = None) -> RcaError:
        return RcaError(f"`{key}`: {message}", str(self._path), hint)

    def topology(self, loaded: dict[str, Any]) -> Topology:
        self._keys(loaded, TOP, "")
        hosts = tuple(self._host(table, f"host[{i}]") for i, table in enumerate(self._tables(loaded, "host")))
        self._distinct(hosts)
        named = {form: host for host in hosts for form in (host.name, *host.names, *host.ips)}
        members = [m for i, table in enumerate(self._tables(loaded, "rank")) for m in self._members(table, f"rank[{i}]", named)]
        seen: dict[tuple[str, int], None] = {}
        for member in members:
            if (member.role, member.rank) in seen:
                raise self._wrong("rank", f"{member.role} rank {member.rank} is given twice")
            seen[member.role, member.rank] = None
        sizes, groups = self._parallel(self._table(loaded, "parallel"), sum(m.role == "train" for m in members))
        storage = self._table(loaded, "storage")
        self._keys(storage, ("servers",), "storage")
        colocated = loaded.get("colocated", [])
        if not isinstance(colocated, list) or not all(isinstance(roles, list) and len(roles) > 1 for roles in colocated):
            raise self._wrong("colocated", "must be a list of lists of at least two roles", 'for example colocated = [["train", "rollout"]]')
        for i, roles in enumerate(colocated):
            for role in roles:
                self._role(role, f"colocated[{i}]")
        return Topology(hosts, tuple(members), sizes, groups, self._texts(storage, "servers", "storage."), tuple(frozenset(roles) for roles in colocated))

    def _host(self, table: dict[str, Any], key: str) -> Host:
        self._keys(table, HOST, key)
        name = table.get("name")
        if not isinstance(name, str) or not name:
            raise self._wrong(f"{key}.name", "must be the host's name")
        ips = self._texts(table, "ips", f"{key}.")
        for ip in ips:
            try:
                ipaddress.ip_address(ip)
            except ValueError:
                raise self._wrong(f"{key}.ips", f"`{ip}` is no address") from None
        gpus = self._texts(table, "gpus", f"{key}.")
        for bus in gpus:
            if bus_key(bus) is None:
                raise self._wrong(f"{key}.gpus", f"`{bus}` is no bus id", "bus ids in the order of their indexes: nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader")
        nics = []
        for i, nic in enumerate(self._tables(table, "nics", f"{key}.")):
            self._keys(nic, NIC, f"{key}.nics[{i}]")
            nics.append({k: self._text(nic, k, f"{key}.nics[{i}].") or "" for k in nic})
        return Host(name, self._texts(table, "names", f"{key}."), ips, gpus, tuple(nics), self._text(table, "rack", f"{key}."), self._text(table, "switch", f"{key}."))

    def _distinct(self, hosts: tuple[Host, ...]) -> None:
        seen: dict[str, str] = {}
        for host in hosts:
            for form in dict.fromkeys((host.name, *host.names, *host.ips)):
                if seen.setdefault(form.lower(), host.name) != host.name or (form == host.name and [h.name for h in hosts].count(form) > 1):
                    raise self._wrong("host", f"`{form}` is given to {seen[form.lower()]} and to {host.name}" if seen[form.lower()] != host.name else f"`{form}` is given twice")

    def _members(self, table: dict[str, Any], key: str, named: dict[str, Host]) -> list[Member]:
        """One rank, or with `first` as many as there are devices: rank `first` on the first of them, and so on."""
        self._keys(table, RANK, key)
        role = self._role(table.get("role", "train"), f"{key}.role")
        where = self._text(table, "host", f"{key}.")
        host = named.get(where) if where is not None else None
        if where is not None and named and host is None:
            raise self._wrong(f"{key}.host", f"no host of this file is called `{where}`", did_you_mean(where, named))
        place = host.name if host else where
        gpus = table.get("gpus", [])
        if not isinstance(gpus, list) or not all(isinstance(g, int) and not isinstance(g, bool) and g >= 0 for g in gpus):
            raise self._wrong(f"{key}.gpus", "must be a list of indexes as nvidia-smi shows them")
        if host is not None and host.gpus and any(g >= len(host.gpus) for g in gpus):
            raise self._wrong(f"{key}.gpus", f"{host.name} has {len(host.gpus)} devices")
        if ("rank" in table) == ("first" in table):
            raise self._wrong(key, "must have either `rank`, for one rank, or `first`, for one rank on each of `gpus`")
        number = self._number(table, "rank" if "rank" in table else "first", f"{key}.")
        port = self._number(table, "port", f"{key}.") if "port" in table else None
        if "rank" in table:
            return [Member(role, number, place, tuple(gpus), port)]
        if not gpus:
            raise self._wrong(f"{key}.first", "needs `gpus`: one rank runs on each")
        return [Member(role, number + i, place, (gpu,), port + i if port else None) for i, gpu in enumerate(gpus)]

    def _parallel(self, table: dict[str, Any], ranks: int) -> tuple[dict[str, int], dict[str, tuple[tuple[int, ...], ...]]]:
        self._keys(table, PARALLEL, "parallel")
        sizes = {axis: self._number(table, axis, "parallel.") for axis in AXES if axis in table}
        for axis, size in sizes.items():
            if size < 1:
                raise self._wrong(f"parallel.{axis}", "must be at least 1")
        given = self._table(table, "groups", "parallel.")
        self._keys(given, AXES, "parallel.groups")
        groups: dict[str, tuple[tuple[int, ...], ...]] = {}
        for axis, lists in given.items():
            key = f"parallel.groups.{axis}"
            if not isinstance(lists, list) or not all(isinstance(g, list) and all(isinstance(r, int) and not isinstance(r, bool) and r >= 0 for r in g) for g in lists):
                raise self._wrong(key, "must be a list of lists of ranks")
            flat = [r for group in lists for r in group]
            if len(set(flat)) != len(flat):
                raise self._wrong(key, f"rank {next(r for r in flat if flat.count(r) > 1)} is in two groups")
            groups[axis] = tuple(tuple(group) for group in lists)
        product = 1
        for axis in ("tp", "pp", "cp"):
            product *= sizes.get(axis, 1)
        if ranks and ranks % product:
            raise self._wrong("parallel", f"tp x pp x cp is {product}, which does not divide the {ranks} train ranks")
        return sizes, groups

    # -- values -----------------------------------------------------------------------------------------------------

    def _keys(self, table: dict[str, Any], known: tuple[str, ...], key: str) -> None:
        for name in table:
            if name not in known:
                raise self._wrong(f"{key}.{name}" if key else name, "is not known", did_you_mean(name, known) or f"known here: {', '.join(known)}")

    def _table(self, table: dict[str, Any], name: str, key: str = "") -> dict[str, Any]:
        found = table.get(name, {})
        if not isinstance(found, dict):
            raise self._wrong(key + name, "must be a table")
        return found

    def _tables(self, table: dict[str, Any], name: str, key: str = "") -> list[dict[str, Any]]:
        found = table.get(name, [])
        if not isinstance(found, list) or not all(isinstance(t, dict) for t in found):
            raise self._wrong(key + name, "must be a list of tables", f"in TOML: [[{name}]]" if not key else None)
        return found

    def _texts(self, table: dict[str, Any], name: str, key: str) -> tuple[str, ...]:
        found = table.get(name, [])
        if not isinstance(found, list) or not all(isinstance(t, str) and t for t in found):
            raise self._wrong(key + name, "must be a list of texts")
        return tuple(found)

    def _text(self, table: dict[str, Any], name: str, key: str) -> str | None:
        found = table.get(name)
        if found is not None and not (isinstance(found, str) and found):
            raise self._wrong(key + name, "must be a text")
        return found

    def _number(self, table: dict[str, Any], name: str, key: str) -> int:
        found = table.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 20:
            raise self._wrong(key + name, "must be a whole number from 0 to a million")
        return found

    def _role(self, role: Any, key: str) -> str:
        if not isinstance(role, str) or role not in ROLES:
            raise self._wrong(key, f"`{role}` is no role", (did_you_mean(role, ROLES) if isinstance(role, str) else None) or f"roles: {', '.join(ROLES)}")
        return role
