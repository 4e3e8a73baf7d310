"""Recording of this process: on, off, and what becomes of it in a child.

`install()` switches it on; so does `RCA_TRACE_DIR` in the environment, at the first record, which is how child processes of any start method follow.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from typing import Any

from rca.trace_inject import guard
from rca.trace_inject.journal import RECORD_MAX, SIZE_MAX, Journal

FOLDER = "RCA_TRACE_DIR"
SIZE = "RCA_TRACE_MAX_BYTES"
OFF = "RCA_TRACE_OFF"
RING = "RCA_TRACE_RING"
EXIT = "rca.exit"  # the last record of a process that leaves Python in order
TEXT_MAX = 1000  # characters of one value

journal: Journal | None = None
_earlier: list[Journal] = []  # those that spans may still hold that began before another `install`
_stopped = False
_asked = False  # whether the environment has been looked at


def default_folder() -> str:
    """A folder on this machine's own memory or disk: a network file system that hangs would hang the trainer."""
    base = "/dev/shm"
    if not os.access(base, os.W_OK):
        import tempfile

        base = tempfile.gettempdir()
    return os.path.join(base, f"rca-trace-{os.getuid() if hasattr(os, 'getuid') else 'user'}")


def start(folder: str | None = None, about: dict[str, Any] | None = None, size_max: int | None = None, ring: bool | None = None) -> Journal | None:
    """Switch recording on and tell child processes; None where `RCA_TRACE_OFF` is set."""
    global journal, _asked, _stopped
    _asked = True
    if os.environ.get(OFF, "0") not in ("", "0"):
        return None
    said = os.environ.get(SIZE, "")
    folder = os.path.abspath(os.path.expanduser(folder or os.environ.get(FOLDER) or default_folder()))
    _stopped = False
    wanted = os.environ.get(RING, "")
    ring = wanted not in ("", "0") if ring is None else ring
    if journal is None or (journal.folder, journal.asked, journal.is_ring) != (folder, about or {}, ring):  # spans that are open now end where they began
        if journal is not None:
            _earlier.append(journal)
            journal.leave()
        size_max = size_max or (int(said) if said.isdecimal() else None)
        if ring:
            journal = _ring(folder, about, size_max or (int(wanted) if wanted.isdecimal() and int(wanted) > 1 else None))
        else:
            journal = Journal(folder, about, size_max or SIZE_MAX)
    os.environ[FOLDER] = folder
    return journal


def _ring(folder: str, about: dict[str, Any] | None, size: int | None) -> Journal:
    from rca.trace_inject import ring

    return ring.Ring(folder, about, size or ring.RING_BYTES)


def current() -> Journal | None:
    """The journal, if recording is on."""
    if journal is None and not _asked and not _stopped:
        _from_environment()
    return journal


@guard.quiet()
def _from_environment() -> None:
    global _asked
    _asked = True
    if os.environ.get(FOLDER) and start() is not None:
        follow_otel()


def follow_otel(mirrored: bool | None = None) -> None:
    """Let the spans of the user's OpenTelemetry come here, and with `mirrored` ours go there."""
    from rca.trace_inject import otel

    otel.attach(mirrored)


def stop(reason: str | None = None) -> None:
    """Switch recording off, and say why in the journal."""
    global journal, _stopped
    _stopped = True
    if journal is not None:
        if reason or journal.open:
            put({"t": time.time_ns(), "e": "event", "n": "rca.stopped", "a": {"reason": reason or "uninstalled"}})
        journal.close()
        journal = None


def put(record: dict[str, Any]) -> None:
    """Write one record; what is too long is cut value by value."""
    to = current()
    if to is not None:
        to.put(encode(record))


def encode(record: dict[str, Any], most: int = RECORD_MAX) -> bytes:
    """A record as its line, in at most so many bytes."""
    data = text(record).encode()
    if len(data) >= most:
        data = _cut(record, most)
    return data + b"\n"


def _cut(record: dict[str, Any], most: int) -> bytes:
    attributes = dict(record.get("a") or {})
    for limit in (400, 100, 20):
        short = {str(k)[:80]: v[:limit] if isinstance(v, str) else v[: limit // 10] if isinstance(v, list) else v for k, v in attributes.items()}
        data = text({**record, "a": {**short, "rca.cut": True}}).encode()
        if len(data) < most:
            return data
    kept = {k: v[:80] if isinstance(v, str) else v for k, v in record.items() if k in ("t", "e", "id", "p", "tr", "rq", "n", "st", "s", "again") and not isinstance(v, dict | list)}
    return text({**kept, "a": {"rca.cut": True}}).encode()


def plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as JSON takes them: numbers and short texts; of anything else its text."""
    return {str(k)[:200]: _value(v) for k, v in attributes.items() if v is not None}


def _value(value: Any) -> Any:
    if isinstance(value, bool | int) or (isinstance(value, float) and value == value and abs(value) != float("inf")):
        return value
    if isinstance(value, list | tuple):
        return [_value(v) for v in value[:256]]
    return str(value)[:TEXT_MAX]


def _plain(value: Any) -> str:
    return str(value)[:TEXT_MAX]


text = json.JSONEncoder(separators=(",", ":"), default=_plain).encode  # made once: `json.dumps` would make one for each record


def _in_child() -> None:
    global journal
    try:
        for each in (*_earlier, *([journal] if journal is not None else ())):
            each.forked()
        _earlier.clear()
        if journal is not None:
            journal = journal.for_child()
    except Exception as error:
        guard.fault("fork", error)


@guard.quiet()
def _at_exit() -> None:
    """Python is left in order: what a process that was killed cannot say."""
    if journal is None or not journal.begun:
        return
    error = getattr(sys, "last_value", None)
    said = {} if error is None else {"a": {"exception.type": type(error).__qualname__, "exception.message": str(error)[:TEXT_MAX]}}
    put({"t": time.time_ns(), "e": "event", "n": EXIT, **said})


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
