"""Journals as OTLP in JSON, one export request a line, for any collector or viewer: `rca trace export --otlp`.

A span without an end gets its start for its end, the status "error" and the attribute `rca.open`: a viewer shows it, and nobody takes it for one that ended well. One whose end
may be among records that could not be written has `rca.end_lost` instead, and no error.
Hand-overs, events, acknowledgements and checkpoints become events of the span that they happened in, or a span of no length where there is none; samples are
no part of a trace and are left out.

Source: opentelemetry-proto, `trace.proto`, and "OTLP/JSON" of the protocol's specification.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, BinaryIO

BATCH = 512
LINE_MAX = 1 << 20
INTERNAL, CLIENT = 1, 3
PEERS = ("peer", "rca.peer", "server.address", "net.peer.name")  # a span that names whom it calls is a call
UNSET, OK, ERROR = 0, 1, 2
NAMES = {"host": "host.name", "pid": "process.pid", "role": "rca.role", "rank": "dl.rank", "local_rank": "dl.local_rank", "world_size": "dl.world_size", "run": "rca.run_id", "attempt": "rca.attempt"}
TRAINERS = ("train", "trainer", "actor", "policy", "process")  # roles whose ranks are those of the job
#: Behind these the writer does not know any more whose end it has told; what is open all the same is told again.
BREAKS = ("rca.dropped", "rca.stopped", "rca.open")
SEGMENT = re.compile(r"\.(\d{1,4}(?:\.new)?)(?=\.rca\.jsonl$)")
ROUND = re.compile(rb'\{"q":(\d{1,15}),')
HEX = re.compile(r"[\da-f]+")
Span = dict[str, Any]


def journals(paths: list[str]) -> list[list[str]]:
    """The journal files at or below some paths, those of one process together, its first segment first. Raises FileNotFoundError."""
    found: set[str] = set()
    for path in paths:
        if os.path.isdir(path):
            found |= {os.path.join(where, name) for where, _, names in os.walk(path) for name in names if name.endswith(".rca.jsonl")}
        elif os.path.exists(path):
            found.add(path)
        else:
            raise FileNotFoundError(2, "No such file or directory", path)
    groups: dict[str, list[str]] = {}
    for path in sorted(found):
        groups.setdefault(SEGMENT.sub("", path), []).append(path)
    return [sorted(group, key=lambda p: (SEGMENT.search(p) is not None, _written(p))) for _, group in sorted(groups.items())]


def _written(path: str) -> int:
    """When a segment was begun; the later ones take turns, so their numbers do not tell."""
    try:
        with open(path, "rb") as file:
            return int(json.loads(file.readline(LINE_MAX))["clock"]["wall"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return 0


def requests(paths: list[str], problems: list[str]) -> Iterator[dict[str, Any]]:
    """The export requests of one process's journal. What could not be read is told in `problems`."""
    process = _Process()
    for path in paths:
        damaged = 0
        try:
            with open(path, "rb") as file:
                for line in _lines(file):
                    try:
                        record = json.loads(line) if line.strip() else None
                        if record is None:
                            continue
                        if "schema" in record:
                            yield from process.header(record)
                        else:
                            process.take(record)
                    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                        damaged += 1
                    if len(process.ended) >= BATCH:
                        yield process.request()
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        if damaged:
            problems.append(f"{path}: {damaged} damaged line{'s' * (damaged > 1)} left out")
    yield from process.finish()


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a journal; those of a ring in the order in which they were written: by round, then by slot."""
    head = file.readline(LINE_MAX)
    yield head
    lines = iter(lambda: file.readline(LINE_MAX), b"")
    yield from sorted((line for line in lines if ROUND.match(line)), key=lambda line: int(ROUND.match(line)[1])) if b'"ring":{' in head else lines  # type: ignore[index]


class _Process:
    """What is known of one process while its records are read."""

    def __init__(self) -> None:
        self.resource: dict[str, Any] = {"attributes": []}
        self.trace = "0" * 31 + "1"  # of records that state none
        self.open: dict[str, Span] = {}
        self.lost: dict[str, Span] = {}  # those whose end may be among records that could not be written
        self.done: set[str] = set()
        self.ended: list[Span] = []
        self._who: Any = None

    def header(self, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Another segment, or another process that wrote on into the same file."""
        who = [record.get(k) for k in ("host", "pid", "start", "run", "attempt")]
        if who == self._who:
            return
        yield from self.finish()
        self._who, self.trace = who, _id(json.dumps(who), 32)
        of_role = record.get("role", "train") not in TRAINERS  # such a rank counts within the role: it is none of the job's
        about = {"rca.worker" if k == "rank" and of_role else NAMES[k]: v for k, v in record.items() if k in NAMES}
        self.resource = {"attributes": _attributes(about | {"service.name": str(record.get("role", "trainer"))})}

    def take(self, record: dict[str, Any]) -> None:
        """One record."""
        kind, key = record["e"], str(record.get("id", ""))
        time_ns = int(record["t"])
        own = record.get("a") or {}
        if kind == "start":
            if key not in self.done:  # what is open is told again in a later segment, and may have ended at that moment
                self.open.setdefault(key, self.lost.pop(key, None) or self._span(record, key))
        elif kind == "end":
            span = self.open.pop(key, None) or self.lost.pop(key, None)
            if span is not None:  # else its start was in a segment that is gone
                self.done.add(key)
                self.ended.append(_ended(span, time_ns, own))
        elif kind == "event" and record.get("n") in BREAKS:
            self.lost |= self.open
            self.open = {}
        elif kind != "sample":
            name = str(record.get("n", kind)) if kind == "event" else f"{kind} {record.get('n', '')}".strip()
            above = self.open.get(str(record.get("p", "")))
            if above is None:
                self.ended.append(self._span(record, f"{time_ns:x}/{name}") | {"name": name, "endTimeUnixNano": str(time_ns), "status": {"code": UNSET}})
            elif kind == "event" and name == "attributes":
                above["attributes"] += _attributes({k: v for k, v in own.items() if all(a["key"] != k for a in above["attributes"])})
            else:
                above["events"].append({"timeUnixNano": str(time_ns), "name": name, "attributes": _attributes(own)})

    def _span(self, record: dict[str, Any], key: str) -> Span:
        own = dict(record.get("a") or {})
        kind = own.pop("kind", CLIENT if any(name in own for name in PEERS) else INTERNAL)
        own |= {name: record[short] for short, name in (("rq", "rca.request_id"), ("st", "rca.stage"), ("s", "rca.step")) if short in record}
        span = {
            "traceId": _id(str(record["tr"]), 32) if record.get("tr") else self.trace, "spanId": _id(key, 16), "name": str(record.get("n", "")),
            "kind": kind if isinstance(kind, int) and 0 <= kind <= 5 else INTERNAL, "startTimeUnixNano": str(int(record["t"])), "attributes": _attributes(own), "events": [],
        }  # fmt: skip
        if record.get("p"):
            span["parentSpanId"] = _id(str(record["p"]), 16)
        return span

    def request(self) -> dict[str, Any]:
        """The spans that have ended since the last one."""
        spans, self.ended = self.ended, []
        return {"resourceSpans": [{"resource": self.resource, "scopeSpans": [{"scope": {"name": "rca.trace_inject"}, "spans": spans}]}]}

    def finish(self) -> Iterator[dict[str, Any]]:
        """All that is left, open spans among it."""
        self.ended += [_unended(span) for span in self.open.values()] + [_unended(span, "rca.end_lost", UNSET) for span in self.lost.values()]
        self.open, self.lost, self.done = {}, {}, set()
        while self.ended:
            rest, self.ended = self.ended[BATCH:], self.ended[:BATCH]
            yield self.request()
            self.ended = rest


