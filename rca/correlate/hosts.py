"""Which host a file is of: by what its lines, its tree, its folders or its name say; every host under its one name."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from rca.correlate import names as naming
from rca.correlate.names import ADDRESS, Names, short
from rca.correlate.topology import Topology
from rca.model import Event, Reading
from rca.taxonomy import Kind

if TYPE_CHECKING:
    from rca.correlate.identity import Identity, Writer

HOSTLIKE = re.compile(r"^(?:[A-Za-z][A-Za-z0-9_-]*\d[\w-]*|(?:node|host|gpu|dgx|hgx|server|machine)[-_][A-Za-z]{1,12})$")
NOT_HOSTS = re.compile(r"^(?:localhost|none|null|127\..*|0\.0\.0\.0|rank\d+|worker_?\d+|kernel|default\d*|python\d*)$", re.I)
NOT_FOLDERS = re.compile(r"rank|step|epoch|run_")
PACKED = re.compile(r"(?:\.tar(?:\.\w{2,4})?|\.tgz|\.zip)!/")  # `node-7.tar.gz!/dmesg.log`
OTHER_FOLDERS = ("attempt_", "none_", "torchrun", "log")
TOKEN = re.compile(r"[A-Za-z\d][A-Za-z\d.-]*")
ENDING = re.compile(r"\.(?:log|txt|out|err|jsonl?|gz|zst|xz|csv|prom)$")


def learn(writers: list[Writer], readings: list[Reading], topology: Topology | None) -> Names:
    """The names of all hosts, from what every file says of itself and of others."""
    seen = Counter(w.host for w in writers if w.host and not NOT_HOSTS.match(w.host))
    seen.update(e.host for r in readings for e in r.events if e.host and not NOT_HOSTS.match(e.host))
    by_file: dict[str, Counter] = {}
    for writer in writers:
        if writer.host and not writer.forwarded and not NOT_HOSTS.match(writer.host):
            by_file.setdefault(writer.source, Counter())[short(writer.host)] += 1
    told = {r.source: r.facts.get("sightings", ()) for r in readings}
    stated = {short(s[k]) or s[k] for found in told.values() for kind, s in found for k in ("a", "host", "name") if isinstance(s.get(k), str) and kind in ("alias", "own", "gpu")}
    known = {n.lower() for n in (*(short(n) or n for n in seen), *stated) if not ADDRESS.match(n)}
    seen.update(f["host"] for found in told.values() for kind, f in found if kind == "worker" and f.get("host"))
    said: list[naming.Said] = []
    for source, found in sorted(told.items()):
        own = {(short(f["name"]) or "").lower(): short(f["name"]) for kind, f in found if kind == "own" and not ADDRESS.match(f["name"])}
        if len(own) == 1:
            host = next(iter(own.values()))
        elif own:
            found, host = [s for s in found if s[0] != "own"], None  # the collected output of several hosts
        elif len(by_file.get(source, ())) == 1:
            host = next(iter(by_file[source]))
        else:
            in_path = [t for t in tokens(source) if t.lower() in known]
            host = in_path[-1] if in_path else None
        said += [(kind, fields, host) for kind, fields in found if kind in ("alias", "own")]
        # Who introduces itself with both gives its host's name and address.
        said += [("alias", {"a": f["host"], "b": f["ip"]}, None) for kind, f in found if kind == "worker" and f.get("own") and f.get("host") and f.get("ip")]
    for host in topology.hosts if topology else ():
        said += [("alias", {"a": host.name, "b": other, "node": True}, None) for other in (*host.names, *host.ips)]
        seen[host.name] += 1
    given = {form: host.name for host in topology.hosts for form in (host.name, *host.names, *host.ips)} if topology else {}
    return naming.learn(said, seen, given)


def tokens(source: str) -> list[str]:
    """What may be names in a path, outermost first.

    >>> tokens("logs/ray/10.29.150.28/kern_gn0055.log"), tokens("console.node-7.log")
    (['logs', 'ray', '10.29.150.28', 'kern', 'gn0055'], ['console', 'node-7'])
    """
    parts = PACKED.sub("/", source).split("/")
    found: list[str] = []
    for number, part in enumerate(parts):
        bare = part
        while number == len(parts) - 1 and (cut := ENDING.sub("", bare)) != bare:
            bare = cut
        for word in bare.split("_"):
            whole = TOKEN.findall(word)
            for piece in whole:
                found += [piece] if ADDRESS.match(piece) else [p for p in piece.split(".") if p]
    return found


def assign(identity: Identity, readings: list[Reading], exits: list[Event], topology: Topology | None = None) -> None:
    """Collect the hosts of the job, then give each file the host that its content, its tree or its name speaks of."""
    of = identity.names.of
    names = Counter(of(w.host) for w in identity.writers if w.host and not NOT_HOSTS.match(w.host))
    names.update(of(e.host) for r in readings for e in r.events if e.host and not NOT_HOSTS.match(e.host))
    # A launcher on one node calls it `localhost`: that is a name only where nobody knows another.
    names.update(of(e.host) for e in exits if e.host and (not NOT_HOSTS.match(e.host) or not names))
    own: dict[str, set[str]] = {}
    for reading in readings:
        for kind, fields in reading.facts.get("sightings", ()):
            if kind == "own" and not ADDRESS.match(fields["name"]):
                own.setdefault(reading.source, set()).add(of(fields["name"]) or "")
            elif kind == "worker" and (where := fields.get("host") or (fields.get("ip") if fields.get("own") else None)) and not NOT_HOSTS.match(where):
                names[of(where)] += 1
    names.update(next(iter(hosts)) for hosts in own.values() if len(hosts) == 1)
    told = {r.source: [t for t in r.facts.get("tokens", ()) if HOSTLIKE.match(t) and not NOT_HOSTS.match(t)] for r in readings}
    for source, folders in _host_folders(readings).items():
        told[source] = told[source] + folders
    if len({t for ts in told.values() for t in ts}) >= 2:
        names.update(of(t) for ts in told.values() for t in ts[-1:])
    if topology is not None:
        names.update(h.name for h in topology.hosts if not {h.name, *h.names, *h.ips} & {*topology.storage})
    names.pop(None, None)
    forms = {form: name for name in names for form in identity.names.forms(name)}
    known = sorted(forms, key=lambda n: (-len(n), n))
    by_source: dict[str, str] = {}
    for reading in readings:
        here = Counter(name for w in identity.writers_of(reading.source) if w.host and not w.forwarded and (name := of(w.host)) in names)
        here.update(name for e in reading.events if e.kind == Kind.EXITED and e.host and (name := of(e.host)) in names)
        if len(own.get(reading.source, ())) == 1:
            by_source[reading.source] = next(iter(own[reading.source]))
        elif len(here) == 1:
            by_source[reading.source] = next(iter(here))
        elif not here:
            path = reading.source.replace("_", ".").lower()
            match = next((n for n in known if n in path and re.search(rf"(?<![\w]){re.escape(n)}(?![\w])", path)), None)
            if match or len(names) == 1:
                by_source[reading.source] = forms[match] if match else next(iter(names))
    for writer in identity.writers:
        host = of(writer.host)
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
        if len(names) >= 2 and all(HOSTLIKE.match(n) and not NOT_HOSTS.match(n) and not n.startswith(OTHER_FOLDERS) and not NOT_FOLDERS.search(n) for n in names)
    }  # fmt: skip
    found: dict[str, list[str]] = {}
    for reading in readings:
        parts = PACKED.sub("/", reading.source).split("/")[:-1]
        found[reading.source] = [p for d, p in enumerate(parts) if (d, "/".join(parts[:d])) in good]
    return found
