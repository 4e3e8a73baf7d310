"""The compact table of one file's spans: columns of numbers, dictionaries of what repeats, and notes on the few spans that went wrong.

A span costs 70 bytes however many attributes it had. Texts stand once in a dictionary; what a failed, open or otherwise telling span says
is kept as a note, a few for each kind of failure. Everything is plain, because it travels between processes by `marshal`.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from rca.ingest.spans import aliases, pace

UNSET, OK, ERROR = 0, 1, 2
INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
CALLS = (CLIENT, PRODUCER)
NO_TIME = pace.NO_TIME  # in a column of times, where the source states none
LATEST_NS = 1 << 62
NAMES_MAX = 20_000  # distinct texts of one dictionary; what is beyond shares one entry
NOTES_MAX = 2_000  # of one file
LINES_MAX = 20_000
RECORDS_MAX = 20_000
ALIKE_MAX = 4  # notes on failures of one name, process, callee and message
TEXT_MAX = 4_000  # characters kept of a message or stack
#: Columns in order with their type codes: 8-byte integers and 4-byte numbers of dictionary entries.
COLUMNS = (("start", "q"), ("end", "q"), ("trace", "Q"), ("span", "Q"), ("parent", "Q"), ("offset", "Q"), ("name", "I"), ("proc", "I"), ("phase", "I"), ("peer", "I"), ("mark", "B"))
#: Fields that tell one process from another; a span's own come before those of its resource.
WHO = ("host", "address", "pid", "service", "instance", "role", "rank", "local_rank", "worker", "gpu", "attempt", "world", "port")


class Span(NamedTuple):
    """One span as a format states it. `fields` are those of `aliases`, `process` those of the resource it belongs to."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start_ns: int | None
    end_ns: int | None  # None: the source says of no end
    status: int
    message: str
    fields: dict[str, Any]
    process: dict[str, Any]
    events: tuple[tuple[int | None, str, dict[str, Any]], ...] = ()  # (time, name, raw attributes)


