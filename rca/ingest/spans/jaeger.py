"""Jaeger's JSON: an export of the UI or of `/api/traces`, a single trace, or spans one per line as Elasticsearch keeps them.

>>> import json
>>> from rca.ingest.spans.table import Table
>>> table = Table()
>>> take(table, json.loads(SAMPLE)["data"][0], 0)
1
>>> table.names[1], table.procs[1], table.columns["start"][0], table.columns["end"][0] - table.columns["start"][0], table.notes[0]["message"]
('weights_update', {'host': 'node-a', 'service': 'trainer', 'rank': 3}, 1757250178000000000, 26000000, 'deadline')

Source: jaeger `model/json/model.go`, `internal/storage/v1/elasticsearch/spanstore/internal/dbmodel`.
"""

from __future__ import annotations

from typing import Any

from rca.ingest.sources import Source
from rca.ingest.spans import aliases, documents
from rca.ingest.spans.table import ERROR, OK, UNSET, Span, Table, failed_tag
from rca.ingest.spans.values import kind_of, nanoseconds, scaled, status_of, text_of

SAMPLE = (
    '{"data":[{"traceID":"5b8efff798038103","spans":[{"traceID":"5b8efff798038103","spanID":"eee19b7ec3c1b174","operationName":"weights_update",'
    '"references":[{"refType":"CHILD_OF","traceID":"5b8efff798038103","spanID":"a1"}],"startTime":1757250178000000,"duration":26000,'
    '"tags":[{"key":"error","type":"bool","value":true},{"key":"otel.status_description","type":"string","value":"deadline"},{"key":"rank","type":"int64","value":3}],'
    '"logs":[],"processID":"p1","warnings":null}],"processes":{"p1":{"serviceName":"trainer","tags":[{"key":"hostname","type":"string","value":"node-a"}]}}}],"total":0}'
)
INSIDE = ("data", "spans", "hits")
SPANS_MAX = 1_000_000  # of one trace


def recognise(head: bytes) -> bool:
    """Whether a file begins as Jaeger's JSON does."""
    return b'"traceID"' in head and (b'"spanID"' in head or b'"spans"' in head or b'"operationName"' in head)


def read(source: Source, head: bytes, table: Table) -> None:
    """All spans of a file."""
    walker = documents.Walker(documents.text_of(source), "", INSIDE)
    for offset, _, value in walker:
        if not take(table, value, offset, walker.context()) and isinstance(value, dict) and ("traceID" in value or "spanID" in value):
            table.damaged += 1
    table.damaged += walker.damaged


def take(table: Table, value: Any, offset: int, context: dict[str, Any] | None = None) -> int:
    """Append the spans of a whole answer, a trace, a document of Elasticsearch, or one span; gives their number."""
    if not isinstance(value, dict):
        return 0
    if isinstance(value.get("_source"), dict):
        value = value["_source"]
    if isinstance(value.get("data"), list):
        return sum(take(table, trace, offset) for trace in value["data"])
    if isinstance(value.get("spans"), list):
        processes = _processes(value.get("processes"))
        for span in value["spans"][:SPANS_MAX]:
            if isinstance(span, dict):
                table.add(_span(span, processes), offset)
        return len(value["spans"][:SPANS_MAX])
    if value.get("spanID") is None:
        return 0
    table.add(_span(value, _processes((context or {}).get("processes"))), offset)
    return 1


def _processes(value: Any) -> dict[str, dict[str, Any]]:
    return {key: _process(p) for key, p in list(value.items())[:10_000] if isinstance(p, dict)} if isinstance(value, dict) else {}


def _process(value: dict[str, Any]) -> dict[str, Any]:
    return aliases.fields({"service.name": text_of(value.get("serviceName")) or None, **_tags(value.get("tags")), **_tags(value.get("tag"))})


def _tags(tags: Any) -> dict[str, Any]:
    """Tags as a dictionary: a list of keys and values, or (Elasticsearch with tags as fields) one with `@` for dots."""
    if isinstance(tags, dict):
        return {str(k).replace("@", "."): v for k, v in list(tags.items())[:256] if isinstance(v, str | int | float | bool)}
    found = {}
    for tag in tags[:256] if isinstance(tags, list) else ():
        if isinstance(tag, dict) and isinstance(tag.get("key"), str) and isinstance(tag.get("value"), str | int | float | bool):
            found[tag["key"]] = tag["value"]
    return found


def _span(value: dict[str, Any], processes: dict[str, dict[str, Any]]) -> Span:
    tags = _tags(value.get("tags")) | _tags(value.get("tag"))
    own = aliases.fields(tags)
    process = processes.get(text_of(value.get("processID"))) or (_process(value["process"]) if isinstance(value.get("process"), dict) else {})
    start = nanoseconds(value.get("startTime"))
    duration = scaled(value.get("duration"), 1000)
    status = ERROR if failed_tag(tags.get("error", False)) else status_of(tags.get("otel.status_code", 0))
    if status == UNSET and tags.get("error") in (False, "false"):
        status = OK
    own.pop("error", None)
    parent = next((r.get("spanID") for r in value.get("references") or () if isinstance(r, dict) and r.get("refType", "CHILD_OF") == "CHILD_OF"), None) if isinstance(value.get("references"), list) else None
    logs = []
    for log in value["logs"][:64] if isinstance(value.get("logs"), list) else ():
        if isinstance(log, dict):
            fields = _tags(log.get("fields"))
            happened = "exception" if {"exception.type", "stack", "error.object", "error.kind"} & fields.keys() else text_of(fields.get("event", ""))
            logs.append((nanoseconds(log.get("timestamp")), happened, fields))
    return Span(
        text_of(value.get("traceID")), text_of(value.get("spanID")), text_of(parent or value.get("parentSpanID")), text_of(value.get("operationName")),
        kind_of(str(tags.get("span.kind", ""))), start, start + duration if start is not None and duration is not None and duration >= 0 else None,
        status, text_of(own.get("message", "")), own, process, tuple(logs),
    )  # fmt: skip
