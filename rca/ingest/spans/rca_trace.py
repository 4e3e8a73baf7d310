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
import re
from collections.abc import Iterable
from typing import Any

from rca.ingest.sources import Source
from rca.ingest.spans import aliases, documents, samples_of_journal
from rca.ingest.spans.requests import flat
from rca.ingest.spans.table import CLIENT, ERROR, INTERNAL, NO_TIME, OK, UNSET, Span, Table, failed_tag, number_of_id
from rca.ingest.spans.values import kind_of, nanoseconds, scaled, status_of, text_of

SAMPLE = """\
{"schema":"rca.trace/1","host":"node-a","pid":71,"role":"train","rank":3,"run":"r1","start":1757250170000000000,"clock":{"wall":1757250170000000000,"monotonic":5000000000}}
{"t":1757250178000000000,"e":"start","id":"a1","tr":"7f","n":"train_batch","st":"train","s":4}
{"t":1757250179000000000,"e":"handoff","id":"b2","p":"a1","n":"batch","st":"train","s":4,"a":{"handoff":"b4","side":"receiver","count":64}}
{"t":1757250180000000000,"e":"end","id":"a1","tr":"7f","n":"train_batch","a":{"status":"ok"}}"""
EXIT = "rca.exit"
KINDS = ("start", "end", "event", "sample", "handoff", "ack", "checkpoint")
TRAINERS = ("train", "trainer", "actor", "policy", "process")  # roles whose ranks are those of the job
GIVEN_UP_NS = 1_000_000_000  # a call that was cancelled sooner was cancelled for another's sake
OPEN_MAX = 200_000
JOURNALS_MAX = 1000  # headers of one file
EVENTS_MAX = 16  # of one span
SMALL_NS = 10**17  # below: not a date but a monotonic clock
RING = re.compile(rb'"ring":\{"slot":(\d{1,9}),"slots":(\d{1,9})\}')
NUMBERED = re.compile(rb'\{"q":(\d{1,15}),')
RING_MAX = 256 << 20  # bytes of a ring that are put in order
#: Behind these the writer does not know any more whose end it has told: what is open all the same is told again.
BREAKS = ("rca.dropped", "rca.stopped", "rca.open")


def recognise(head: bytes) -> bool:
    """Whether a file begins as a journal does, or goes on as one (its beginning was rotated away)."""
    line = head.split(b"\n", 1)[0]
    return b'"rca.trace/' in line or (line.startswith((b'{"t":', b'{"t": ')) and b'"e"' in line and any(b'"%s"' % kind.encode() in line for kind in KINDS))


Open = tuple[dict[str, Any], "int | None", int, list]  # record, start, offset, events


class Journal:
    """What is open in one process, and the way from its clock to the wall."""

    def __init__(self) -> None:
        self.process: dict[str, Any] = {}
        self.born: tuple[Any, ...] | None = None  # host, pid and start of the process, the same in all its files
        self.shift: int | None = None  # wall time minus monotonic
        self.open: dict[str, Open] = {}  # by id
        self.lost: dict[str, tuple[Open, int | None]] = {}  # those whose end may be among dropped records, and when that was known
        self.again: set[str] = set()  # told a second time, where their end may already stand

    def time(self, value: Any) -> int | None:
        """A record's time as wall time; None where it is one of another clock and the header does not say how far off that is."""
        found = scaled(value, 1)
        if found is None or found < SMALL_NS:
            return found + self.shift if found is not None and self.shift is not None else None
        return found


def read(source: Source, head: bytes, table: Table) -> None:
    """All records of a file."""
    journal: Journal | None = None
    lines = documents.lines(source)
    if b'"ring":' in head.split(b"\n", 1)[0] and source.size <= RING_MAX:
        lines = in_order(lines, table)
    for offset, line in lines:
        if line is None or not line.strip():
            continue
        try:
            journal = take(table, json.loads(line), offset, journal, line)
        except (ValueError, RecursionError):
            table.damaged += 1
    if journal:
        _unended(table, journal)