class Table:
    """Collects the spans of one file."""

    def __init__(self) -> None:
        self.columns = {name: array(code) for name, code in COLUMNS}
        self._append = [self.columns[name].append for name, _ in COLUMNS]
        self.names: list[str] = [""]
        self.procs: list[dict[str, Any]] = [{}]
        self.phases: list[tuple[str | None, int | None]] = [(None, None)]
        self.peers: list[tuple[str | None, str | None, int | None]] = [(None, None, None)]
        self.notes: list[dict[str, Any]] = []
        self._pace: pace.Pace | None = None
        self.dropped = 0  # notes that found no room
        self.damaged = 0  # lines or elements that are no spans
        self.lines: list[tuple[int, str]] = []  # (offset, text) of what stands between spans
        self.alone = False  # whether the file is known to hold nothing but a trace, even where none of it is kept
        self.clock = True  # whether its times are dates; otherwise only durations tell
        self.raws: dict[int, str] = {}  # lines that a later stage may want to cite, by offset
        self.records: list[dict[str, Any]] = []  # hand-overs, acknowledgements, checkpoints
        self.journals: list[tuple[int, str, int, bool]] = []  # of each header of a journal: offset, process, time, whether it told what was open then
        self.samples: Any = None  # of `rca/ingest/samples`, where the file holds some
        self.gaps: dict[str, int] = {}  # what was left out, and how often
        self._name: dict[str, int] = {"": 0}
        self._proc: dict[Any, int] = {(): 0}
        self._phase: dict[Any, int] = {(None, None): 0}
        self._peer: dict[Any, int] = {(None, None, None): 0}
        self._alike: dict[tuple, int] = {}
        self._stage: dict[str, str | None] = {}
        self.known_name, self.known_proc, self.known_phase, self.known_peer = self._name.get, self._proc.get, self._phase.get, self._peer.get

    def __len__(self) -> int:
        return len(self.columns["mark"])

    # -- dictionaries -----------------------------------------------------------------------------------------------

    def name(self, text: str) -> int:
        """The number of a span's name."""
        found = self._name.get(text)
        if found is None:
            found = self._new(self._name, self.names, text, text[:200])
        return found

    def phase(self, stage: Any, step: int | None, name: str) -> int:
        """The number of a stage and step; where no attribute states the stage, the span's name may."""
        key = (stage, step) if stage is not None else (None, step, name)
        found = self._phase.get(key)
        if found is None:
            text = str(stage if stage is not None else name)
            if text not in self._stage and len(self._stage) < NAMES_MAX:
                self._stage[text] = aliases.stage_named(text)
            value = (self._stage.get(text), step)
            found = self._phase.get(value)
            if found is None:
                found = self._new(self._phase, self.phases, value, value)
            if len(self._phase) < 4 * NAMES_MAX:
                self._phase[key] = found
        return found

    def peer(self, worker: Any, address: Any, port: Any) -> int:
        """The number of a callee."""
        key = (worker, address, port)
        found = self._peer.get(key)
        if found is None:
            value = (str(worker)[:200] if worker is not None else None, str(address)[:200] if address is not None else None, aliases.number(port))
            found = self._new(self._peer, self.peers, key, value)
        return found

    def proc(self, key: Any, own: dict[str, Any], process: dict[str, Any]) -> int:
        """The number of a process; `key` is whatever tells it from others cheaply."""
        found = self._proc.get(key)
        if found is None:
            value = {name: text[:200] if isinstance(text, str) else text for name in WHO if (text := own.get(name, process.get(name))) is not None}
            value = {name: text for name, text in value.items() if isinstance(text, str | int)}
            same = tuple(sorted((k, str(v)) for k, v in value.items()))
            found = self._proc.get(same)
            if found is None:
                found = self._new(self._proc, self.procs, same, value)
            if len(self._proc) < 4 * NAMES_MAX:
                self._proc[key] = found
        return found

    @staticmethod
    def _new(known: dict[Any, int], listed: list, key: Any, value: Any) -> int:
        if len(listed) >= NAMES_MAX:
            return 0
        known[key] = len(listed)
        listed.append(value)
        return len(listed) - 1

    # -- spans ------------------------------------------------------------------------------------------------------

    def row(self, start: int, end: int, trace: int, span: int, parent: int, offset: int, name: int, proc: int, phase: int, peer: int, mark: int) -> None:
        """Append a row; `mark` is the kind plus eight times the status."""
        for append, value in zip(self._append, (start, end, trace, span, parent, offset, name, proc, phase, peer, mark), strict=True):
            append(value)

    def add(self, span: Span, offset: int) -> None:
        """Take one span of any format: a row, and a note where it tells more than that it was there."""
        own, process = span.fields, span.process
        if own.get("unended"):
            span = span._replace(end_ns=None, status=UNSET)
        key = tuple((n, own[n]) for n in WHO if n in own and isinstance(own[n], str | int))
        proc = self.proc((id(process), key) if not process else (tuple(process.items()), key), own, process)
        phase = self.phase(own.get("stage", process.get("stage")), own.get("step"), span.name)
        peer = self.peer(own.get("peer"), own.get("peer_address"), own.get("peer_port")) if ("peer" in own or "peer_address" in own) else 0
        start, end = time_or_none(span.start_ns), time_or_none(span.end_ns)
        self.row(start, end, number_of_id(span.trace), number_of_id(span.id), number_of_id(span.parent), offset, self.name(span.name), proc, phase, peer, span.kind + 8 * span.status)
        if tells(span, end != NO_TIME):
            self.note(span, offset, proc, phase, peer)

    def note(self, span: Span, offset: int, proc: int, phase: int, peer: int, row: int | None = None) -> None:
        """Remember what a span says; of many alike only a few."""
        alike = (span.name, proc, peer, span.status, span.message[:60], span.end_ns is None)
        seen = self._alike.get(alike, 0)
        if (len(self._alike) < NAMES_MAX or seen) and len(self.notes) < NOTES_MAX and (seen < ALIKE_MAX or span.end_ns is None):
            self._alike[alike] = seen + 1
            own = {k: v[:TEXT_MAX] if isinstance(v, str) else v for k, v in span.fields.items() if isinstance(v, str | int | float)}
            self.notes.append({
                "row": len(self) - 1 if row is None else row, "trace": span.trace[:64], "id": span.id[:64], "parent": span.parent[:64], "name": span.name[:200], "kind": span.kind, "start": span.start_ns,
                "end": span.end_ns, "status": span.status, "message": span.message[:TEXT_MAX], "fields": own, "proc": proc, "phase": phase, "peer": peer, "offset": offset,
                "events": [(ns, name[:200], {k: v[:TEXT_MAX] if isinstance(v, str) else v for k, v in aliases.fields(attributes).items() if isinstance(v, str | int | float)})
                           for ns, name, attributes in span.events[:16]],
            })  # fmt: skip
        else:
            self.dropped += 1

    def record(self, kind: str, name: str, key: str, ns: int | None, offset: int, fields: dict[str, Any], process: dict[str, Any], stage: Any, step: int | None,
               request: str = "", receivers: list[str] | None = None) -> None:  # fmt: skip
        """Remember a hand-over of a payload (`handoff`), an `event` or its `ack`, or a `checkpoint`."""
        if len(self.records) >= RECORDS_MAX:
            self.dropped += 1
            return
        about = {n: v for n in WHO if isinstance(v := fields.get(n, process.get(n)), str | int)}
        stage = fields.get("stage", stage)
        self.records.append({
            "e": kind, "name": name, "id": key, "ns": ns, "offset": offset, "process": about, "stage": aliases.stage_named(str(stage)) if stage is not None else aliases.stage_named(name),
            "step": fields.get("step", step), "request": request or None, "receivers": receivers or [],
            "fields": {k: v[:TEXT_MAX] if isinstance(v, str) else v for k, v in fields.items() if k not in WHO and isinstance(v, str | int | float)},
        })  # fmt: skip

    def text(self, offset: int, line: str) -> None:
        """A line that is no span: it is read like any log's."""
        self.damaged += "\ufffd" in line
        if len(self.lines) < LINES_MAX:
            if line.strip():
                self.lines.append((offset, line))
        else:
            self.gap(f"lines between spans beyond the first {LINES_MAX}")

    def gap(self, reason: str) -> None:
        """Count something that was left out."""
        self.gaps[reason] = self.gaps.get(reason, 0) + 1

    def pace(self) -> pace.Pace:
        """What all rows say about time; asked for once they are complete."""
        if self._pace is None:
            self._pace = pace.of(self.columns)
        return self._pace

    def part(self) -> dict[str, Any]:
        """Everything as plain values, for `join`."""
        return self.finish() | {"pace": self.pace().part(), "notes": self.notes, "damaged": self.damaged, "lines": self.lines}

    def join(self, part: dict[str, Any]) -> None:
        """Append what another worker read of the same file, further down."""
        first = len(self)
        known = {
            "name": [self.name(text) for text in part["names"]],
            "proc": [self.proc(("part", tuple(sorted((k, str(v)) for k, v in about.items()))), about, {}) if about else 0 for about in part["procs"]],
            "phase": [self._joined(self._phase, self.phases, tuple(value)) for value in part["phases"]],
            "peer": [self._joined(self._peer, self.peers, tuple(value)) for value in part["peers"]],
        }
        self._pace = self._pace or pace.Pace({}, {}, {})
        self._pace.join(part["pace"], first, known)
        for name, code in COLUMNS:
            column = array(code)
            column.frombytes(part["columns"][name])
            self.columns[name] += array(code, [known[name][i] for i in column]) if name in known else column
        room = NOTES_MAX - len(self.notes)
        for note in part["notes"][: max(0, room)]:
            self.notes.append(note | {"row": first + note["row"], "proc": known["proc"][note["proc"]], "phase": known["phase"][note["phase"]], "peer": known["peer"][note["peer"]]})
        self.dropped += part["dropped"] + max(0, len(part["notes"]) - max(0, room))
        self.damaged += part["damaged"]
        self.lines += part["lines"][: LINES_MAX - len(self.lines)]
        self.records += part["records"][: RECORDS_MAX - len(self.records)]
        for reason, count in part["gaps"].items():
            self.gaps[reason] = self.gaps.get(reason, 0) + count

    def _joined(self, known: dict[Any, int], listed: list, value: tuple) -> int:
        """The number of an entry that is written as it is listed."""
        found = known.get(value)
        return self._new(known, listed, value, value) if found is None else found

    def finish(self) -> dict[str, Any]:
        """Plain values: columns as bytes of native integers, dictionaries as lists."""
        return {
            "columns": {name: column.tobytes() for name, column in self.columns.items()}, "names": self.names, "procs": self.procs,
            "phases": self.phases, "peers": self.peers, "dropped": self.dropped, "gaps": self.gaps,
            "clock": self.clock, "raws": self.raws, "records": self.records, "journals": self.journals,
        }  # fmt: skip


