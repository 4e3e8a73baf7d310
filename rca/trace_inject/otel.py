"""Beside OpenTelemetry: the user's own spans go into the journal too, and this package's spans to the user's collector.

    install_otel()        # adds a processor to the provider that is set; never sets or replaces one

Only the four public methods of a `SpanProcessor` are used, so that any release of the SDK from 1.26 on will do. A provider that is set later is found when
`install_otel` is called again.
"""

from __future__ import annotations

import time
from typing import Any

from rca.trace_inject import context, guard, recorder

KINDS = {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}  # of the API (internal, server, client, producer, consumer) -> of the protocol
EVENTS_MAX = 4


class JournalProcessor:
    """A `SpanProcessor`: one record when a span starts, one when it ends."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Record that a span began."""
        try:
            journal = recorder.current()
            if journal is None:
                return
            at, about = span.get_span_context(), getattr(span, "parent", None)
            key = f"{at.span_id:016x}"
            here = context.here()
            attributes = recorder.plain(dict(span.attributes or {}))
            kind = KINDS.get(getattr(span.kind, "value", 0), 1)
            record: dict[str, Any] = {"t": span.start_time or time.time_ns(), "e": "start", "id": key, "p": f"{about.span_id:016x}" if about is not None else "", "tr": f"{at.trace_id:032x}"}
            for short, value in (("rq", here.request), ("st", here.stage), ("s", here.step)):
                if value is not None:
                    record[short] = value
            record["n"] = str(span.name)[:200]
            if kind != 1:
                attributes["kind"] = kind
            if attributes:
                record["a"] = attributes
            data = recorder.encode(record)
            journal.open[key] = data
            journal.put(data)
        except Exception as error:
            guard.fault("on_start", error)

    def on_end(self, span: Any) -> None:
        """Record that a span ended, how, and what was said of it since it began."""
        try:
            journal = recorder.current()
            if journal is None:
                return
            key = f"{span.get_span_context().span_id:016x}"
            if journal.open.pop(key, None) is None:
                return
            attributes: dict[str, Any] = recorder.plain(dict(span.attributes or {}))
            status = getattr(span.status.status_code, "value", 0)
            if status == 2:
                attributes |= {"status": "error", "message": str(span.status.description or "")[:600]}
            for event in (span.events or ())[-EVENTS_MAX:]:
                if event.name == "exception":
                    attributes |= recorder.plain(dict(event.attributes or {}))
            journal.put(recorder.encode({"t": span.end_time or time.time_ns(), "e": "end", "id": key, **({"a": attributes} if attributes else {})}))
        except Exception as error:
            guard.fault("on_end", error)

    def _on_ending(self, span: Any) -> None:
        """Newer releases call this; there is nothing to do."""

    def shutdown(self) -> None:
        """Nothing is buffered."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is buffered."""
        return True


@guard.quiet(False)
def install_otel() -> bool:
    """Add the processor to the global provider, if that is one of the SDK; gives whether it stands there now."""
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        return False
    if getattr(provider, "__rca__", None) is None:
        add(_processor())
        provider.__rca__ = True  # type: ignore[attr-defined]
    return True


def _processor() -> Any:
    """The processor as a subclass of the SDK's, for providers that ask."""
    try:
        from opentelemetry.sdk.trace import SpanProcessor
    except ImportError:
        return JournalProcessor()
    return type("JournalProcessor", (JournalProcessor, SpanProcessor), {})()
