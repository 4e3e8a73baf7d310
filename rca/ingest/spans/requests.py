"""OTLP requests as dictionaries, read tolerantly: any spelling of the keys, any nesting, any types.

>>> table = Table()
>>> take(table, json.loads(SAMPLE), 0)
1
>>> table.names, table.procs[1], table.phases[1], table.notes[0]["events"][0][2]
(['', 'weights_update'], {'host': 'node-a', 'pid': 14690, 'service': 'trainer'}, ('weights_update', 12), {'exception_type': 'TimeoutError'})

Source: opentelemetry-proto, `trace.proto` and "OTLP/JSON" of the protocol's specification.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rca.ingest.spans import aliases
from rca.ingest.spans.table import Span, Table
from rca.ingest.spans.values import kind_of, nanoseconds, status_of, text_of

SAMPLE = (
    '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"trainer"}},{"key":"process.pid","value":{"intValue":"14690"}},'
    '{"key":"host.name","value":{"stringValue":"node-a"}}]},"scopeSpans":[{"scope":{"name":"rl.trainer"},"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",'
    '"spanId":"eee19b7ec3c1b174","parentSpanId":"","name":"weights_update","kind":1,"startTimeUnixNano":"1757250178000000000","endTimeUnixNano":"1757250190000000000",'
    '"attributes":[{"key":"step","value":{"intValue":"12"}}],"events":[{"timeUnixNano":"1757250189000000000","name":"exception","attributes":'
    '[{"key":"exception.type","value":{"stringValue":"TimeoutError"}}]}],"status":{"code":2,"message":"deadline"}}]}]}]}'
)
ATTRIBUTES_MAX = 256  # of one span


def take(table: Table, value: Any, offset: int, context: dict[str, Any] | None = None) -> int:
    """Append all spans of a decoded request, or of a part of one whose resource stands in `context`; gives their number."""
    count = 0
    for span in spans_of(value, {}, context or {}):
        table.add(span, offset)
        count += 1
    return count


def get(value: dict[str, Any], camel: str, snake: str) -> Any:
    """A member by either spelling of its name."""
    found = value.get(camel)
    return value.get(snake) if found is None else found


def spans_of(value: Any, process: dict[str, Any], context: dict[str, Any], depth: int = 0) -> Iterator[Span]:
    """The spans of a request, a resource, a scope, a span, or lists of these."""
    if depth > 8:
        return
    if isinstance(value, list):
        for item in value:
            yield from spans_of(item, process, context, depth + 1)
        return
    if not isinstance(value, dict):
        return
    resource = value.get("resource", context.get("resource") if not process else None)
    if isinstance(resource, dict):
        process = aliases.fields(flat(resource.get("attributes")))
    if (get(value, "spanId", "span_id")) is not None and "name" in value:
        yield _span(value, process)
        return
    for camel, snake in (("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("instrumentationLibrarySpans", "instrumentation_library_spans"), ("spans", "spans")):
        if (inner := get(value, camel, snake)) is not None:
            yield from spans_of(inner, process, {}, depth + 1)


def _span(value: dict[str, Any], process: dict[str, Any]) -> Span:
    status = value.get("status")
    status = status if isinstance(status, dict) else {"code": status}
    kind = kind_of(value.get("kind"))
    start = nanoseconds(get(value, "startTimeUnixNano", "start_time_unix_nano"))
    end = nanoseconds(get(value, "endTimeUnixNano", "end_time_unix_nano"))
    return Span(
        text_of(get(value, "traceId", "trace_id")), text_of(get(value, "spanId", "span_id")), text_of(get(value, "parentSpanId", "parent_span_id")),
        text_of(value.get("name")), kind, start, end, status_of(status.get("code")), text_of(status.get("message")),
        aliases.fields(flat(value.get("attributes"))), process, tuple(_happened(value.get("events"))),
    )  # fmt: skip


def _happened(events: Any) -> Iterator[tuple[int | None, str, dict[str, Any]]]:
    for event in events[:64] if isinstance(events, list) else ():
        if isinstance(event, dict):
            yield nanoseconds(get(event, "timeUnixNano", "time_unix_nano")), text_of(event.get("name")), flat(event.get("attributes"))


def flat(attributes: Any) -> dict[str, Any]:
    """OTLP's list of attributes as a dictionary; lists become tuples' text, maps are left out. A dictionary is taken as it is."""
    if isinstance(attributes, dict):
        return {k: v for k, v in list(attributes.items())[:ATTRIBUTES_MAX] if isinstance(v, str | int | float | bool)}
    found: dict[str, Any] = {}
    for attribute in attributes[:ATTRIBUTES_MAX] if isinstance(attributes, list) else ():
        if not isinstance(attribute, dict) or not isinstance(attribute.get("key"), str):
            continue
        value = attribute.get("value")
        if isinstance(value, dict):
            for kind in ("stringValue", "string_value", "intValue", "int_value", "boolValue", "bool_value", "doubleValue", "double_value"):
                if isinstance(said := value.get(kind), str | int | float):
                    found[attribute["key"]] = aliases.number(said) if kind[:3] == "int" else said
                    break
            else:
                array = get(value, "arrayValue", "array_value")
                if isinstance(array, dict) and isinstance(array.get("values"), list):
                    found[attribute["key"]] = str([next(iter(v.values()), None) for v in array["values"][:64] if isinstance(v, dict)])
        elif isinstance(value, str | int | float):
            found[attribute["key"]] = value
    return found


def events_of(raw: bytes) -> tuple:
    """The events of a span that is looked at closely."""
    if len(raw) <= 2:
        return ()
    try:
        return tuple(_happened(json.loads(raw, parse_float=str)))
    except (ValueError, RecursionError):
        return ()
