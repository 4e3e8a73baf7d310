"""The trace, span and request that a log line says it belongs to. Asked only of lines that became events.

>>> context("ERROR call failed traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
{'trace_id': '0af7651916cd43dd8448eb211c80319c', 'span_id': 'b7ad6b7169203331'}
>>> context('{"msg": "boom", "otelTraceID": "0af7651916cd43dd8448eb211c80319c", "otelSpanID": "0", "request_id": "req-7"}')
{'trace_id': '0af7651916cd43dd8448eb211c80319c', 'request_id': 'req-7'}
>>> context("uber-trace-id: af7651916cd43dd:b7ad6b7169203331:0:1"), context("trace_id=0 span_id=0 step=4"), context("request id is missing")
({'trace_id': '0af7651916cd43dd', 'span_id': 'b7ad6b7169203331'}, {}, {})

Source: W3C Trace Context; OpenTelemetry's Python log instrumentation; B3 propagation; Jaeger client libraries.
"""

from __future__ import annotations

import re

LOOKED_AT = 600  # characters of a line
W3C = re.compile(r"\b00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\b")
JAEGER = re.compile(r"uber-trace-id[\"':= ]{1,4}([0-9a-f]{1,32}):([0-9a-f]{1,16}):[0-9a-f]{1,16}:\d", re.I)
B3 = re.compile(r"\bb3[\"':= ]{1,4}([0-9a-f]{16,32})-([0-9a-f]{16})\b", re.I)
TRACE = re.compile(r"(?:trace_?id|x-b3-traceid)[\"']?\s?[:=]\s?[\"']?(?:0x)?([0-9a-f]{16,32})\b", re.I)
SPAN = re.compile(r"(?:span_?id|x-b3-spanid)[\"']?\s?[:=]\s?[\"']?(?:0x)?([0-9a-f]{16})\b", re.I)
REQUEST = re.compile(r"(?:\brequest_?id|\breq_?id|x-request-id|\brid)[\"']?\s?[:=]\s?[\"']?([\w.:-]{2,80})", re.I)
NO_REQUEST = frozenset({"none", "null", "nil", "undefined"})


def context(line: str) -> dict[str, str]:
    """The ids that a line states, in lower case; ids of zeros are none."""
    text = line[:LOOKED_AT]
    low = text.lower()
    found: dict[str, str] = {}
    if "trace" in low or "b3" in low:
        both = W3C.search(text) or JAEGER.search(text) or B3.search(text)
        if both:
            found = {"trace_id": both[1].lower().zfill(16 if len(both[1]) <= 16 else 32), "span_id": both[2].lower().zfill(16)}
        else:
            found = {name: m[1].lower() for name, pattern in (("trace_id", TRACE), ("span_id", SPAN)) if (m := pattern.search(text))}
    if ("id" in low and "req" in low) or "rid" in low:
        match = REQUEST.search(text)
        if match and match[1].lower() not in NO_REQUEST:
            found["request_id"] = match[1].rstrip(".:")
    return {name: value for name, value in found.items() if value.strip("0")}
