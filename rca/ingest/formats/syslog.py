r"""Syslog of RFC 5424: priority and version, time, host, program, pid, message id, structured data, message; a dash where there is none.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.shape, line.host, line.actor, line.pid, line.level, line.text)
syslog gpunode trainer 4242 error RuntimeError: x
syslog node7.example.com trainer 812 info ready
kernel gpunode None None None NVRM: Xid 79
>>> [read(t) for t in ("1 2 3", "<14>x", "1 2026-01-05T10:00:00Z only")]
[None, None, None]

Source: RFC 5424 section 6.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.kernel import PRIORITY
from rca.ingest.formats.words import level
from rca.ingest.times import of

SAMPLE = """\
<11>1 2026-01-05T10:00:00.123Z gpunode trainer 4242 - - RuntimeError: x
<165>1 2026-01-05T10:00:00.003+01:00 node7.example.com trainer 812 ID47 [ex@32473 iut="3"] ready
1 2026-01-05T10:00:00Z gpunode kernel - - - NVRM: Xid 79"""

HEADER = re.compile(
    r"(?:<(\d{1,3})>)?1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)|-) ([\w.:-]{1,255}) ([!-~]{1,48}) (\d{1,9}|[!-~]{1,128}) [!-~]{1,32} "
    r"(?:-|(?:\[[^\]]{0,1000}\]){1,8})(?: (?:\ufeff)?|$)",
    re.ASCII,
)


def read(text: str) -> Line | None:
    """Read one such line."""
    match = HEADER.match(text, 0, 4 * HEAD) if text[:2] == "1 " or text[:1] == "<" else None
    if match is None:
        return None
    priority, when, host, program, pid = match.groups()
    kernel = program == "kernel"
    return Line(
        text[match.end() :],
        of(when),
        level(PRIORITY[int(priority) % 8]) if priority else None,
        host=None if host == "-" else host,
        pid=int(pid) if pid.isdecimal() else None,
        actor=None if kernel or program == "-" else program,
        shape="kernel" if kernel else "syslog",
        prefixed=True,
    )
