"""Spans of the controller's stages and calls, with the callee's halves: OTLP lines, Jaeger, Zipkin. Operations that never ended are not there.

Every span bears its own host's clock. Names are those of the dialect, given in `w.words`.
"""

from __future__ import annotations

import json
import random
from typing import Any

from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Span


def _spans(rec: Recorder) -> list[tuple[Span, str, str, str, str | None, bool]]:
    """(span, its name, trace id, span id, parent id, is it the callee's half); one trace per step."""
    rng, rows = random.Random(f"{rec.w.label}/{rec.w.seed}/ids"), []
    trace: dict[int | None, str] = {}
    lost = {h for f, h in rec.w.lost if f in ("files", "traces")}
    for s in rec.w.spans:
        if s.end is None or s.who.host in lost:
            continue
        ids = trace.setdefault(s.step, f"{rng.getrandbits(128):032x}")
        rows.append((s, s.name, ids, f"{rng.getrandbits(64):016x}", None, s.peer is None and s.who.role != "controller"))
    # Stages are roots; calls hang below the stage of their step that encloses them; callee halves below the call to them.
    stages = [(s, i) for s, name, _, i, _, callee in rows if s.peer is None and not callee]
    calls = [(s, i) for s, _, _, i, _, _ in rows if s.peer is not None]
    found = []
    for s, name, trace_id, span_id, _, callee in rows:
        if callee:
            parent = next((i for c, i in calls if c.peer is s.who and c.name == s.name and c.start <= s.start <= (c.end or 9e12)), None)
        else:
            parent = next((i for c, i in stages if s.peer is not None and c.step == s.step and c.stage == s.stage and c.start <= s.start + 1), None)
        found.append((s, name, trace_id, span_id, parent, callee))
    return found


def _named(rec: Recorder, s: Span) -> str:
    words: dict[str, str] = getattr(rec.w, "words", {})
    return words.get(s.name, s.name)


def otlp(rec: Recorder) -> None:
    lines = rec.shared("otel/traces.jsonl")
    batch: dict[str, list[dict[str, Any]]] = {}
    heads: dict[str, Span] = {}
    for s, _, trace_id, span_id, parent, callee in sorted(_spans(rec), key=lambda r: r[0].end or 0):
        attrs = [{"key": "rl.step", "value": {"intValue": str(s.step)}}, {"key": "rl.stage", "value": {"stringValue": rec.w.words.get(s.stage, s.stage)}}]
        if s.peer is not None:
            attrs += [{"key": "server.address", "value": {"stringValue": s.peer.host.ip}}, {"key": "server.port", "value": {"intValue": str(s.peer.port)}}]
        span: dict[str, Any] = {"traceId": trace_id, "spanId": span_id, "parentSpanId": parent or "", "name": _named(rec, s), "kind": 3 if s.peer is not None else 2 if callee else 1,
                                "startTimeUnixNano": str(int(s.who.host.clock(s.start) * 1e9)), "endTimeUnixNano": str(int(s.who.host.clock(s.end or 0) * 1e9)), "attributes": attrs,
                                "status": {"code": 2, "message": s.error} if s.error else {}}  # fmt: skip
        key = f"{s.who.role}/{s.who.index}"
        heads[key] = s
        batch.setdefault(key, []).append(span)
        if len(batch[key]) >= 12:
            lines.append(_request(rec, s, batch.pop(key)))
    lines += [_request(rec, heads[k], spans) for k, spans in batch.items()]


def _request(rec: Recorder, s: Span, spans: list[dict[str, Any]]) -> str:
    role = rec.w.words.get(s.who.role, s.who.role)
    attrs = {"service.name": role, "service.instance.id": f"{role}-{s.who.index}", "host.name": s.who.host.name, "process.pid": str(s.who.pid)}
    resource = [{"key": k, "value": {"intValue" if k == "process.pid" else "stringValue": v}} for k, v in attrs.items()]
    return json.dumps({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": {"name": "rl"}, "spans": spans}]}]})


def jaeger(rec: Recorder) -> None:
    traces: dict[str, dict[str, Any]] = {}
    for s, _, trace_id, span_id, parent, callee in _spans(rec):
        t = traces.setdefault(trace_id, {"traceID": trace_id, "spans": [], "processes": {}, "warnings": None})
        role = rec.w.words.get(s.who.role, s.who.role)
        pid = f"p-{role}-{s.who.index}"
        t["processes"][pid] = {"serviceName": role, "tags": [{"key": "hostname", "type": "string", "value": s.who.host.name}, {"key": "ip", "type": "string", "value": s.who.host.ip}, {"key": "worker", "type": "int64", "value": s.who.index}]}
        tags = [{"key": "span.kind", "type": "string", "value": "client" if s.peer is not None else "server" if callee else "internal"}, {"key": "step", "type": "int64", "value": s.step}]
        if s.peer is not None:
            tags.append({"key": "peer.address", "type": "string", "value": f"{s.peer.host.ip}:{s.peer.port}"})
        if s.error:
            tags += [{"key": "error", "type": "bool", "value": True}, {"key": "otel.status_description", "type": "string", "value": s.error}]
        t["spans"].append({"traceID": trace_id, "spanID": span_id, "flags": 1, "operationName": _named(rec, s), "references": [{"refType": "CHILD_OF", "traceID": trace_id, "spanID": parent}] if parent else [],
                           "startTime": int(s.who.host.clock(s.start) * 1e6), "duration": int(((s.end or 0) - s.start) * 1e6), "tags": tags, "logs": [], "processID": pid, "warnings": None})  # fmt: skip
    rec.shared("traces/jaeger.json").append(json.dumps({"data": list(traces.values()), "total": 0, "limit": 0, "offset": 0, "errors": None}))


def zipkin(rec: Recorder) -> None:
    spans = []
    for s, _, trace_id, span_id, parent, callee in _spans(rec):
        span: dict[str, Any] = {"traceId": trace_id, "id": span_id, "name": _named(rec, s).lower(), "timestamp": int(s.who.host.clock(s.start) * 1e6), "duration": int(((s.end or 0) - s.start) * 1e6),
                                "localEndpoint": {"serviceName": rec.w.words.get(s.who.role, s.who.role).lower(), "ipv4": s.who.host.ip, "port": s.who.port}, "tags": {"step": str(s.step), "worker": str(s.who.index), "host": s.who.host.name}}  # fmt: skip
        if parent:
            span["parentId"] = parent
        if s.peer is not None or callee:
            span["kind"] = "CLIENT" if s.peer is not None else "SERVER"
        if s.peer is not None:
            span["remoteEndpoint"] = {"ipv4": s.peer.host.ip, "port": s.peer.port}
        if s.error:
            span["tags"]["error"] = s.error
        spans.append(span)
    rec.shared("traces/zipkin.json").append(json.dumps(spans))


FORMS = (otlp, jaeger, zipkin)