def in_order(lines: Iterable[tuple[int, bytes | None]], table: Table) -> list[tuple[int, bytes | None]]:
    """The lines of a ring, in the order in which they were written: by round, then by slot. What was overwritten is counted, and so is a slot that was only half copied."""
    numbered: list[tuple[int, int, bytes]] = []
    sizes: list[int] = []
    for offset, line in lines:
        if line is None or not line.strip():
            continue
        if match := NUMBERED.match(line):
            numbered.append((int(match[1]), offset, line))
        elif not numbered and not sizes and (match := RING.search(line)):
            sizes = [int(match[1]), int(match[2])]
            numbered.append((-1, offset, line))
        else:
            table.damaged += 1
    numbered.sort()
    if sizes and all(sizes) and len(numbered) > 1:
        rounds, offset, _ = numbered[-1]
        missing = rounds * sizes[1] + offset // sizes[0] - (len(numbered) - 1)
        if missing > 0:
            table.gaps["not written: records that newer ones of the ring took the place of"] = missing
    return [(offset, line) for _, offset, line in numbered]


def take(table: Table, value: Any, offset: int, journal: Journal | None, line: bytes = b"") -> Journal:
    """Take one record, which stands in that line; gives the journal's state."""
    journal = journal or Journal()
    if not isinstance(value, dict):
        table.damaged += 1
        return journal
    if "schema" in value:
        born = (value.get("host"), value.get("pid"), value["start"]) if "start" in value else None
        if born is not None and born == journal.born:
            return journal  # the same process opened its file again
        _unended(table, journal)  # another process wrote on into the same file
        journal = Journal()
        journal.born = born
        journal.process = _counted(aliases.fields({k: v for k, v in value.items() if isinstance(v, str | int | float)}))
        clock = value.get("clock")
        pair = [clock.get("wall"), clock.get("monotonic", clock.get("mono"))] if isinstance(clock, dict) else clock if isinstance(clock, list) else []
        wall, mono = (nanoseconds(pair[0]), scaled(pair[1], 1)) if len(pair) == 2 else (None, None)
        journal.shift = wall - mono if wall is not None and mono is not None else None
        if born is not None and len(table.journals) < JOURNALS_MAX:
            table.journals.append((offset, "/".join(text_of(part)[:120] for part in born), wall or 0, False))
        return journal
    kind, name, ns = value.get("e"), text_of(value.get("n"))[:200], journal.time(value.get("t"))
    if kind == "sample":
        samples_of_journal.take(table, value.get("a"), ns, journal.process.get("host"), offset, line[: samples_of_journal.RAW_CUT].decode("utf-8", "replace"))
        return journal
    attributes = flat(value.get("a")) if isinstance(value.get("a"), dict) else {}
    key = text_of(value.get("id"))[:64]
    if kind == "start":
        if key in journal.lost:
            journal.open[key] = journal.lost.pop(key)[0]
        if value.get("again"):
            journal.again.add(key)
        if key in journal.open and value.get("again"):
            pass
        elif len(journal.open) < OPEN_MAX:
            journal.open[key] = (value | {"a": attributes}, ns, offset, [])
        else:
            table.gap("spans open at one time beyond the first 200000")
    elif kind == "end":
        begun = journal.open.pop(key, None) or journal.lost.pop(key, (None,))[0]
        record, start, at, events = begun or (value | {"a": {}}, None, offset, [])
        if attributes.get("rca.cancelled") is True and start is not None and ns is not None and ns - start > GIVEN_UP_NS:
            ns = None  # it was waited for, and given up: as good as one without an end
        _add(table, record, attributes, start, ns, at, events, journal)
    elif kind == "event" and name == EXIT:
        table.record("exit", name, key, ns, offset, aliases.fields(attributes), journal.process, None, None)
    elif kind in KINDS:
        if kind == "event" and (above := journal.open.get(text_of(value.get("p"))[:64])) is not None and len(above[3]) < EVENTS_MAX:
            above[3].append((ns, name, attributes))
        if kind == "event" and name == "rca.complete":
            table.journals[-1:] = [(*known[:3], True) for known in table.journals[-1:]]
        elif kind == "event" and name in BREAKS:
            journal.lost |= {k: (span, ns) for k, span in journal.open.items()}
            journal.open.clear()
            if name == "rca.dropped":
                reason = "not written: records for which there was no room"
                table.gaps[reason] = table.gaps.get(reason, 0) + max(1, aliases.number(attributes.get("count")) or 1)
        else:
            raw_lists = {aliases.field_of(k) or k: v for k, v in (value.get("a") or {}).items() if isinstance(v, list)} if isinstance(value.get("a"), dict) else {}
            table.record(kind, name, key, ns, offset, aliases.fields(attributes | {k: str(len(v)) for k, v in raw_lists.items()}), journal.process, value.get("st"), aliases.number(value.get("s")),
                         text_of(value.get("rq")), [text_of(x)[:80] for x in raw_lists.get("receivers", [])[:1024]])  # fmt: skip
    else:
        table.damaged += 1
    return journal


