"""This package's spans in the user's own OpenTelemetry provider: for each of ours one of theirs, with one id for both, so that journal and collector agree.

Ours take trace and span id from theirs; theirs become current, so that what the user's instrumentations start inside is a child of ours, and ours of what is open around
them. The journal gets its record first-hand, and `otel.JournalProcessor` passes these spans over. What the user's processors do at the start and end of a span happens
inside the trainer's calls here, with their locks: that is why this is asked for by `install(otel=True)`.
"""

from __future__ import annotations

import json
from typing import Any

from rca.trace_inject import context, guard, recorder, spans
from rca.trace_inject.context import Scope

FAULTS_MAX = 3
SAMPLED = 1


def start() -> None:
    """Mirror spans from now on."""
    if spans.mirror is None:
        spans.mirror = Mirror()


def stop() -> None:
    """Mirror no more."""
    spans.mirror = None


class Mirror:
    """Starts and ends the user's spans beside ours."""

    def __init__(self) -> None:
        from opentelemetry import context as contexts
        from opentelemetry import trace

        from rca.trace_inject.otel import OWN

        self._api, self._contexts = trace, contexts
        self._tracer = trace.get_tracer(OWN)
        self._open: dict[str, tuple[Any, Any]] = {}
        self._names: dict[str, str] = {}
        self._faults = 0

    def begin(self, span: spans.Span, outer: Any, parent: str, above: Scope) -> tuple[str, str, Scope]:
        """Start theirs; gives id, parent and scope for our record."""
        try:
            api = self._api
            around = api.get_current_span().get_span_context()
            came = type(outer) is Scope and outer.parent != "" and int(outer.trace, 16) != around.trace_id  # from another process, by our `extract`
            if around.is_valid and not came:
                found, parent = None, f"{around.span_id:016x}"
            else:
                # A process without a parent still shares its run's trace; the span above it has an id that follows from that.
                known = api.SpanContext(int(above.trace, 16), int(parent or above.trace[:16], 16) or 1, True, api.TraceFlags(SAMPLED))
                found = api.set_span_in_context(api.NonRecordingSpan(known))
            theirs = self._tracer.start_span(self._name(span._said), context=found, attributes=self._attributes(span, above))
            own = theirs.get_span_context()
            if not own.is_valid:
                return span.key, parent, above
            span.key = f"{own.span_id:016x}"
            trace = f"{own.trace_id:032x}"
            if trace != above.trace:
                span.scope = above = context.scope(trace, above.request, above.stage, above.step, above.parent, above.more)
            self._open[span.key] = theirs, self._contexts.attach(api.set_span_in_context(theirs))
        except Exception as error:
            self._fault("mirror", error)
        return span.key, parent, above

    def end(self, span: spans.Span, error: BaseException | None) -> None:
        """End theirs."""
        try:
            theirs, token = self._open.pop(span.key, (None, None))
            if theirs is None:
                return
            if self._api.get_current_span() is theirs:  # else it is left in another context than it was entered in
                self._contexts.detach(token)
            if error is not None and spans.is_failure(error):
                theirs.record_exception(error)
                theirs.set_status(self._api.Status(self._api.StatusCode.ERROR, f"{type(error).__name__}: {error}"[: spans.MESSAGE_MAX]))
            theirs.end()
        except Exception as fault:
            self._fault("mirror", fault)

    def event(self, name: str, attributes: dict[str, Any] | None, of: spans.Span | None = None) -> None:
        """An event, hand-over or checkpoint of ours as an event of the span that is current; what the span `of` says of itself as its attributes."""
        try:
            if of is None:
                self._api.get_current_span().add_event(name, recorder.plain(attributes or {}))
            elif of.key in self._open:
                self._open[of.key][0].set_attributes(recorder.plain(attributes or {}))
        except Exception as error:
            self._fault("mirror", error)

    def _name(self, said: str) -> str:
        found = self._names.get(said)
        if found is None:
            found = json.loads(f"{{{said[1:]}}}")["n"]
            if len(self._names) < spans.NAMES_MAX:
                self._names[said] = found
        return found

    def _attributes(self, span: spans.Span, above: Scope) -> dict[str, Any]:
        found = recorder.plain(span.attributes) if span.attributes else {}
        for name, value in (("rca.request_id", above.request), ("rca.stage", above.stage), ("rca.step", above.step)):
            if value is not None:
                found[name] = value
        return found

    def _fault(self, where: str, error: BaseException) -> None:
        """A processor of the user's that raises ends the mirroring, not the journal. What their signal handler raised meanwhile goes on to the trainer."""
        if guard.passes(error):
            raise error
        self._faults += 1
        if self._faults == FAULTS_MAX:
            stop()
            guard.faults.append(f"{where}: {type(error).__name__}: {error}"[:300])
