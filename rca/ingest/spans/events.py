"""Notes on spans become events, through the reader of lines: one event for each span that failed or has no end, placed at its process."""

from __future__ import annotations

from typing import Any

from rca.ingest.reader import TEXT_CUT, Reader, Stream
from rca.ingest.signatures import Signature
from rca.ingest.sources import Source, read_range
from rca.ingest.spans import failures, metrics, records
from rca.ingest.spans.table import CALLS, NO_TIME, Table
from rca.ingest.times import Stamp
from rca.taxonomy import Kind

RAW_BYTES = 4096
NEAR_BYTES = 256 << 10  # from the beginning of an element of a document to the line of one of its spans
PROCESSES_MAX = 1024
STEPS_MAX = 400  # of one process
MARKS_MAX = 200
MARK_CUT = 200
RAWS_MAX = 20_000  # marks of a file beyond which their lines are not read
HAND_OVERS = 3  # the last hand-overs that were confirmed are told

Place = tuple[int | None, int, str]


def emit(table: Table, source: Source, reader: Reader, engine: Any, by_literal: list[list[Signature]]) -> None:
    """Add the events of one file's spans, and a stream for each of its processes, to its reader."""
    writers = Writers(table, source, reader)
    seen: set[tuple] = set()
    for note in sorted(table.notes, key=lambda n: (n["offset"], n["row"])):
        key = (note["trace"], note["id"], note["kind"], note["end"] is None)
        if key in seen:  # exported twice
            continue
        seen.add(key)
        if note["end"] is None or failures.failed(note):
            _one(note, table, writers, reader, engine, by_literal)
    _confirmed(table, writers, reader)
    metrics.emit(table.records, source, writers, reader)
    records.emit(table, writers, reader)
    for row in table.pace().slow():
        offset = table.columns["offset"][row]
        table.raws[offset] = writers.place(offset, "")[2]
    writers.finish()


def _one(note: dict[str, Any], table: Table, writers: Writers, reader: Reader, engine: Any, by_literal: list[list[Signature]]) -> None:
    stage, step = table.phases[note["phase"]]
    worker, address, port = table.peers[note["peer"]]
    stream = writers.at(note)
    at = writers.place(note["offset"], note["id"])
    own = note["fields"]
    attrs = {
        "span": True, "op": note["name"], "row": note["row"], "span_kind": note["kind"], "span_parent": note["parent"] or None, "inherited": False,
        "callee": worker or (f"{address}:{port}" if address and port else address), "callee_address": address, "callee_port": port,
        "http": own.get("http"), "started_ns": note["start"], "ended_ns": note["end"],
    }  # fmt: skip
    fields = {"trace_id": note["trace"] or None, "span_id": note["id"] or None, "request_id": _text(own.get("request")), "path": _text(own.get("path")), "group": _text(own.get("group")),
              "gpu": own.get("gpu") if isinstance(own.get("gpu"), int) else None}  # fmt: skip
    said = {"step": step} if step is not None else {}
    began = len(reader.events)
    to = (f" to {worker}" if worker else "") + (f" at {address}" + (f":{port}" if port else "") if address else "")
    if note["end"] is None:
        stream.stamp = _stamp(note["start"]) if table.clock else None
        reader._emit(stream, Kind.REQUEST_OPEN, f"{note['name']}{to} began and has no end", "warning", at, attrs=attrs, **fields, **said)
        return
    stream.stamp = _stamp(note["end"] or note["start"]) if table.clock else None
    signatures = known(failures.said(note), engine, by_literal)
    if failures.calls(note):
        kind, how = failures.of_call(note, stage)
        words = failures.said(note)
        text = f"{note['name']}{to} {how}" + (f": {words}" if words and words not in how else "")
        reader._emit(stream, kind, text[:TEXT_CUT], "error", at, attrs=attrs, **fields, **said)
        return
    raised = failures.exceptions(note)
    stack = next((str(f["stack"]) for _, f in reversed(raised) if "Traceback (most recent call last)" in str(f.get("stack", ""))), None)
    if raised and (ns := raised[-1][0]):
        stream.stamp = _stamp(ns) if table.clock else None
    if stack:
        stream.heading = (f"span {note['name']}", at)
        reader.embedded(stream, stack, at, known(stack, engine, by_literal))
        stream.heading = None
    if len(reader.events) == began:
        kind, text, more = failures.of_work(note, stage, signatures)
        severity = "warning" if more.get("bare_status") else "error"
        reader._emit(stream, kind, text[:TEXT_CUT], severity, at, attrs=attrs | {k: v for k, v in more.items() if v is not None})
    for event in reader.events[began:]:
        event.update({k: v for k, v in fields.items() if v is not None and (k in ("trace_id", "span_id", "request_id") or event.get(k) is None)})
        event["attrs"] = {**attrs, **event["attrs"], **({"said_step": True} if said else {})}