def _unended(table: Table, journal: Journal) -> None:
    """The spans that have no end when a process's records do. One whose end may have been dropped is no open one; when it ended is not known."""
    if journal.again.intersection(journal.open):
        ended = {span for span, end in zip(table.columns["span"], table.columns["end"], strict=True) if end != NO_TIME}
        for key in [k for k in journal.again if k in journal.open and number_of_id(k) in ended]:
            del journal.open[key]
    for record, start, offset, events in journal.open.values():
        _add(table, record, {}, start, None, offset, events, journal)
    for (record, start, offset, events), known in journal.lost.values():
        _add(table, record, {"status": "unset"}, None, known or start, offset, events, journal)


def _counted(process: dict[str, Any]) -> dict[str, Any]:
    """A header's rank counts within its role; only the trainer's is a rank of the job.

    >>> _counted({"role": "rollout", "rank": 1}), _counted({"role": "train", "rank": 1}), _counted({"rank": 1})
    ({'role': 'rollout', 'worker': 1}, {'role': 'train', 'rank': 1}, {'rank': 1})
    """
    if isinstance(process.get("rank"), int) and str(process.get("role", "train")) not in TRAINERS and "worker" not in process:
        process["worker"] = process.pop("rank")
    return process


def _add(table: Table, record: dict[str, Any], ended: dict[str, Any], start: int | None, end: int | None, offset: int, events: list, journal: Journal) -> None:
    attributes = {**record["a"], **ended}
    own = aliases.fields(attributes)
    for name, value in (("stage", record.get("st")), ("step", aliases.number(record.get("s"))), ("request", record.get("rq"))):
        if value is not None and value != "":
            own.setdefault(name, value)
    said = attributes.get("status", attributes.get("status_code"))
    status = status_of(said) if isinstance(said, str | int) and not isinstance(said, bool) and said != "failed" else ERROR if said == "failed" else UNSET
    if status == UNSET and end is not None and said != "unset":
        failed = failed_tag(attributes.get("error")) or any(n in own for n in ("exception_type", "exception_message", "stack")) or attributes.get("ok") is False
        status = ERROR if failed else OK
    own.pop("error", None)
    kind = kind_of(attributes.get("kind", attributes.get("span.kind"))) or (CLIENT if "peer" in own or "peer_address" in own else INTERNAL)
    error = attributes.get("error")
    table.add(Span(
        text_of(record.get("tr")), text_of(record.get("id")), text_of(record.get("p")), text_of(record.get("n")), kind, start, end, status,
        text_of(own.get("message") or (error if isinstance(error, str) else "")), own, journal.process, tuple(events),
    ), offset)  # fmt: skip
