"""Counters of RDMA ports: `rdma statistic show`, `perfquery`, and the files of sysfs as `grep .` or `head` print them.

All are cumulative and without a time: one dump proves nothing, two do. Source: rdma-statistic(8), perfquery(8), Documentation/ABI/stable/sysfs-class-infiniband.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> for line in SAMPLE.splitlines():
...     table = Table(line, (1, 0, ""), found)
>>> [(dict(r[2])["device"], dict(r[2])["port"], r[3], r[4]) for r in found.rows()]
[('mlx5_0', '1', 'rdma.sequence', 5.0), ('mlx5_0', '1', 'rdma.ack_timeout', 2.0), ('mlx5_1', '1', 'rdma.link_downed', 3.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

SAMPLE = """\
link mlx5_0/1 rx_write_requests 1533712449 out_of_sequence 5 local_ack_timeout_err 2
/sys/class/infiniband/mlx5_1/ports/1/counters/link_downed:3"""

START = re.compile(r"link (?P<device>[\w-]{2,30})/(?P<port>\d{1,3})(?:\s|$)|(?:==> )?\S{0,200}?(?:infiniband/[\w-]{2,30}/ports/\d{1,3}/|(?:hw_)?counters/)\w{2,60}(?::| <==)|# (?:Port (?:extended )?counters|Port \w{3,20} counters): Lid")
FILE = re.compile(r"(?:==> )?\S{0,200}?(?:infiniband/(?P<device>[\w-]{2,30})/ports/(?P<port>\d{1,3})/)?(?:(?:hw_)?counters/)?(?P<name>\w{2,60})(?::\s?(?P<value>\S{1,40})| <==)")
QUERY = re.compile(r"(?P<name>\w{3,60}):\.{2,60}(?P<value>\S{1,40})$")
LID = re.compile(r"# Port \D{0,40}(?:Lid (?P<lid>\d{1,6}) )?port (?P<port>\d{1,3})", re.I)
PAIRS = re.compile(r"([a-z_]\w{1,60})\s+(\d{1,20})(?=\s|$)")
DEVICE = re.compile(r"((?:mlx\d|bnxt_re|irdma|hfi1|efa|rocep\w{1,12}|ib)_?\d{1,3}|rdmap\w{1,12})(?:[_.-](?:port)?(\d))?(?=[_.\-/]|$)")


class Table:
    """One port."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.about, self.pending = found, (), ""
        if text.startswith("link "):
            match = START.match(text)
            self.about = (("device", match["device"]), ("port", match["port"])) if match else ()
            self._pairs(text, at)
        elif text.startswith("#"):
            match, named = LID.match(text), DEVICE.search(found.command) or DEVICE.search(found.name)
            self.about = ((("device", named[1]),) if named else (("device", f"lid {match['lid']}"),) if match and match["lid"] else ()) + ((("port", match["port"]),) if match else ())
        else:
            self._file(text, at)

    def feed(self, text: str, at: At) -> bool:
        """Take a further line of the same dump."""
        if text.startswith("link "):
            return False
        if self.pending:
            self.found.add(self.pending, text.partition(":")[0], at, self.about)
            self.pending = ""
            return True
        if match := QUERY.match(text):
            self.found.add(match["name"], match["value"], at, self.about)
            return True
        if START.match(text) and not text.startswith("#"):
            return self._file(text, at)
        if not text or text.lstrip().startswith(("Optional-set", "# ")):
            return not START.match(text)
        return text[:1] in " \t" and self._pairs(text, at)

    def _pairs(self, text: str, at: At) -> bool:
        pairs = PAIRS.findall(text)
        for name, value in pairs:
            self.found.add(name, value, at, self.about)
        return bool(pairs)

    def _file(self, text: str, at: At) -> bool:
        match = FILE.match(text)
        if match is None:
            return False
        named = (match["device"], match["port"]) if match["device"] else (d[1], d[2] or "1") if (d := DEVICE.search(self.found.command) or DEVICE.search(self.found.name)) else None
        self.about = (("device", named[0]), ("port", named[1])) if named else ()
        if match["value"] is None:
            self.pending = match["name"]
        else:
            self.found.add(match["name"], match["value"], at, self.about)
        return True