def known(text: str, engine: Any, by_literal: list[list[Signature]]) -> list[Signature]:
    """The signatures whose literal stands in a text."""
    data = text.encode("utf-8", "replace")
    return [s for i in engine.scan(data, 0, len(data)) for s in by_literal[i]] if data else []


def _text(value: Any) -> str | None:
    return str(value)[:200] if value is not None and value != "" else None


def _stamp(ns: int | None) -> Stamp | None:
    return Stamp(ns, 500, True, True, False) if ns is not None else None


def _confirmed(table: Table, writers: Writers, reader: Reader) -> None:
    """`event.acknowledged` for the last hand-overs whose receivers all answered."""
    hands_over = {i for i, name in enumerate(table.names) if failures.HANDS_OVER.search(name) and not failures.STOPS.search(name)}
    if not hands_over:
        return
    names, phases, marks, ends = (table.columns[n] for n in ("name", "phase", "mark", "end"))
    groups: dict[tuple[int, int], list[int]] = {}
    for row, name in enumerate(names):
        if name in hands_over and marks[row] & 7 in CALLS:
            groups.setdefault((name, phases[row]), []).append(row)
    bad = {n["row"] for n in table.notes if n["end"] is None or failures.failed(n)}
    good = [(max(ends[r] for r in rows), name, phase, rows) for (name, phase), rows in groups.items() if not bad.intersection(rows) and all(marks[r] >> 3 != 2 for r in rows)]
    for end, name, phase, rows in sorted(good)[-HAND_OVERS:]:
        row = rows[-1]
        stream = writers.of_row(row)
        stream.stamp = _stamp(end if end != NO_TIME else None)
        stream.stage, stream.step = table.phases[phase]
        at = writers.place(table.columns["offset"][row], "")
        text = f"{table.names[name]}: all {len(rows)} receivers confirmed"
        reader._emit(stream, Kind.EVENT_ACKNOWLEDGED, text, "info", at, attrs={"span": True, "op": table.names[name], "row": row, "inherited": False, "receivers": len(rows)})


