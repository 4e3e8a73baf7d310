"""One JSON object per line, whatever library wrote it; Docker's and journald's own records are told apart by their keys.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.shape, line.level, line.rank, line.step, line.actor, repr(line.text))
json info 0 12 None 'loss=0.31'
json error None None driver 'run aborted'
journal error None None None 'NVRM: Xid 79'
json None None 3 None '{"step": 3, "data": {"loss": NaN}}'
>>> [read(t) for t in ("{'loss': 0.1}", "{", "{}", '{"a": 1}', '{"traceEvents": []}', "{" * 100_000)]
[None, None, None, None, None, None]

A Docker record holds a line of somebody else: `peel` gives that line. Source: RFC 8259; formats/08-schedulers.md 8.5.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rca.ingest.formats import Line, Wrap, journal_json, ray_event
from rca.ingest.formats.fields import build, moment

SAMPLE = """\
{"ts": "2026-11-20T11:51:19.371583Z", "level": "INFO", "rank": 0, "stage": "train", "step": 12, "msg": "loss=0.31"}
{"time": "2026-08-04T14:06:04+0800", "level": "error", "logger": "driver", "message": "run aborted"}
{"__REALTIME_TIMESTAMP": "1795174326000000", "_TRANSPORT": "kernel", "PRIORITY": "3", "MESSAGE": "NVRM: Xid 79"}
{"step": 3, "data": {"loss": NaN}}"""

LONGEST = 1 << 18  # a log record longer than this is a dump of something else
SHORT, PEEK = 1024, 4096
#: One of these keys is in every log record; long spans, metrics and configurations are not decoded at all.
KEYS = re.compile(r'"(?:msg|message|event|log|text|textPayload|jsonPayload|line|_source|MESSAGE|record|step|exception|levelname|@timestamp)"\s{0,4}:')


def decode(text: str) -> dict[str, Any] | None:
    """The object that the line is, or None."""
    if len(text) > LONGEST or text[1:2] not in '" ' or not text.rstrip().endswith("}"):
        return None
    if len(text) > SHORT and not KEYS.search(text, 0, PEEK):
        return None
    try:
        loaded = json.loads(text)  # takes NaN and Infinity, which Python's own encoder writes
    except (ValueError, RecursionError):
        return None
    return loaded if isinstance(loaded, dict) else None


def peel(text: str) -> tuple[str, Wrap] | None:
    """The inner line of a record of Docker's json-file driver; None for any other line.

    >>> peel('{"log":"[rank0]: KeyError\\\\n","stream":"stderr","time":"2025-07-03T14:20:51.565839352Z"}')[0]
    '[rank0]: KeyError'
    """
    if not text.startswith('{"log":'):
        return None
    record = decode(text) or {}
    inner = record.get("log")
    if not isinstance(inner, str) or "stream" not in record or "time" not in record:
        return None
    return inner.rstrip("\n"), Wrap("docker", stamp=moment(record["time"]))


def read(text: str) -> Line | None:
    """Read one JSON line; None where it is none or states nothing that a log line states."""
    record = decode(text)
    if record is None:
        return None
    if "MESSAGE" in record or "__REALTIME_TIMESTAMP" in record:
        return journal_json.read(record)
    if "source_type" in record and (event := ray_event.read(record)) is not None:
        return event
    inner = record.get("record")
    return build(inner if isinstance(inner, dict) else record, text, "json")
