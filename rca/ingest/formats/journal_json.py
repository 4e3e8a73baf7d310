"""`journalctl -o json`: all values are strings; MESSAGE may be an array of bytes, null, or an array of repeats.

>>> for message in ("NVRM: Xid 79", [78, 86, 82, 77, 255], None, ["a", "b"]):
...     line = read({"__REALTIME_TIMESTAMP": "1795174326123456", "_HOSTNAME": "n1", "_TRANSPORT": "kernel", "PRIORITY": "3", "MESSAGE": message})
...     print(repr(line.text), line.host, line.level, line.stamp.error_ns, line.shape)
'NVRM: Xid 79' n1 error 500 journal
'NVRM\\ufffd' n1 error 500 journal
'' n1 error 500 journal
'a b' n1 error 500 journal
>>> read({"SYSLOG_IDENTIFIER": "slurmd", "_PID": "812", "MESSAGE": "x"}).actor
'slurmd'

Source: systemd.journal-fields(7); journalctl(1); systemd.io/JOURNAL_EXPORT_FORMATS.
"""

from __future__ import annotations

from typing import Any

from rca.ingest.formats import Line
from rca.ingest.formats.kernel import PRIORITY
from rca.ingest.formats.words import level
from rca.ingest.times import epoch


def read(record: dict[str, Any]) -> Line:
    """The Line of one decoded object."""
    when = _text(record.get("__REALTIME_TIMESTAMP") or record.get("_SOURCE_REALTIME_TIMESTAMP"))
    identifier = _text(record.get("SYSLOG_IDENTIFIER") or record.get("_COMM"))
    kernel = _text(record.get("_TRANSPORT")) == "kernel" or identifier == "kernel"
    priority, pid = _text(record.get("PRIORITY")), _text(record.get("_PID") or record.get("SYSLOG_PID"))
    return Line(
        _text(record.get("MESSAGE")),
        epoch(when) if when else None,
        level(PRIORITY[int(priority)]) if priority in ("0", "1", "2", "3", "4", "5", "6", "7") else None,
        host=_text(record.get("_HOSTNAME")) or None,
        pid=int(pid) if pid.isdecimal() and len(pid) < 10 else None,
        actor=None if kernel else identifier or None,
        shape="journal",
        prefixed=True,
    )


def _text(value: Any) -> str:
    """A field as text: bytes that are no UTF-8 come as numbers, a field given twice as a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if value and all(isinstance(v, int) and 0 <= v < 256 for v in value):
            return bytes(value).decode("utf-8", "replace")
        return " ".join(_text(v) for v in value if isinstance(v, str | list) and v is not value)
    return str(value) if isinstance(value, int | float) else ""
