"""`rca.trace/1`, this project's own crash-safe journal: a record when a span starts and another when it ends, one file per process.

A span that started and never ended is evidence: the process died or still hangs in it. Beside spans there are hand-offs (count, shape, checksum at
sender and receiver), stage events and their acknowledgements, checkpoints and samples.

>>> from rca.ingest.spans.table import NO_TIME, Table
>>> table, journal = Table(), None
>>> for text in SAMPLE.splitlines():
...     journal = take(table, json.loads(text), 0, journal)
>>> table.procs[1], table.names[1], table.phases[1], table.columns["end"][0] - table.columns["start"][0]
({'host': 'node-a', 'pid': 71, 'role': 'train', 'rank': 3}, 'train_batch', ('train', 4), 2000000000)
>>> [(r["e"], r["name"], r["fields"]) for r in table.records]
[('handoff', 'batch', {'item': 'b4', 'side': 'receiver', 'count': 64})]

Source: docs, "Evidence that trainers should leave".
"""

from __future__ import annotations

import json
from typing import Any

from rca.ingest.sources import Source
from rca.ingest.spans import aliases, documents
from rca.ingest.spans.requests import flat
from rca.ingest.spans.table import CLIENT, ERROR, INTERNAL, OK, UNSET, Span, Table, failed_tag
from rca.ingest.spans.values import kind_of, nanoseconds, scaled, status_of, text_of

SAMPLE = """\
{"schema":"rca.trace/1","host":"node-a","pid":71,"role":"train","rank":3,"run":"r1","start":1757250170000000000,"clock":{"wall":1757250170000000000,"monotonic":5000000000}}
{"t":1757250178000000000,"e":"start","id":"a1","tr":"7f","n":"train_batch","st":"train","s":4}
{"t":1757250179000000000,"e":"handoff","id":"b2","p":"a1","n":"batch","st":"train","s":4,"a":{"handoff":"b4","side":"receiver","count":64}}
{"t":1757250180000000000,"e":"end","id":"a1","tr":"7f","n":"train_batch","a":{"status":"ok"}}"""
KINDS = ("start", "end", "event", "sample", "handoff", "ack", "checkpoint")
OPEN_MAX = 200_000
EVENTS_MAX = 16  # of one span
SMALL_NS = 10**17  # below: not a date but a monotonic clock


def recognise(head: bytes) -> bool:
    """Whether a file begins as a journal does, or goes on as one (its beginning was rotated away)."""
    line = head.split(b"\n", 1)[0]
    return b'"rca.trace/' in line or (line.startswith((b'{"t":', b'{"t": ')) and b'"e"' in line and any(b'"%s"' % kind.encode() in line for kind in KINDS))


class Journal:
    """What is open in one process, and the way from its clock to the wall."""

    def __init__(self) -> None:
        self.process: dict[str, Any] = {}
        self.shift: int | None = None  # wall time minus monotonic
        self.open: dict[str, tuple[dict[str, Any], int | None, int, list]] = {}  # id -> (record, start, offset, events)

    def time(self, value: Any) -> int | None:
        """A record's time as wall time; None where it is one of another clock and the header does not say how far off that is."""
        found = scaled(value, 1)
        if found is None or found < SMALL_NS:
            return found + self.shift if found is not None and self.shift is not None else None
        return found


def read(source: Source, head: bytes, table: Table) -> None:
    """All records of a file."""
    journal: Journal | None = None
    for offset, line in documents.lines(source):
        if line is None or not line.strip():
            continue
        try:
            journal = take(table, json.loads(line), offset, journal)
        except (ValueError, RecursionError):
            table.damaged += 1
    for record, start, offset, events in journal.open.values() if journal else ():
        _add(table, record, {}, start, None, offset, events, journal)


def take(table: Table, value: Any, offset: int, journal: Journal | None) -> Journal:
    """Take one record; gives the journal's state."""
    journal = journal or Journal()
    if not isinstance(value, dict):
        table.damaged += 1
        return journal
    if "schema" in value:
        for record, start, at, events in journal.open.values():  # another process wrote on into the same file
            _add(table, record, {}, start, None, at, events, journal)
        journal = Journal()
        journal.process = aliases.fields({k: v for k, v in value.items() if isinstance(v, str | int | float)})
        clock = value.get("clock")
        pair = [clock.get("wall"), clock.get("monotonic", clock.get("mono"))] if isinstance(clock, dict) else clock if isinstance(clock, list) else []
        wall, mono = (nanoseconds(pair[0]), scaled(pair[1], 1)) if len(pair) == 2 else (None, None)
        journal.shift = wall - mono if wall is not None and mono is not None else None
        return journal
    kind, name, ns = value.get("e"), text_of(value.get("n"))[:200], journal.time(value.get("t"))
    attributes = flat(value.get("a")) if isinstance(value.get("a"), dict) else {}
    key = text_of(value.get("id"))[:64]
    if kind == "start":
        if len(journal.open) < OPEN_MAX:
            journal.open[key] = (value | {"a": attributes}, ns, offset, [])
        else:
            table.gap("spans open at one time beyond the first 200000")
    elif kind == "end":
        begun = journal.open.pop(key, None)
        record, start, at, events = begun or (value | {"a": {}}, None, offset, [])
        _add(table, record, attributes, start, ns, at, events, journal)
    elif kind in KINDS:
        if kind == "event" and (above := journal.open.get(text_of(value.get("p"))[:64])) is not None and len(above[3]) < EVENTS_MAX:
            above[3].append((ns, name, attributes))
        if kind != "sample":
            raw_lists = {k: v for k, v in (value.get("a") or {}).items() if isinstance(v, list)} if isinstance(value.get("a"), dict) else {}
            table.record(kind, name, key, ns, offset, aliases.fields(attributes | {k: str(len(v)) for k, v in raw_lists.items()}), journal.process, value.get("st"), aliases.number(value.get("s")),
                         text_of(value.get("rq")), [text_of(x)[:80] for x in raw_lists.get("receivers", raw_lists.get("workers", []))[:1024]])  # fmt: skip
    else:
        table.damaged += 1
    return journal


def _add(table: Table, record: dict[str, Any], ended: dict[str, Any], start: int | None, end: int | None, offset: int, events: list, journal: Journal) -> None:
    attributes = {**record["a"], **ended}
    own = aliases.fields(attributes)
    for name, value in (("stage", record.get("st")), ("step", aliases.number(record.get("s"))), ("request", record.get("rq"))):
        if value is not None and value != "":
            own.setdefault(name, value)
    said = attributes.get("status", attributes.get("status_code"))
    status = status_of(said) if isinstance(said, str | int) and not isinstance(said, bool) and said != "failed" else ERROR if said == "failed" else UNSET
    if status == UNSET and end is not None:
        failed = failed_tag(attributes.get("error")) or any(n in own for n in ("exception_type", "exception_message", "stack")) or attributes.get("ok") is False
        status = ERROR if failed else OK
    own.pop("error", None)
    kind = kind_of(attributes.get("kind", attributes.get("span.kind"))) or (CLIENT if "peer" in own or "peer_address" in own else INTERNAL)
    error = attributes.get("error")
    table.add(Span(
        text_of(record.get("tr")), text_of(record.get("id")), text_of(record.get("p")), text_of(record.get("n")), kind, start, end, status,
        text_of(own.get("message") or (error if isinstance(error, str) else "")), own, journal.process, tuple(events),
    ), offset)  # fmt: skip
