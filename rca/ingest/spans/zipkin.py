"""Zipkin's JSON, version 2: an array of spans, or of traces, or one span per line.

A span without a duration never ended: that of a process that died.

>>> import json
>>> from rca.ingest.spans.table import NO_TIME, Table
>>> table = Table()
>>> take(table, json.loads(SAMPLE)[0], 0)
True
>>> table.names[1], table.procs[1], table.columns["end"][0] == NO_TIME, table.columns["mark"][0]
('/call', {'address': '10.0.0.5', 'service': 'train_worker', 'port': 8001}, True, 18)

Source: zipkin-api `zipkin2-api.yaml`.
"""

from __future__ import annotations

from typing import Any

from rca.ingest.sources import Source
from rca.ingest.spans import aliases, documents
from rca.ingest.spans.table import ERROR, OK, SERVER, UNSET, Span, Table
from rca.ingest.spans.values import kind_of, nanoseconds, scaled, text_of

SAMPLE = (
    '[{"traceId":"5982fe77008310cc80f1da5e10147517","parentId":"90394f6bcffb5d13","id":"67fae42571535f60","kind":"SERVER","name":"/call","timestamp":1516781775726000,'
    '"localEndpoint":{"serviceName":"train_worker","ipv4":"10.0.0.5","port":8001},"remoteEndpoint":{"ipv4":"10.0.0.1"},"tags":{"error":""},"shared":true}]'
)


def recognise(head: bytes) -> bool:
    """Whether a file begins as Zipkin's JSON does."""
    return b'"traceId"' in head and b'"id"' in head and b'"spanId"' not in head and (b'"localEndpoint"' in head or b'"timestamp"' in head or b'"duration"' in head)


def read(source: Source, head: bytes, table: Table) -> None:
    """All spans of a file."""
    walker = documents.Walker(documents.text_of(source))
    for offset, _, value in walker:
        table.damaged += not take(table, value, offset)
    table.damaged += walker.damaged


def take(table: Table, value: Any, offset: int) -> bool:
    """Append one span; False for what is none."""
    if not isinstance(value, dict) or value.get("id") is None or "traceId" not in value:
        return False
    tags = {k: v for k, v in list(value["tags"].items())[:256] if isinstance(v, str | int | float | bool)} if isinstance(value.get("tags"), dict) else {}
    own = aliases.fields({k: v for k, v in tags.items() if k != "error"})
    kind = kind_of(value.get("kind"))
    here, there = (value.get(k) if isinstance(value.get(k), dict) else {} for k in ("localEndpoint", "remoteEndpoint"))
    process = {"service": text_of(here.get("serviceName")) or None, "address": _address(here), "port": aliases.number(here.get("port"))}
    if kind != SERVER and there:
        own |= {k: v for k, v in (("peer", text_of(there.get("serviceName")) or None), ("peer_address", _address(there)), ("peer_port", aliases.number(there.get("port")))) if v is not None and k not in own}
    start, duration = nanoseconds(value.get("timestamp")), scaled(value.get("duration"), 1000)
    said = tags.get("error")
    status = ERROR if "error" in tags and str(said).lower() != "false" else OK if str(tags.get("otel.status_code", "")).upper() == "OK" else UNSET
    annotations = value.get("annotations") if isinstance(value.get("annotations"), list) else []
    events = tuple((nanoseconds(a.get("timestamp")), text_of(a.get("value")), {}) for a in annotations[:64] if isinstance(a, dict))
    table.add(Span(
        text_of(value.get("traceId")), text_of(value.get("id")), text_of(value.get("parentId")), text_of(value.get("name")), kind, start,
        start + duration if start is not None and duration is not None and duration >= 0 else None, status,
        text_of(own.get("message") or (said if isinstance(said, str) and said.lower() != "true" else "")), own, {k: v for k, v in process.items() if v is not None}, events,
    ), offset)  # fmt: skip
    return True


def _address(endpoint: dict[str, Any]) -> str | None:
    return text_of(endpoint.get("ipv4") or endpoint.get("ipv6")) or None
