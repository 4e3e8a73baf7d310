"""NCCL's own lines: `host:pid:tid [dev] NCCL WARN message`. The number in brackets is a CUDA device, never a rank.

`NCCL WARN` stays in the text: it names the speaker, as `NVRM:` does.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.host, line.pid, line.level, line.stamp is not None, repr(line.text[:32]))
vale-39 84069 info False 'NCCL INFO transport/net.cc:1142 '
vale-39 84069 warning False 'NCCL WARN NET/IB : Got completio'
h1 3468 warning True 'NCCL WARN socketProgress: Connec'
>>> read("no NCCL WARN here"), read("a:1:2 [0] NCCL")
(None, None)

Source: NCCL src/debug.cc; formats/02-c10d-nccl.md 2.4.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line, make
from rca.ingest.times import of

SAMPLE = """\
vale-39:84069:10010 [0] NCCL INFO transport/net.cc:1142 -> 6
vale-39:84069:10010 [0] transport/net_ib.cc:1304 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<33092>
[2026-11-20 11:32:06] h1:3468:3905 [4] misc/socket.cc:50 (ncclSocket) NCCL WARN socketProgress: Connection closed"""

HEADER = re.compile(
    r"(?:\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?)\] )?([^:\s\[\]]{1,80}):(\d{1,9}):\d{1,9} \[-?\d{1,4}\] "
    r"(?:[\w./+-]{1,120}:\d{1,6} (?:\(\w{1,80}\) )?)?(?=NCCL (INFO|WARN|TRACE|CALL|VERSION|ABORT)\b)",
    re.ASCII,
)
LEVELS = {"INFO": "info", "WARN": "warning", "ABORT": "error"}


def read(text: str) -> Line | None:
    """Read one NCCL line."""
    match = HEADER.match(text, 0, HEAD)
    if match is None:
        return None
    when, host, pid, word = match.groups()
    level = LEVELS.get(word, "debug")
    stamp = of(when) if when else None
    return make((text[match.end() :], stamp, level, None, None, host, int(pid), None, None, None, "", "nccl", True, None, None))
