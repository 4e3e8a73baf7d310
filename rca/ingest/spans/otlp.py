"""OTLP in JSON: one export request a line (the collector's file exporter), one pretty-printed request, or an array of them.

The usual spelling is decoded into typed records, four times as fast as into dictionaries; whatever does not fit the types is read once more,
tolerantly. Deviations that are read: snake_case keys, numbers for strings and strings for numbers, enums by name, ids in base64 or upper case,
`instrumentationLibrarySpans`, times in microseconds or as floating numbers.

Source: opentelemetry-proto, `trace.proto` and "OTLP/JSON" of the protocol's specification; README of the collector's file exporter.
"""

from __future__ import annotations

import json
import sys
from array import array
from typing import Any

from rca.ingest.sources import Source
from rca.ingest.spans import aliases, documents
from rca.ingest.spans.requests import events_of, flat, take
from rca.ingest.spans.table import LATEST_NS, NO_TIME, TELLING, WHO, Span, Table, number_of_id, telling_fields
from rca.ingest.spans.values import kind_of, nanoseconds, status_of, text_of

try:
    import msgspec
except ImportError:  # everything is then read the tolerant way: the same spans, at a fifth of the speed
    msgspec = None  # type: ignore[assignment]

KEYS = (b'"resourceSpans"', b'"resource_spans"', b'"resourceLogs"', b'"resourceMetrics"')
INSIDE = ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans", "spans")
SMALL_NS = 10**17  # a time below is in another unit
RESOURCES_MAX = 20_000
CHUNK_SPANS = 4096  # taken together
NO_PARENT = "0" * 16
UNKNOWN = ("", False, False, False)
SIBLINGS = ("resourceSpans", "resource_spans", "resourceLogs", "resourceMetrics")


