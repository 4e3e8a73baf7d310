"""What the OpenTelemetry SDK's console exporter prints: pretty objects one behind the other, between whatever else stands in the file.

Ray's own tracing hook writes such files to `/tmp/spans`, Ray Serve to `logs/serve/spans`.

>>> import json
>>> from rca.ingest.spans.table import Table
>>> table = Table()
>>> take(table, json.loads(SAMPLE), 0)
True
>>> table.names[1], table.procs[1], table.columns["end"][0] - table.columns["start"][0]
('train_step', {'pid': 7, 'service': 'trainer'}, 1500000)
"""

from __future__ import annotations

from typing import Any

from rca.ingest.sources import Source
from rca.ingest.spans import aliases, documents
from rca.ingest.spans.requests import flat
from rca.ingest.spans.table import Span, Table
from rca.ingest.spans.values import kind_of, nanoseconds, status_of, text_of

SAMPLE = """
{
    "name": "train_step",
    "context": {"trace_id": "0x5b8efff798038103d269b633813fc60c", "span_id": "0xeee19b7ec3c1b174", "trace_state": "[]"},
    "kind": "SpanKind.INTERNAL",
    "parent_id": null,
    "start_time": "2026-09-07T13:02:58.000000Z",
    "end_time": "2026-09-07T13:02:58.001500Z",
    "status": {"status_code": "ERROR", "description": "RuntimeError: boom"},
    "attributes": {"step": 12},
    "events": [{"name": "exception", "timestamp": "2026-09-07T13:02:58.001000Z", "attributes": {"exception.type": "RuntimeError"}}],
    "links": [],
    "resource": {"attributes": {"service.name": "trainer", "process.pid": 7}, "schema_url": ""}
}"""


def recognise(head: bytes) -> bool:
    """Whether a file begins with a span as the console exporter prints it."""
    start = head.find(b'"name"')
    return 0 <= start < 64 and head.lstrip()[:1] == b"{" and b'"context"' in head and b'"trace_id"' in head and (b'"SpanKind.' in head or b'"span_id"' in head)


def read(source: Source, head: bytes, table: Table) -> None:
    """All spans of a file."""
    walker = documents.Walker(documents.text_of(source), other=table.text)
    for offset, _, value in walker:
        table.damaged += not take(table, value, offset)
    table.damaged += walker.damaged


def take(table: Table, value: Any, offset: int) -> bool:
    """Append one object; False for one that is no span."""
    context = value.get("context") if isinstance(value, dict) else None
    if not isinstance(context, dict) or "span_id" not in context:
        return False
    status = value.get("status") if isinstance(value.get("status"), dict) else {}
    resource = value.get("resource") if isinstance(value.get("resource"), dict) else {}
    events = [e for e in value.get("events") or () if isinstance(e, dict)][:64] if isinstance(value.get("events"), list) else []
    table.add(Span(
        _hex(context.get("trace_id")), _hex(context.get("span_id")), _hex(value.get("parent_id")), text_of(value.get("name")), kind_of(value.get("kind")),
        nanoseconds(value.get("start_time")), nanoseconds(value.get("end_time")), status_of(status.get("status_code")), text_of(status.get("description")),
        aliases.fields(flat(value.get("attributes"))), aliases.fields(flat(resource.get("attributes"))),
        tuple((nanoseconds(e.get("timestamp")), text_of(e.get("name")), flat(e.get("attributes"))) for e in events),
    ), offset)  # fmt: skip
    return True


def _hex(value: Any) -> str:
    return text_of(value).removeprefix("0x")
