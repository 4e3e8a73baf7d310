"""Spans for tests: each builder has a plain default, and a test states only what differs."""

from __future__ import annotations

import json
from typing import Any

NOON_NS = 1_795_176_000_000_000_000  # 2026-11-20T12:00:00Z
SECOND_NS = 1_000_000_000


def attributes(**values: Any) -> list[dict[str, Any]]:
    """OTLP's list of attributes; `__` in a name is a dot."""
    return [{"key": k.replace("__", "."), "value": {"intValue": str(v)} if type(v) is int else {"boolValue": v} if type(v) is bool else {"stringValue": v}} for k, v in values.items() if v is not None]


def span(id: str = "a" * 16, parent: str = "", name: str = "work", kind: int = 1, start: int = NOON_NS, seconds: float = 2.0, status: int = 1, message: str | None = None,
         stage: str | None = None, step: int | None = None, peer: str | None = None, address: str | None = None, port: int | None = None, trace: str = "f" * 32,
         http: int | None = None, events: list | None = None, end: bool = True, **more: Any) -> dict[str, Any]:  # fmt: skip
    """One span of two seconds that ended well."""
    found = {
        "traceId": trace, "spanId": id, "parentSpanId": parent, "name": name, "kind": kind, "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + int(seconds * SECOND_NS)),
        "attributes": attributes(train__stage=stage, train__step=step, peer__worker=peer, server__address=address, server__port=port, http__response__status_code=http, **more),
        "status": {"code": status} | ({"message": message} if message else {}),
    }  # fmt: skip
    if events:
        found["events"] = events
    if not end:
        del found["endTimeUnixNano"]
    return found


def failed_client(message: str, id: str = "c" * 16, **changes: Any) -> dict[str, Any]:
    """A caller's span that failed."""
    return span(**({"id": id, "name": "rpc.generate", "kind": 3, "status": 2, "message": message} | changes))


def exception(kind: str = "RuntimeError", text: str = "boom", stack: str | None = None, at: int = NOON_NS) -> dict[str, Any]:
    """The event by which a span records an exception."""
    return {"timeUnixNano": str(at), "name": "exception", "attributes": attributes(exception__type=kind, exception__message=text, exception__stacktrace=stack)}


def request(spans: list[dict[str, Any]], service: str = "controller", host: str = "n1", pid: int = 11, **more: Any) -> dict[str, Any]:
    """An export request of one process."""
    resource = {"attributes": attributes(service__name=service, host__name=host, process__pid=pid, **more)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "grpo"}, "spans": spans}]}]}


def line(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":")) + "\n"