def recognise(head: bytes) -> bool:
    """Whether a file begins as OTLP in JSON does."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n[{")
    return start.startswith(KEYS) and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def in_lines(head: bytes) -> bool:
    """Whether each line is a request of its own: then ranges of the file can be read by several workers."""
    return head.startswith(b'{"')


def read(source: Source, head: bytes, table: Table, start: int = 0, end: int | None = None) -> None:
    """All spans of a file, or of the lines that begin in a range of it."""
    if not in_lines(head):
        walker = documents.Walker(documents.text_of(source), "", INSIDE)
        for offset, _, value in walker:
            take(table, value, offset, walker.context())
        table.damaged += walker.damaged
        return
    decode = Decoder(table)
    for offset, line in documents.lines(source, start, end):
        if line is None:
            table.gap(f"a line of more than {documents.LINE_MAX >> 20} MiB")
        elif len(line) > 2:
            decode(line, offset)
    decode.flush()


# -- the fast way --------------------------------------------------------------------------------------------------------

if msgspec is not None:

    class Value(msgspec.Struct, gc=False):
        """The kinds of values that fields are read from; arrays and maps are none of them."""

        stringValue: str | None = None
        intValue: int | str | None = None
        boolValue: bool | None = None
        doubleValue: float | int | str | None = None

    class Attribute(msgspec.Struct, gc=False):
        """One attribute."""

        key: str = ""
        value: Value | None = None

    class Status(msgspec.Struct, gc=False):
        """How a span ended."""

        code: int | str = 0
        message: str = ""

    class Typed(msgspec.Struct, gc=False):
        """One span in the usual spelling. Times may be written as texts: the decoder is not strict."""

        traceId: str = ""
        spanId: str = ""
        parentSpanId: str | None = None
        name: str = ""
        kind: int | str = 0
        startTimeUnixNano: int = 0
        endTimeUnixNano: int = 0
        attributes: list[Attribute] = []
        events: msgspec.Raw = msgspec.Raw(b"")
        status: Status | None = None

    class Scope(msgspec.Struct, gc=False):
        """The spans of one library."""

        spans: list[Typed] = []

    class Resource(msgspec.Struct, gc=False):
        """The spans of one process."""

        resource: msgspec.Raw = msgspec.Raw(b"")
        scopeSpans: list[Scope] = []
        instrumentationLibrarySpans: list[Scope] = []

    class Request(msgspec.Struct, gc=False):
        """One line."""

        resourceSpans: list[Resource] = []


class Decoder:
    """Reads lines into a table, many spans at a time; remembers resources, which repeat in every line."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._resources: dict[bytes, tuple[int, dict[str, Any]]] = {}  # (number, fields)
        self._decode = msgspec.json.Decoder(Request, strict=False).decode if msgspec is not None else None
        self._learned: dict[str, tuple[str, bool, bool, bool] | None] = {}
        self._spans: list[Any] = []
        self._rows: list[tuple[int, int, int, int, int, int]] = []  # (offset, name, process, phase, peer, mark) of each span
        self._notes: list[tuple[int, dict[str, Any], dict[str, Any]]] = []  # (place among the spans, fields, process)

    def __call__(self, line: bytes, offset: int) -> None:
        """Take one line."""
        if self._decode is not None:
            before = len(self._spans)
            try:
                request = self._decode(line)
                for resource in request.resourceSpans:
                    known = self._resource(resource.resource)
                    for scope in resource.scopeSpans or resource.instrumentationLibrarySpans:
                        self._fields(scope.spans, known, offset)
            except (ValueError, RecursionError, OverflowError):  # of other types, or no JSON
                del self._spans[before:], self._rows[before:]
                self._notes = [n for n in self._notes if n[0] < before]
            if len(self._spans) >= CHUNK_SPANS:
                self.flush()
            if len(self._spans) != before:
                return
        self.flush()
        try:
            value = json.loads(line, parse_float=str)
        except (ValueError, RecursionError):
            if line.lstrip()[:1] in (b"{", b"["):
                self.table.damaged += 1
            else:
                self.table.text(offset, line[: documents.LINE_CUT].decode("utf-8", "replace"))
            return
        if not take(self.table, value, offset) and not (isinstance(value, dict) and any(k in value for k in SIBLINGS)):
            self.table.damaged += 1

    def _resource(self, raw: Any) -> tuple[int, dict[str, Any]]:
        data = bytes(raw)
        found = self._resources.get(data)
        if found is None:
            try:
                value = json.loads(data) if data else {}
            except (ValueError, RecursionError):
                value = {}
            found = (len(self._resources), aliases.fields(flat(value.get("attributes"))) if isinstance(value, dict) else {})
            if len(self._resources) < RESOURCES_MAX:
                self._resources[data] = found
        return found

    def _fields(self, spans: list[Any], known: tuple[int, dict[str, Any]], offset: int) -> None:
        """Note what the attributes of some spans say; all else is taken from many spans at once."""
        table, learned = self.table, self._learned
        number, process = known
        stage_of_process, step_of_process = process.get("stage"), process.get("step")
        for span in spans:
            if not span.spanId:
                raise ValueError("no id in the usual spelling")
            own: dict[str, Any] = {}
            key: tuple = (number,)
            odd = False
            for attribute in span.attributes:
                told = learned.get(attribute.key, UNKNOWN)
                if told is None:
                    continue
                if told is UNKNOWN and (told := self._learn(attribute.key)) is None:
                    continue
                value = attribute.value
                if value is None:
                    continue
                name, numeric, who, telling = told
                said: Any = value.stringValue
                if said is None:
                    said = value.intValue
                    if said is None:
                        said = value.boolValue if value.doubleValue is None else value.doubleValue
                    else:
                        said = int(said) if type(said) is str and len(said) < 19 else aliases.number(said)
                if numeric and type(said) is not int:
                    said = aliases.number(said)
                if said is None or (name in own and not _before(attribute.key, name, span)):
                    continue
                own[name] = said
                if who:
                    key += (name, said)
                elif telling and not (name == "http" and type(said) is int and 200 <= said < 400):
                    odd = True
            get = own.get
            phase = table.known_phase((get("stage", stage_of_process), get("step", step_of_process)))
            if phase is None or "stage" not in own:
                phase = table.phase(get("stage", stage_of_process), get("step", step_of_process), span.name)
            peer = 0
            if "peer" in own or "peer_address" in own:
                callee = (get("peer"), get("peer_address"), get("peer_port"))
                peer = table.known_peer(callee) or table.peer(*callee)
            kind = span.kind if type(span.kind) is int and 0 <= span.kind <= 5 else kind_of(span.kind)
            status = 0 if span.status is None else span.status.code
            if type(status) is not int or not 0 <= status <= 2:
                status = status_of(status)
            if status == 2 or len(span.events) > 2 or (odd and telling_fields(own, kind)):
                self._notes.append((len(self._spans), own, process))
            name_number = table.known_name(span.name)
            self._spans.append(span)
            self._rows.append((
                offset, table.name(span.name) if name_number is None else name_number,
                table.known_proc(key) or table.proc(key, own, process), phase, peer, kind + 8 * status,
            ))  # fmt: skip

    def _learn(self, key: str) -> tuple[str, bool, bool, bool] | None:
        name = aliases.field_of(key)
        found = None if name is None else (name, name in aliases.NUMBERS and name != "grpc", name in WHO, name in TELLING)
        if len(self._learned) < aliases.NAMES_MAX:
            self._learned[key] = found
        return found

    def flush(self) -> None:
        """Append what was taken to the table."""
        spans, rows, notes = self._spans, self._rows, self._notes
        if not spans:
            return
        table, columns = self.table, self.table.columns
        first = len(table)
        starts, ends = _times([s.startTimeUnixNano for s in spans]), _times([s.endTimeUnixNano for s in spans])
        traces = {text: number_of_id(text) for text in {s.traceId for s in spans}}
        columns["start"] += starts
        columns["end"] += ends
        columns["trace"].extend([traces[s.traceId] for s in spans])
        columns["span"] += _ids([s.spanId for s in spans])
        columns["parent"] += _ids([s.parentSpanId or NO_PARENT for s in spans])
        for name, values in zip(("offset", "name", "proc", "phase", "peer", "mark"), zip(*rows, strict=True), strict=True):
            columns[name].extend(values)
        if min(ends) == NO_TIME:
            noted = {position for position, _, _ in notes}
            notes += [(i, {}, {}) for i, end in enumerate(ends) if end == NO_TIME and i not in noted]
        for position, own, process in notes:
            span, (offset, _, proc, phase, peer, mark) = spans[position], rows[position]
            start, end = starts[position], ends[position]
            if own.get("unended"):
                end, mark = NO_TIME, mark & 7
                columns["end"][first + position], columns["mark"][first + position] = end, mark
            full = Span(
                span.traceId, span.spanId, span.parentSpanId or "", text_of(span.name), mark & 7, None if start == NO_TIME else start, None if end == NO_TIME else end,
                mark >> 3, text_of(span.status.message if span.status is not None else ""), own, process, events_of(bytes(span.events)),
            )  # fmt: skip
            table.note(full, offset, proc, phase, peer, first + position)
        self._spans, self._rows, self._notes = [], [], []


def _before(key: str, name: str, span: Any) -> bool:
    """Whether of two attributes that tell one field this one counts more than those before it."""
    others = [a.key for a in span.attributes if a.key != key and aliases.field_of(a.key) == name]
    return all(aliases.order_of(key) < aliases.order_of(other) for other in others)


def _times(times: list[int]) -> array:
    """Times in nanoseconds."""
    try:
        found = array("q", times)
    except OverflowError:
        found = array("q", [nanoseconds(t) or NO_TIME for t in times])
    if min(found) < SMALL_NS or max(found) > LATEST_NS:
        found = array("q", [t if SMALL_NS <= t <= LATEST_NS else nanoseconds(t) or NO_TIME for t in found])
    return found


def _ids(texts: list[str]) -> array:
    """The last 64 bits of ids: all at once where they are written as the specification wants it."""
    found = array("Q")
    try:
        data = bytes.fromhex("".join(texts))
    except ValueError:
        data = b""
    if len(data) == 8 * len(texts) and max(map(len, texts)) == 16:
        found.frombytes(data)
        if sys.byteorder == "little":
            found.byteswap()
        return found
    return array("Q", map(number_of_id, texts))
