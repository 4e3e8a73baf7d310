"""Journals as OTLP in JSON, one export request a line, for any collector or viewer: `rca trace export --otlp`.

A span without an end gets its start for its end, the status "error" and the attribute `rca.open`: a viewer shows it, and nobody takes it for one that ended well.
Hand-overs, events, acknowledgements and checkpoints become events of the span that they happened in, or a span of no length where there is none.

Source: opentelemetry-proto, `trace.proto`, and "OTLP/JSON" of the protocol's specification.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

BATCH = 512
LINE_MAX = 1 << 20
INTERNAL = 1
NAMES = {"host": "host.name", "pid": "process.pid", "role": "rca.role", "rank": "dl.rank", "local_rank": "dl.local_rank", "world_size": "dl.world_size", "run": "rca.run_id", "attempt": "rca.attempt"}


def journals(paths: list[str]) -> list[str]:
    """The journal files at or below some paths, sorted. Raises FileNotFoundError."""
    found = []
    for path in paths:
        if os.path.isdir(path):
            found += [os.path.join(where, name) for where, _, names in os.walk(path) for name in names if name.endswith(".rca.jsonl")]
        elif os.path.exists(path):
            found.append(path)
        else:
            raise FileNotFoundError(2, "No such file or directory", path)
    return sorted(found)


def requests(path: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The export requests of one journal. Lines that are no records are counted in `problems`. Raises OSError."""
    resource: dict[str, Any] = {"attributes": []}
    spans: list[dict[str, Any]] = []
    open_: dict[str, dict[str, Any]] = {}
    damaged = 0
    with open(path, "rb") as file:
        while line := file.readline(LINE_MAX):
            try:
                record = json.loads(line) if line.strip() else None
                if record is None:
                    continue
                if "schema" in record:
                    if open_ or spans:
                        yield _request(resource, spans + [_unended(s) for s in open_.values()])
                        spans, open_ = [], {}
                    resource = {"attributes": _attributes({NAMES.get(k, f"rca.{k}"): v for k, v in record.items() if k in NAMES} | {"service.name": str(record.get("role", "trainer"))})}
                    continue
                _take(record, open_, spans)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                damaged += 1
            if len(spans) >= BATCH:
                yield _request(resource, spans)
                spans = []
    if spans or open_:
        yield _request(resource, spans + [_unended(s) for s in open_.values()])
    if damaged:
        problems.append(f"{path}: {damaged} damaged lines left out")


def _take(record: dict[str, Any], open_: dict[str, dict[str, Any]], spans: list[dict[str, Any]]) -> None:
    kind, key, time_ns = record["e"], str(record.get("id", "")), int(record["t"])
    if kind == "start":
        open_[key] = _span(record, key)
    elif kind == "end":
        span = open_.pop(key, None)
        if span is None:
            return  # its start was in a segment that is gone
        own = record.get("a") or {}
        span["endTimeUnixNano"] = str(time_ns)
        failed = own.get("status") == "error"
        span["status"] = {"code": 2, "message": str(own.get("exception.message", own.get("message", "")))} if failed else {"code": 1}
        if failed and "exception.type" in own:
            span["events"].append({"timeUnixNano": str(time_ns), "name": "exception", "attributes": _attributes({k: v for k, v in own.items() if k.startswith("exception.")})})
        span["attributes"] += _attributes({k: v for k, v in own.items() if k != "status" and not k.startswith("exception.")})
        spans.append(span)
    else:
        name = f"{record.get('n', kind)}" if kind == "event" else f"{kind} {record.get('n', '')}".strip()
        above = open_.get(str(record.get("p", "")))
        if above is not None:
            above["events"].append({"timeUnixNano": str(time_ns), "name": name, "attributes": _attributes(record.get("a") or {})})
        else:
            span = _span(record, f"{time_ns & 0xFFFFFFFFFFFFFFFF:016x}")
            spans.append(span | {"name": name, "endTimeUnixNano": str(time_ns), "status": {"code": 0}})


def _span(record: dict[str, Any], key: str) -> dict[str, Any]:
    own = dict(record.get("a") or {})
    kind = own.pop("kind", INTERNAL)
    own |= {name: record[short] for short, name in (("rq", "rca.request_id"), ("st", "rca.stage"), ("s", "rca.step")) if short in record}
    span = {
        "traceId": str(record.get("tr", "")).rjust(32, "0")[-32:], "spanId": key.rjust(16, "0")[-16:], "name": str(record.get("n", "")), "kind": kind if isinstance(kind, int) and 0 <= kind <= 5 else INTERNAL,
        "startTimeUnixNano": str(int(record["t"])), "attributes": _attributes(own), "events": [],
    }  # fmt: skip
    if record.get("p"):
        span["parentSpanId"] = str(record["p"]).rjust(16, "0")[-16:]
    return span


def _unended(span: dict[str, Any]) -> dict[str, Any]:
    return span | {"endTimeUnixNano": span["startTimeUnixNano"], "status": {"code": 2, "message": "no end was recorded"}, "attributes": [*span["attributes"], *_attributes({"rca.open": True})]}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": str(k), "value": _value(v)} for k, v in values.items() if v is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(v) for v in value]}}
    return {"stringValue": str(value)}


def _request(resource: dict[str, Any], spans: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "rca.trace_inject"}, "spans": spans}]}]}
