"""`mtr --report`: the way to a host hop by hop. Only the last hop's loss is loss: routers on the way may answer as they please.

Source: mtr(8).

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("x")
>>> lines = SAMPLE.splitlines()
>>> table = Table(lines[0], (1, 0, ""), found)
>>> all(table.feed(line, (2, 0, line)) for line in lines[1:]), table.close()
(True, None)
>>> [(r[1], r[3], r[4]) for r in found.rows()]
[('gn7', 'net.loss_percent', 12.0), ('gn7', 'net.rtt_ms', 310.4)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

SAMPLE = """\
HOST: gn1                         Loss%   Snt   Last   Avg  Best  Wrst StDev
  1.|-- 10.0.0.254                60.0%    50    0.3   0.4   0.2   1.1   0.1
  2.|-- gn7                       12.0%    50    0.5 310.4   0.2 900.1   9.1"""

START = re.compile(r"HOST: \S{1,100}\s+Loss%")
HOP = re.compile(r"\s{0,4}\d{1,3}\.\|?(?:--|-)?\s{0,3}(?:AS\S{1,12}\s+)?(?P<host>[\w.:?-]{1,100})(?: \([\d.:a-f]{3,50}\))?\s+(?P<loss>[\d.]{1,6})%?\s+\d{1,9}\s+[\d.]{1,12}\s+(?P<average>[\d.]{1,12})")


class Table:
    """One report."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found = found
        self.last: tuple[re.Match[str], At] | None = None

    def feed(self, text: str, at: At) -> bool:
        """Take a hop."""
        if match := HOP.match(text):
            self.last = match, at
            return True
        return bool(re.match(r"\s+\|", text))

    def close(self) -> None:
        """Take the last hop. One that nobody answered from is the host that answered in the report before, in a file of one host's reports."""
        if not self.last:
            return
        match, at = self.last
        if "?" not in match["host"]:
            self.found.add("loss_percent", match["loss"], at, host=match["host"])
            self.found.add("rtt_ms", match["average"], at, host=match["host"])
            self.found.asked = match["host"]
        elif self.found.asked is not None and float(match["loss"]) == 100.0:
            self.found.add("loss_percent", match["loss"], at, host=self.found.asked)
