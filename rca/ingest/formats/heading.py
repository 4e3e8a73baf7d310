"""A line that is nothing but a date: what `date` printed between the samples of a monitor, with or without `#` before it.

>>> for text in SAMPLE.splitlines():
...     print(iso(read(text).stamp)[:19])
2026-09-08T08:40:26
2026-10-22T17:53:46
>>> read("# install"), read("## 2 steps")
(None, None)

Source: nfsiostat(8), `date -R` in collectors' scripts.
"""

from __future__ import annotations

from rca.ingest.formats import LOCAL, Line
from rca.ingest.times import iso  # noqa: F401  (iso is for the doctest)
from rca.ingest.times import read as read_time

SAMPLE = """\
# Tue, 08 Sep 2026 08:40:26 +0000
### Fri, 23 Oct 2026 01:53:46 +0800"""


def read(text: str) -> Line | None:
    """Read one such line."""
    if len(text) > LOCAL:
        return None
    bare = text.strip("#=-* \t:")
    found = read_time(bare)
    if found is None or found[0] is None or found[1] != len(bare):
        return None
    return Line(text, found[0], shape="heading", prefixed=True)
