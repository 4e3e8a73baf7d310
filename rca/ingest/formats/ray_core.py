"""Ray's C++ components: raylet, gcs_server and the core of each worker.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.level, line.actor, line.pid, repr(line.text[:26]))
info raylet 4259 'IOServicePool is running w'
error None 1919 '*** SIGBUS received at tim'
error gcs_server 521611 'Failed to establish connec'
>>> read("[2025-06-26 07:25:31 DP4 TP4] Watchdog timeout")

Source: ray src/ray/util/logging.cc; formats/03-ray.md 3.2.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.words import LEVELS
from rca.ingest.times import of

SAMPLE = """\
[2023-05-19 12:35:18,347 I 4259 68399276] (raylet) io_service_pool.cc:35: IOServicePool is running with 1 io_service.
[2024-03-12 06:41:56,755 E 1919 2136] logging.cc:368: *** SIGBUS received at time=1702363316 on cpu 14 ***
[2026-07-28 13:07:44,212 E 521611  (gcs_server) gcs_server.cc:308: Failed to establish connection"""

HEADER = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([DIWEFC]) {1,4}(\d{1,9})(?: {1,4}\d{1,20})? ?\]? {0,4}(?:\(([\w-]{1,80})\) )?(?:[\w./-]{1,80}:\d{1,6}: )?",
    re.ASCII,
)


def read(text: str) -> Line | None:
    """Read one such line."""
    match = HEADER.match(text, 0, HEAD) if text[24:25] == " " else None
    if match is None:
        return None
    when, letter, pid, component = match.groups()
    return Line(text[match.end() :], of(when), LEVELS[letter], pid=int(pid), actor=component, shape="ray_core", prefixed=True)
