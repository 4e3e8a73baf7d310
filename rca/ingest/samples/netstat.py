"""Counters of the network stack: `netstat -s`, `nstat`, /proc/net/snmp and /proc/net/netstat.

Source: netstat(8), nstat(8), proc(5).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> table = Table("Tcp:", (1, 0, ""), found)
>>> table.feed("    12345 segments retransmitted", (2, 0, "")), table.feed("    TCPTimeouts: 7", (3, 0, "")), table.feed("Tcp: InSegs RetransSegs", (4, 0, ""))
(True, True, True)
>>> table.feed("Tcp: 900 31", (5, 0, "")), table.feed("TcpRetransSegs                  44                 0.0", (6, 0, ""))
(True, True)
>>> [(r[3], r[4]) for r in found.rows()]
[('net.retransmits', 12345.0), ('net.tcp_timeouts', 7.0), ('net.retransmits', 31.0), ('net.retransmits', 44.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

START = re.compile(r"(?:Ip|Ip6|Icmp|IcmpMsg|Tcp|Udp|UdpLite|TcpExt|IpExt|MPTcpExt):(?:$| [A-Z])|#kernel\s*$|(?:Ip|Icmp|Tcp|TcpExt|Udp)[A-Z]\w{3,40}\s{2,40}\d{1,20}\s{2,40}[\d.]+\s*$")
COUNT = re.compile(r"\s+(?P<value>\d{1,20}) (?P<name>[a-zA-Z][\w ,()-]{2,80})$")
PAIR = re.compile(r"\s+(?P<name>[A-Za-z]\w{2,60}): (?P<value>\d{1,20})$")
NSTAT = re.compile(r"(?P<name>[A-Z]\w{3,60})\s+(?P<value>\d{1,20})\s+[\d.]+\s*$")


class Table:
    """One printing of the counters."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        self.names: tuple[str, list[str]] = ("", [])
        if text[-1:] != ":" and not text.startswith("#"):
            self.feed(text, at)

    def feed(self, text: str, at: At) -> bool:
        """Take a line."""
        if match := COUNT.match(text) or PAIR.match(text) or NSTAT.match(text):
            self.found.add(match["name"], match["value"], at)
            return True
        head, _, rest = text.partition(": ")
        if rest and START.match(text):
            self.names = head, rest.split()
            return True
        if rest and self.names[0] == head and (numbers := rest.split()) and len(numbers) == len(self.names[1]):
            for name, value in zip(self.names[1], numbers, strict=True):
                self.found.add(name, value, at)
            return True
        return not text or text[:1] in " \t" or START.match(text) is not None