#: Fields that may make a span worth a note, whatever its status says.
FACTS = ("exception_type", "exception_message", "stack", "checksum", "complete", "fsync", "resend")
TELLING = frozenset({"http", "grpc", "error", *FACTS})


def tells(span: Span, ended: bool) -> bool:
    """Whether a span is worth a note: it failed, has no end, or carries facts of a hand-over or a checkpoint."""
    return span.status == ERROR or not ended or bool(span.events) or telling_fields(span.fields, span.kind)


def telling_fields(own: dict[str, Any], kind: int) -> bool:
    """The same, by the fields alone."""
    if ("http" in own and failed_http(own["http"], kind)) or ("grpc" in own and failed_grpc(own["grpc"])) or ("error" in own and failed_tag(own["error"])):
        return True
    return any(name in own for name in FACTS)


def failed_http(code: Any, kind: int) -> bool:
    """Whether a status code of HTTP is a failure: by convention 4xx is one for the caller only; 0 is what a client writes that got no answer."""
    return type(code) is int and (code >= 500 or (code >= 400 and kind != SERVER) or (code == 0 and kind in CALLS))


#: gRPC status codes that are none of success, cancelled by the caller, not found, already exists: those are answers.
GRPC_FINE = frozenset({0, 1, 5, 6})
GRPC_NAMES = {
    "OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "ABORTED": 10, "OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14,
    "DATA_LOSS": 15, "UNAUTHENTICATED": 16,
}  # fmt: skip


