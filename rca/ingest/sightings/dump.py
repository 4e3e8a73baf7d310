"""Dumps of a host: what `hostname`, `ip addr` and their kin printed, with or without the commands before it.

>>> for sighting in of_text(SAMPLE): print(sighting)
('own', {'name': 'gn0028'})
('own', {'name': '10.29.150.28'})
('own', {'name': '10.1.0.28'})
('own', {'name': '172.16.0.4'})
('own', {'name': '172.16.0.5'})
('alias', {'a': 'stor01', 'b': '10.29.150.9'})
('own', {'name': 'gn0028.cluster'})

Addresses that containers' bridges have on every host are told apart by that: correlate drops what several hosts claim.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.sightings.hosts import IP, NAME, ip_of, name_of
from rca.ingest.sources import Source, read_range

SAMPLE = """\
$ hostname; date -R; uptime -s
gn0028
Fri, 13 Nov 2026 12:57:04 +0000
$ ip -br -4 addr
lo               UNKNOWN        127.0.0.1/8
eth0             UP             10.29.150.28/24
docker0          DOWN           172.17.0.1/16
    inet 10.1.0.28/16 brd 10.1.255.255 scope global ib0
+ hostname -I
172.16.0.4 172.16.0.5
# cat /etc/hosts
127.0.0.1 localhost
10.29.150.9  stor01 stor01.cluster
Linux gn0028.cluster 5.15.0-91-generic #101-Ubuntu SMP x86_64 GNU/Linux"""

LITERALS = (b" 127.0.0.1/8", b"127.0.0.1\tlocalhost", b"127.0.0.1 localhost", b"127.0.0.1   localhost", b"inet 127.0.0.1", b"ip6-localhost", b"localhost4")
DUMP_BYTES = 96 << 10
#: A command as it was typed or echoed, or the heading that a script put over its output.
COMMAND = re.compile(r"(?:\S{0,60}[$#%>+] ?|={2,10} ?|-{2,10} ?|\[\w{0,20}\] ?)\$? ?((?:hostname|hostnamectl|uname|cat /etc/hosts|cat /etc/hostname|ip |ifconfig|date|uptime)\b[^=\n]{0,120}?)(?: ?={2,10}| ?-{2,10})?\s*\Z")
OPENS = re.compile(rb"(?:^|\n)[^\n]{0,64}?(?:[$#%>+]|==+|--+) ?\$? ?(?:hostname|uname -|cat /etc/host|ip (?:-\S+ ){0,3}a|ifconfig)")
BRIEF = re.compile(rf"([a-z][\w.@-]{{0,20}})\s{{1,24}}(?:UP|UNKNOWN|DOWN)\s{{1,24}}((?:{IP}/\d{{1,2}}\s{{0,4}}){{1,6}})")
INET = re.compile(rf"\s{{1,12}}inet (?:addr:)?({IP})(?:/\d{{1,2}})?\s(.{{0,160}})")
TABLE = re.compile(rf"({IP})\s{{1,40}}({NAME}(?:\s{{1,20}}{NAME}){{0,6}})\s*(?:#.{{0,80}})?\Z")
UNAME = re.compile(rf"Linux ({NAME}) \d{{1,2}}\.\d")
STATIC = re.compile(rf"\s{{0,8}}Static hostname: ({NAME})\s*\Z")
VIRTUAL = re.compile(r"(?:docker|virbr|cni|flannel|br-|veth|cali|lxc|podman|tun|kube-)")


def read(source: Source, size: int, head: bytes, seen: set[bytes]) -> list[tuple[str, dict[str, Any]]]:
    """The sightings of a file that holds such a dump; `seen` are the literals that the scan found in it."""
    if not seen & LITERAL_SET and not OPENS.search(head[: 8 << 10]):
        return []
    data = read_range(source, 0, min(size, DUMP_BYTES))
    return of_text(data.decode("utf-8", "replace"))


LITERAL_SET = frozenset(LITERALS)


def of_text(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The names and addresses that a dump gives its host, and those of a hosts table."""
    found: list[tuple[str, dict[str, Any]]] = []
    command = ""

    def own(name: str | None) -> None:
        if name:
            found.append(("own", {"name": name}))

    for line in text.split("\n"):
        line = line[:400].rstrip()
        if m := COMMAND.match(line):
            command = m[1].strip()
        elif not line:
            continue
        elif command.startswith(("hostname", "cat /etc/hostname")):
            words = line.split()
            if "-I" in command or "-i" in command.split():
                for word in words:
                    own(ip_of(word))
            elif len(words) == 1:
                own(name_of(words[0]) if re.fullmatch(NAME, words[0]) else None)
            command = ""
        elif m := BRIEF.match(line):
            if not VIRTUAL.match(m[1]):
                for address in m[2].split():
                    own(ip_of(address.split("/", 1)[0]))
        elif m := INET.match(line):
            if not VIRTUAL.match(m[2].rsplit(" ", 1)[-1]):
                own(ip_of(m[1]))
        elif m := UNAME.match(line) or STATIC.match(line):
            own(name_of(m[1]))
        elif m := TABLE.match(line):
            names = m[2].split()
            if ip_of(m[1]) and (name := name_of(names[0])):
                found.append(("alias", {"a": name, "b": m[1]}))
            elif m[1] == "127.0.1.1":
                own(name_of(names[0]))
    return found
