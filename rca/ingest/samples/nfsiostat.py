"""`nfsiostat N`: a block per mount and interval. The first block after the start of the tool tells of the time since the mount.

Source: nfs-utils tools/nfs-iostat.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> lines = SAMPLE.splitlines()
>>> table = Table(lines[0], (1, 0, ""), found)
>>> all(table.feed(line, (2, 0, line)) for line in lines[1:])
True
>>> [(dict(r[2])["mount"], dict(r[2])["operation"], r[3], r[4]) for r in found.rows() if r[3] in ("nfs.rtt_ms", "nfs.retrans_now")]
[('/data', 'write', 'nfs.retrans_now', 71.0), ('/data', 'write', 'nfs.rtt_ms', 96902.018)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

SAMPLE = """\
10.111.0.46:/export/rl mounted on /data:

           ops/s       rpc bklog
           0.958           0.000

write:             ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)          errors
                   0.000           0.000        1024.000       71 (12.1%)       96902.018      107668.909       10766.891        0 (0.0%)"""

START = re.compile(r"(?P<server>\S{1,200}) mounted on (?P<mount>/\S{0,300}?):?$")
COLUMNS = re.compile(r"\s{0,9}(?P<operation>read|write|\w{3,20}):\s{1,40}ops/s\s")
NAMES = {"ops/s": "nfs_ops", "retrans": "nfs_retrans", "avg RTT (ms)": "nfs_rtt_ms", "avg exe (ms)": "nfs_exe_ms"}
HEADS = re.compile(r"avg \w{2,5} \(ms\)|\S+")
VALUES = re.compile(r"[\d.]+(?: \([\d.]+%\))?")


class Table:
    """One mount in one interval."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.columns, self.operation = found, [], ""
        match = START.match(text)
        self.about = (("mount", match["mount"]), ("server", match["server"])) if match else ()

    def feed(self, text: str, at: At) -> bool:
        """Take a line of the block."""
        if match := COLUMNS.match(text):
            self.operation, self.columns = match["operation"], HEADS.findall(text[match.end() - len("ops/s ") :])
            return True
        words = text.split()
        if not words or words[:2] == ["ops/s", "rpc"] or (words[0] == "op/s" and "rpc" in words):
            self.columns = []
            return True
        if not words[0][0].isdigit() or START.match(text):
            return False
        for name, value in zip(self.columns, VALUES.findall(text), strict=False):
            if name in NAMES:
                self.found.add(NAMES[name], value.partition(" ")[0], at, (*self.about, ("operation", self.operation)))
        return True