class Writers:
    """The processes of a table as streams of the file's reader."""

    def __init__(self, table: Table, source: Source, reader: Reader) -> None:
        self._table, self._source, self._reader = table, source, reader
        self._streams: dict[int, Stream] = {}
        self._places: dict[tuple[int, str], Place] = {}
        reader.zoned = True
        self._counts = counts = table.pace().counts
        noted = {n["row"] for n in table.notes}
        self._number: dict[int, int] = {}  # of a noted row among those of its process
        before: dict[int, int] = {}
        for row, proc in enumerate(table.columns["proc"][: max(noted, default=-1) + 1]):
            before[proc] = before.get(proc, 0) + 1
            if row in noted:
                self._number[row] = before[proc]
        for proc in sorted(counts, key=lambda p: (-counts[p], p))[:PROCESSES_MAX]:
            self._stream(proc)

    def _stream(self, proc: int) -> Stream:
        stream = self._streams.get(proc)
        if stream is None:
            about = self._table.procs[proc]
            stream = self._streams[proc] = Stream(self._reader.points, MARKS_MAX)
            stream.host, stream.pid, stream.rank, stream.local_rank = about.get("host", about.get("address")), about.get("pid"), about.get("rank"), about.get("local_rank")
            stream.actor = failures.named(about)
            stream.said_stage = True
            if isinstance(about.get("world"), int):
                stream.facts["world"] = about["world"]
            if self._counts.get(proc):
                self._reader.streams[f"span:{proc}"] = stream
            else:
                self._reader.streams.setdefault("span:0", stream)
        return stream

    def at(self, note: dict[str, Any]) -> Stream:
        """The stream of a note's process, at the state the note tells of."""
        stream = self._stream(note["proc"])
        stream.stage, stream.step = self._table.phases[note["phase"]]
        stream.seq = self._number.get(note["row"], 0)
        return stream

    def of_row(self, row: int) -> Stream:
        """The stream of a row's process."""
        return self._stream(self._table.columns["proc"][row])

    def of_process(self, process: dict[str, Any]) -> Stream:
        """The stream of a process that a record states."""
        known = {tuple(sorted((k, str(v)) for k, v in about.items())): number for number, about in enumerate(self._table.procs)}
        number = known.get(tuple(sorted((k, str(v)) for k, v in process.items())))
        return self._stream(self._table.proc(("record", tuple(sorted(process.items(), key=str))), process, {}) if number is None else number)

    def place(self, offset: int, span: str) -> Place:
        """`(None, offset, text)` of the line that states a span; the line is counted when it is cited."""
        found = self._places.get((offset, span))
        if found is None:
            data = read_range(self._source, offset, RAW_BYTES)
            line, _, rest = data.partition(b"\n")
            start = offset
            if rest and span and span.encode() not in line:  # a document: the span stands further down
                data = read_range(self._source, offset, NEAR_BYTES)
                where = data.find(f'{span}"'.encode())
                if where >= 0:
                    begin = data.rfind(b"\n", 0, where) + 1
                    start, line = offset + begin, data[begin : begin + RAW_BYTES].partition(b"\n")[0]
            found = self._places[offset, span] = (None, start, line.decode("utf-8", "replace")[:600])
            if len(self._places) > 4096:
                self._places.clear()
        return found

    def finish(self) -> None:
        """Give each stream its count, its first and last signs of life, its steps and its stages."""
        if not self._table.clock:
            return  # times that are no dates show nobody's last sign of life
        phases, spent = self._table.phases, self._table.pace().spent
        read = sum(map(len, spent.values())) < RAWS_MAX
        for proc, stream in self._streams.items():
            stream.seq = self._counts.get(proc, 0)
            ended = sorted(((end, phase, start, offset) for phase, (start, end, offset) in spent.get(proc, {}).items()), reverse=True)
            if not ended:
                continue
            # When it ended a stage of a step, and how long that took: what goes on where nobody announces it.
            told = [found for found in ended if phases[found[1]][0] is not None and phases[found[1]][1] is not None and found[2] != NO_TIME]
            for end, phase, start, offset in reversed(told[:MARKS_MAX]):
                raw = self.place(offset, "")[2][:MARK_CUT] if read else ""
                stream.marks.kept.append((end, *phases[phase], "end", None, offset, raw, None, round((end - start) / 1e9, 6), True, False))
            steps: dict[int | None, tuple] = {}  # the last end of each
            for end, phase, _, offset in ended:
                stage, step = phases[phase]
                if step not in steps:
                    raw = "" if steps else self.place(offset, "")[2][:200]
                    steps[step] = (end, step, stage, None, offset, raw, stream.seq)
                    if len(steps) == STEPS_MAX:
                        break
            lines = [*reversed(steps.values())]
            stream.lines = [line for line in lines if line[1] is not None]
            stream.first, stream.last, stream.stage = lines[0], lines[-1], lines[-1][2]
