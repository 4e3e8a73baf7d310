"""NFS as the kernel counts it: /proc/self/mountstats, /proc/net/rpc/nfs, `nfsstat -c`.

Source: nfs(5), proc(5); per operation: ops, transmissions, major time-outs, bytes sent and received, then queue, answer and execution time in ms.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> lines = SAMPLE.splitlines()
>>> table = Table(lines[0], (1, 0, ""), found)
>>> all(table.feed(line, (2, 0, line)) for line in lines[1:])
True
>>> [(dict(r[2])["mount"], dict(r[2])["operation"], r[3], r[4]) for r in found.rows()]
[('/data', 'WRITE', 'nfs.requests', 100.0), ('/data', 'WRITE', 'nfs.retrans', 4.0), ('/data', 'WRITE', 'nfs.timeouts', 3.0), ('/data', 'WRITE', 'nfs.response_s', 9.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

SAMPLE = """\
device 10.0.0.5:/export mounted on /data with fstype nfs4 statvers=1.1
\tage:\t1234
\tper-op statistics
\t       WRITE: 100 104 3 104857600 13600 12 9000 9100 0"""

START = re.compile(r"device (?P<server>\S{1,200}) mounted on (?P<mount>/\S{0,300}) with fstype (?P<fstype>\w{1,20})|rpc \d{1,20} \d{1,20}|net \d{1,20} \d{1,20} \d{1,20} \d{1,20}$|Client rpc stats:")
OPERATION = re.compile(r"\s+(?P<name>READ|WRITE|COMMIT|OPEN|CLOSE|GETATTR|FSYNC|LOOKUP|ACCESS|CREATE|RENAME|REMOVE|LAYOUTGET):\s(?P<numbers>\d[\d ]{8,300})$")
KEPT = frozenset({"READ", "WRITE", "COMMIT", "OPEN", "GETATTR"})


class Table:
    """One mount, or the client's own counters."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.heading = found, text.startswith("Client")
        match = START.match(text)
        self.nfs = bool(match and (match["fstype"] or "").startswith("nfs"))
        self.about = (("mount", match["mount"]), ("server", match["server"])) if match and match["mount"] else ()
        self.feed(text, at)

    def feed(self, text: str, at: At) -> bool:
        """Take a line."""
        if text.startswith("rpc ") and len(fields := text.split()) >= 3:
            self.found.add("nfs_retrans_total", fields[2], at)
            return True
        if self.heading:
            fields = text.split()
            if len(fields) >= 2 and all(f.isdecimal() for f in fields):
                self.found.add("nfs_retrans_total", fields[1], at)
                self.heading = False
            return True
        if match := OPERATION.match(text):
            numbers = match["numbers"].split()
            if self.nfs and match["name"] in KEPT and len(numbers) >= 8:
                about = (*self.about, ("operation", match["name"]))
                self.found.add("nfs_requests", numbers[0], at, about)
                self.found.add("nfs_retrans_total", float(max(0, int(numbers[1]) - int(numbers[0]))), at, about)
                self.found.add("nfs_timeouts", numbers[2], at, about)
                self.found.add("nfs_response_ms", numbers[6], at, about)
            return True
        return not text or text[:1] in " \t" or text.startswith(("net ", "proc", "th ", "rc ", "fh ", "io ", "ra ")) or (text.startswith("device ") and not START.match(text))
