"""Counters of network interfaces: `ip -s link`, `ifconfig`, /proc/net/dev, `ethtool -S`.

Source: ip-link(8), ethtool(8), Documentation/networking/statistics.rst.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> lines = SAMPLE.splitlines()
>>> table = Table(lines[0], (1, 0, ""), found)
>>> all(table.feed(line, (2, 0, line)) for line in lines[1:])
True
>>> [(dict(r[2])["device"], r[3], r[4]) for r in found.rows()]
[('ens1', 'net.carrier', 1.0), ('ens1', 'net.rx_errors', 7.0), ('ens1', 'net.rx_drops', 5.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

SAMPLE = """\
2: ens1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
    1234567890 9876543      7       5       0       0"""

START = re.compile(r"\d{1,5}: (?P<ip>[\w.-]{1,30})(?:@[\w.-]{1,30})?: <(?P<flags>[\w,-]{0,200})>|(?P<ifconfig>[\w.-]{1,30}): flags=\d+<(?P<flags2>[\w,-]{0,200})>|Inter-\|\s+Receive|NIC statistics:")
ROW = re.compile(r"\s+(?P<way>[RT]X)(?: errors)?:\s+(?P<names>[a-z ]+)$")
IFCONFIG = re.compile(r"\s+(?P<way>[RT]X) errors (?P<errors>\d{1,20})\s+dropped (?P<dropped>\d{1,20})")
PROC = re.compile(r"\s*(?P<device>[\w.-]{1,30}):\s*(?P<numbers>\d[\d ]{10,400})$")
PAIR = re.compile(r"\s+(?P<name>[\w.\[\]]{2,60}):\s+(?P<value>\d{1,20})$")
NAMED = re.compile(r"(?<![a-zA-Z0-9])(eth\d[a-z0-9]{0,12}|en[opsx][a-z0-9]{1,14}|ib[ps]?\d[a-z0-9]{0,10}|bond\d{1,3}|mlx5_\d{1,3})(?![a-zA-Z0-9])")
COUNTED = {"errors": "errors", "dropped": "dropped"}


class Table:
    """One interface, or the table of all of them."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.device, self.columns, self.way = found, "", [], ""
        match = START.match(text)
        if match is None:
            return
        self.device = match["ip"] or match["ifconfig"] or ""
        flags = match["flags"] if match["flags"] is not None else match["flags2"]
        if not self.device and text.startswith("NIC"):
            named = NAMED.search(found.command) or NAMED.search(found.name.rsplit("/", 1)[-1])
            self.device = named[1] if named else "?"
        elif flags is not None:
            words = flags.split(",")
            if "UP" in words:
                self._add("carrier", float("LOWER_UP" in words or "RUNNING" in words), at)

    def _add(self, name: str, value: str | float, at: At, device: str | None = None) -> None:
        self.found.add(name, value, at, (("device", (device or self.device)[:30]),))

    def feed(self, text: str, at: At) -> bool:
        """Take a further line."""
        if self.columns:
            numbers = text.split()
            if len(numbers) >= len(self.columns) and all(n.isdecimal() for n in numbers):
                for name, value in zip(self.columns, numbers, strict=False):
                    if name in COUNTED:
                        self._add(f"{self.way}_{COUNTED[name]}", value, at)
                self.columns = []
                return True
        if match := ROW.match(text):
            self.way, self.columns = match["way"].lower(), match["names"].split()
            return True
        if match := IFCONFIG.match(text):
            self._add(f"{match['way'].lower()}_errors", match["errors"], at)
            self._add(f"{match['way'].lower()}_dropped", match["dropped"], at)
            return True
        if match := PAIR.match(text):
            self._add(match["name"], match["value"], at)
            return True
        if match := PROC.match(text):
            numbers = match["numbers"].split()
            if len(numbers) >= 12:
                for name, index in (("rx_errors", 2), ("rx_dropped", 3), ("tx_errors", 10), ("tx_dropped", 11)):
                    self._add(name, numbers[index], at, match["device"])
            return True
        return not text or text[:1] in " \t|" or text.startswith("Inter-|")