def grpc_number(code: Any) -> int | None:
    """A gRPC status as a number, written as one or by name."""
    return GRPC_NAMES.get(code.upper().removeprefix("STATUSCODE.")) if isinstance(code, str) and not code.isdecimal() else aliases.number(code)


def failed_grpc(code: Any) -> bool:
    """Whether a gRPC status is a failure."""
    value = grpc_number(code)
    return value is not None and value not in GRPC_FINE


def failed_tag(value: Any) -> bool:
    """Whether an `error` tag says that there was one: `true`, a type, or (Zipkin) anything but a denial."""
    return value is True or (isinstance(value, str) and value.strip().lower() not in ("false", "0", "ok", "unset", "none")) or (type(value) is int and value == 1)


def time_or_none(ns: int | None) -> int:
    """A time for its column."""
    return ns if ns is not None and 0 < ns < LATEST_NS else NO_TIME


def number_of_id(text: str) -> int:
    """The last 64 bits of an id, 0 for none. Hex of either case, `0x...`, base64 as protobuf's own JSON writes it; anything else by its hash.

    >>> number_of_id("5B8EFFF798038103D269B633813FC60C") == number_of_id("W47/95gDgQPSabYzgT/GDA==") == 0xd269b633813fc60c
    True
    >>> number_of_id(""), number_of_id("0000000000000000"), number_of_id("0xff"), number_of_id("ff")
    (0, 0, 255, 255)
    """
    if not text:
        return 0
    try:
        return int(text[-16:], 16) if len(text) <= 34 and text.isalnum() else _other_id(text)
    except ValueError:
        return _other_id(text)


def _other_id(text: str) -> int:
    import base64
    import zlib

    if len(text) in (12, 24) and text.endswith("="):
        try:
            return int.from_bytes(base64.b64decode(text, validate=True)[-8:], "big")
        except ValueError:
            pass
    data = text[:256].encode("utf-8", "surrogatepass")
    return zlib.crc32(data) << 32 | zlib.adler32(data)
