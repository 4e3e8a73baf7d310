"""`df`, again and again: free bytes or inodes per mount.

Source: df(1).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> table = Table("Filesystem           Type  Size  Used Avail Use% Mounted on", (1, 0, ""), found)
>>> table.feed("10.0.0.5:/exp        nfs4   38T   38T     0 100% /data", (2, 0, ""))
True
>>> [(dict(r[2])["mount"], dict(r[2])["server"], r[3], r[4]) for r in found.rows()]
[('/data', '10.0.0.5:/exp', 'fs.avail', 0.0), ('/data', '10.0.0.5:/exp', 'fs.size', 41781441855488.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples
from rca.ingest.samples.memory import size_of

START = re.compile(r"Filesystem\s+(?:Type\s+)?(?P<unit>1K-blocks|1024-blocks|1M-blocks|1B-blocks|512-blocks|Size|Inodes|\S{1,12}-blocks)\s")
UNITS = {"1K-blocks": "k", "1024-blocks": "k", "1M-blocks": "m", "1B-blocks": "b", "Size": "b"}


class Table:
    """One printing."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        match = START.match(text)
        self.kind = match["unit"] if match else ""
        self.typed = text.split()[1:2] == ["Type"]

    def feed(self, text: str, at: At) -> bool:
        """Take a row."""
        fields = text.split(None, 5 + self.typed)
        if len(fields) < 6 + self.typed or not fields[-1].startswith("/"):
            return False
        about = (("mount", fields[-1][:300]), ("server", fields[0][:200]), *((("fstype", fields[1][:20]),) if self.typed else ()))
        total, _, free = fields[1 + self.typed : 4 + self.typed]
        if self.kind == "Inodes":
            self.found.add("files_free", _count(free), at, about)
            return True
        unit = UNITS.get(self.kind, "k")
        for printed, value in (("avail_bytes", free), ("size_bytes", total)):
            if (size := size_of(value, unit)) is not None:
                self.found.add(printed, size, at, about)
        return True


def _count(text: str) -> str | float:
    size = size_of(text, "b")
    return text if size is None else size
