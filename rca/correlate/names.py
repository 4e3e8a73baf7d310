"""One name per host: addresses, FQDNs, pods and Kubernetes nodes that lines state to be the same machine.

A statement joins two names. An address that several machines claim (a container bridge, a service, a load balancer) joins nobody.
The name of a machine is its node's where Kubernetes states one, else its host name, else its address.

>>> names = learn([("alias", {"a": "gn28.cluster", "b": "10.2.0.28"}, None), ("own", {"name": "172.17.0.1"}, "gn28"), ("own", {"name": "172.17.0.1"}, "gn29")])
>>> names.of("10.2.0.28:9100"), names.of("gn28.cluster"), names.of("172.17.0.1"), names.of("http://10.2.0.28:8000/x"), names.forms("gn28")
('gn28', 'gn28', '172.17.0.1', 'gn28', ('10.2.0.28', 'gn28', 'gn28.cluster'))
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

ADDRESS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}\Z")
SPELLED = re.compile(r"(?:[a-z]{2,8}://)?\[?([\w.-]{1,253}|[\da-fA-F:]{3,45})\]?(?::\d{1,5})?(?:/.*)?\Z")
IN_NAME = re.compile(r"(?:^|[-_])(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:$|[-_.])")
CONTAINER = re.compile(r"[\da-f]{12}\Z|[\da-f]{64}\Z")
NOBODY = re.compile(r"(?:localhost(?:\.localdomain)?|127\..*|0\.0\.0\.0|::1?|none|null)\Z", re.I)
CLEAR = 3  # of conflicting claims on an address the one that is made so many times as often holds

Said = tuple[str, dict[str, Any], str | None]  # kind, fields, host that the speaker's file is of


def short(host: str | None) -> str | None:
    """A host's first label; addresses stay whole.

    >>> short("node-7.cluster.local"), short("10.0.0.1")
    ('node-7', '10.0.0.1')
    """
    return host if host is None or re.fullmatch(r"[\d.]+", host) or ":" in host else host.split(".", 1)[0]


def plain(text: str) -> str:
    """A name or address without scheme, port, path and brackets.

    >>> plain("http://10.4.7.17:30001/call"), plain("[fe80::1]:29500"), plain("gn7.cluster:29500")
    ('10.4.7.17', 'fe80::1', 'gn7.cluster')
    """
    match = SPELLED.match(text.strip())
    return match[1].rstrip(".") if match else text.strip()


class Names:
    """What each spelled name is called in the report."""

    def __init__(self, called: dict[str, str]) -> None:
        self._called = called  # by spelling in lower case
        self._forms: dict[str, set[str]] = {}
        for spelled, name in called.items():
            self._forms.setdefault(name, set()).add(spelled)

    def of(self, text: str | None) -> str | None:
        """The one name of the host that a text spells: IP, URL, FQDN, pod or node; a name that nothing is known of is cut to its first label."""
        if text is None:
            return None
        name = plain(text)
        return self._called.get(name.lower()) or self._called.get((short(name) or "").lower()) or short(name)

    def known(self, text: str) -> str | None:
        """The same, or None where no statement knows the name."""
        name = plain(text)
        return self._called.get(name.lower()) or self._called.get((short(name) or "").lower())

    def forms(self, host: str) -> tuple[str, ...]:
        """All spellings of a host that were seen, sorted."""
        return tuple(sorted({*self._forms.get(host, ()), host}))


def learn(said: Iterable[Said], seen: Counter[str] | None = None, given: dict[str, str] | None = None) -> Names:
    """Join what was said.

    `seen` counts how often each name stands for a host elsewhere: a statement that only its form speaks for holds where it concerns
    one of these. `given` maps names to hosts and comes before everything that was learned.
    """
    seen, given = seen or Counter(), {k.lower(): v for k, v in (given or {}).items()}
    spelled: dict[str, str] = {}
    claims: dict[str, Counter[str]] = {}  # address -> names that claim it
    pairs: list[tuple[str, str]] = []  # names of one machine
    nodes: set[str] = set()
    known = {(short(n) or n).lower() for n in seen if not ADDRESS.match(n)}
    for kind, fields, host in said:
        a, b = (fields.get("a"), fields.get("b")) if kind == "alias" else (host, fields.get("name")) if kind == "own" else (None, None)
        if not a or not b or NOBODY.match(a) or NOBODY.match(b):
            continue
        for name in (a, b):
            spelled.setdefault(name.lower(), name)
        if ADDRESS.match(a) and not ADDRESS.match(b):
            a, b = b, a
        label = _label(a)
        if fields.get("node"):
            nodes.add(label)
        if fields.get("soft") and label not in known:
            continue
        if ADDRESS.match(b) and not ADDRESS.match(a):
            claims.setdefault(b, Counter())[label] += 1
        elif not ADDRESS.match(b):
            pairs.append((label, _label(b)))
            spelled.setdefault(_label(b), short(b) or b)
        else:
            claims.setdefault(b, Counter())[a] += 1  # a host known by one address only has a second one
        spelled.setdefault(label, short(a) or a)
    for name in seen:
        spelled.setdefault(name.lower(), name)
        if not ADDRESS.match(name):
            spelled.setdefault(_label(name), short(name) or name)
    for name in list(spelled):  # `ip-10-4-7-17` says its address
        if (m := IN_NAME.search(name)) and all(int(p) < 256 for p in m.groups()) and not ADDRESS.match(name):
            claims.setdefault(".".join(m.groups()), Counter())[_label(name)] += CLEAR
    return Names(_called(spelled, claims, pairs, nodes, seen, given))


def _label(name: str) -> str:
    return (short(name) or name).lower()


def _called(spelled: dict[str, str], claims: dict[str, Counter[str]], pairs: list[tuple[str, str]], nodes: set[str], seen: Counter[str], given: dict[str, str]) -> dict[str, str]:
    parent: dict[str, str] = {}

    def find(x: str) -> str:
        while parent.setdefault(x, x) != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    def join(a: str, b: str) -> None:
        parent[find(a)] = find(b)

    for a, b in pairs:
        if not (a in nodes and b in nodes):
            join(a, b)
    for address, names in sorted(claims.items()):
        groups = Counter()
        for name, count in names.items():
            groups[find(name)] += count
        (first, most), *others = sorted(groups.items(), key=lambda kv: (-kv[1], kv[0]))
        if not others or most >= CLEAR * others[0][1]:
            join(address, first)
    members: dict[str, set[str]] = {}
    for name in {*spelled, *parent}:
        members.setdefault(find(_label(name)), set()).add(name)
    count = Counter({_label(n): 0 for n in seen})
    for name, times in seen.items():
        count[_label(name)] += times
    called: dict[str, str] = {}
    for names in members.values():
        labels = sorted({_label(n) for n in names}, key=lambda n: (bool(ADDRESS.match(n)), n not in nodes, bool(CONTAINER.match(n)), -count[n], n))
        best = next((given[n] for n in sorted(names) if n in given), None) or short(spelled.get(labels[0], labels[0])) or labels[0]
        called |= dict.fromkeys((*names, *labels), best)
    return called | given