def _ended(span: Span, time_ns: int, own: dict[str, Any]) -> Span:
    failed = own.get("status") == "error"
    if failed and "exception.type" in own:
        span["events"].append({"timeUnixNano": str(time_ns), "name": "exception", "attributes": _attributes({k: v for k, v in own.items() if k.startswith("exception.")})})
    known = {a["key"] for a in span["attributes"]}
    span["attributes"] += _attributes({k: v for k, v in own.items() if k not in ("status", "message") and not k.startswith("exception.") and k not in known})
    status = {"code": ERROR, "message": str(own.get("exception.message", own.get("message", "")))} if failed else {"code": OK}
    return span | {"endTimeUnixNano": str(max(time_ns, int(span["startTimeUnixNano"]))), "status": status}


def _unended(span: Span, mark: str = "rca.open", status: int = ERROR) -> Span:
    return span | {"endTimeUnixNano": span["startTimeUnixNano"], "status": {"code": status, "message": "no end was recorded"}, "attributes": [*span["attributes"], *_attributes({mark: True})]}


def _id(text: str, digits: int) -> str:
    """An id in the digits that the protocol wants, never all zeros; of what is no hexadecimal number the hash.

    >>> _id("A1", 16), _id("batch-4", 16) == _id("batch-4", 16) != _id("batch-5", 16), _id("0", 16)
    ('00000000000000a1', True, '0000000000000001')
    """
    low = text.lower()
    if HEX.fullmatch(low) is None or len(low) > digits:
        return blake2b(text.encode("utf-8", "replace"), digest_size=digits // 2).hexdigest()
    return low.rjust(digits, "0") if low.strip("0") else "1".rjust(digits, "0")


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": str(k), "value": _value(v)} for k, v in values.items() if v is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and abs(value) < 1 << 63:
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(v) for v in value]}}
    return {"stringValue": str(value)}
