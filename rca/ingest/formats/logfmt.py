r"""`key=value` lines that begin with a time or a level: logfmt of Go programs, structlog and home-grown loggers.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.level, line.actor, line.step, repr(line.text), line.extra)
error driver None 'run aborted: "x" err=500' None
info None 12 'loss down' None
error None None 'failed' {'exc': 'Traceback (most recent call last):\n  File "x.py", line 3\nKeyError: 3'}
>>> read("time=3 apples"), read("ts=1792720189.708"), read("level=3")
(None, None, None)

Source: brandur.org/logfmt; logrus TextFormatter; structlog.processors.LogfmtRenderer.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.fields import build

SAMPLE = r"""ts=1792724298.558 level=error src=driver msg="run aborted: \"x\"" err=500
time="2026-11-20T11:51:19Z" level=info step=12 msg="loss down"
level=error ts=2026-11-20T11:51:19.371Z msg="failed" exc="Traceback (most recent call last):\n  File \"x.py\", line 3\nKeyError: 3"
"""

START = re.compile(r"(?:ts|time|timestamp|t|level|lvl)=", re.ASCII)
PAIR = re.compile(r'([A-Za-z_@][\w.@-]{0,60})=("(?:[^"\\]|\\.)*"|[^\s"]*+) ?', re.ASCII)
ESCAPE = re.compile(r'\\(["\\nrt])')
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
LONGEST = 1 << 16


def read(text: str) -> Line | None:
    """Read one such line; what stands behind the message stays with it."""
    if not START.match(text) or len(text) > LONGEST:
        return None
    record: dict[str, str] = {}
    at, end = 0, None
    while (match := PAIR.match(text, at)) and (at < HEAD or "msg" not in record):
        key, value = match.groups()
        if value[:1] == '"':
            value = ESCAPE.sub(lambda m: ESCAPES.get(m[1], m[1]), value[1:-1])
        record.setdefault(key, value)
        at = match.end()
        if key in ("msg", "message", "event"):
            end = at
    if end is None:
        return None
    line = build(record, text, "logfmt")
    rest = text[end:]
    return line if line is None or not rest or line.extra else line._replace(text=f"{line.text} {rest}")
