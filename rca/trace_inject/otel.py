"""Beside OpenTelemetry: the user's own spans go into the journal too, and with `install(otel=True)` this package's spans to the user's collector.

    install()             # adds a processor to the provider that is set, now or later; never sets or replaces one
    install(otel=True)    # and starts a span of theirs for each of ours, see `mirror`
    install(otel=False)   # neither

Nothing of OpenTelemetry is imported here: what the user imported is followed. A provider that is set later is found because the function of the API that keeps
it, the same in all releases from 1.26 to 1.45, tells us; an API that is not imported yet is waited for by an entry of `sys.meta_path`. Of a `SpanProcessor` only the four
public methods are used.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
import time
from typing import Any

from rca.trace_inject import context, guard, recorder, spans

API = "opentelemetry.trace"
OWN = "rca.trace_inject"  # the instrumentation scope of spans that `mirror` starts
WANTED = "RCA_TRACE_OTEL"
KEEPERS = ("_set_tracer_provider", "set_tracer_provider")
KINDS = {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}  # of the API (internal, server, client, producer, consumer) -> of the protocol
FAILED = 2
EVENTS_MAX = 4
MESSAGE_MAX, STACK_CHARS = 600, 1500
_providers: list[Any] = []  # those that have the processor


class JournalProcessor:
    """A `SpanProcessor`: one record when a span starts, one when it ends."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Record that a span began."""
        try:
            journal = recorder.journal or recorder.current()
            if journal is None or (spans.mirror is not None and _is_own(span)):
                return
            at, about, here = span.get_span_context(), span.parent, context.here()
            key = "%016x" % at.span_id  # noqa: UP031 (half the time of an f-string)
            above = "%016x" % about.span_id if about is not None else context.span_id()  # noqa: UP031
            said, kind = span.attributes, span.kind._value_
            attributes = recorder.plain(said) if said else {}
            if kind:
                attributes["kind"] = KINDS.get(kind, 1)
            more = f',"a":{recorder.text(attributes)}' if attributes else ""
            place = here.tail[len(here.trace) + 8 :]  # what it says behind the trace, which is theirs
            data = f'{{"t":{span.start_time or time.time_ns()},"e":"start","id":"{key}","p":"{above}","tr":"{at.trace_id:032x}"{place}{spans.names.get(span.name) or spans._said(span.name)}{more}}}\n'.encode()
            if len(data) > recorder.RECORD_MAX:
                data = recorder.encode(json.loads(data))
            journal.open[key] = data
            journal.put(data)
        except Exception as error:
            guard.fault("on_start", error)

    def on_end(self, span: Any) -> None:
        """Record that a span ended, how, and what was said of it since it began."""
        try:
            journal = recorder.journal or recorder.current()
            if journal is None:
                return
            key = "%016x" % span.get_span_context().span_id  # noqa: UP031
            if (spans.mirror is not None and _is_own(span)) or journal.open.pop(key, None) is None:
                return  # one of ours, or begun before a fork: then the parent ends it
            said = span.attributes
            attributes: dict[str, Any] = recorder.plain(said) if said else {}
            if span.status.status_code._value_ == FAILED:
                attributes |= {"status": "error", "message": str(span.status.description or "")[:MESSAGE_MAX]}
                for event in (span.events or ())[-EVENTS_MAX:]:
                    if event.name == "exception":
                        told = {str(k): str(v) for k, v in (event.attributes or {}).items()}
                        attributes |= {k: v[-STACK_CHARS:] if k.endswith("stacktrace") else v[:MESSAGE_MAX] for k, v in told.items()}  # of a stack the innermost frames tell
            more = f',"a":{recorder.text(attributes)}' if attributes else ""
            data = f'{{"t":{span.end_time or time.time_ns()},"e":"end","id":"{key}"{more}}}\n'.encode()
            journal.put(data if len(data) <= recorder.RECORD_MAX else recorder.encode(json.loads(data)))
        except Exception as error:
            guard.fault("on_end", error)

    def _on_ending(self, span: Any) -> None:
        """Newer releases call this; there is nothing to do."""

    def shutdown(self) -> None:
        """Nothing is buffered."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is buffered."""
        return True


def _is_own(span: Any) -> bool:
    """Whether the span stands for one of this package, which has its records already."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name == OWN


@guard.quiet(False)
def install_otel(mirrored: bool | None = None) -> bool:
    """Follow OpenTelemetry now, importing its API; gives whether a provider is there. `install()` does the same for an API that is or gets imported."""
    try:
        import opentelemetry.trace  # noqa: F401 (what is asked for by name may be imported)
    except ImportError:
        return False
    return attach(mirrored)


@guard.quiet(False)
def attach(mirrored: bool | None = None) -> bool:
    """Follow the API's provider, now or once it is there; gives whether it is. Children learn from the environment what is wanted here."""
    if mirrored is None:
        mirrored = {"1": True, "0": False}.get(os.environ.get(WANTED, ""))
    else:
        os.environ[WANTED] = str(int(mirrored))
    if mirrored is False:
        return False
    if API in sys.modules:
        return _follow(sys.modules[API])
    if not any(isinstance(finder, _Later) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Later())
    return False


class _Later:
    """Waits for the import of the API, and then is gone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != API:
            return None
        try:
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            load = spec.loader.exec_module  # type: ignore[union-attr]

            def exec_module(module: Any) -> None:
                load(module)
                _follow(module)

            spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        except Exception:
            return None  # others find it, and `install_otel` is left to the user
        return spec


@guard.quiet(False)
def _follow(api: Any) -> bool:
    """Add the processor to the provider, and to one that is set from now on."""
    name = next(n for n in KEEPERS if hasattr(api, n))
    keeper = getattr(api, name)
    if not getattr(keeper, "__rca__", False):

        @functools.wraps(keeper)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = keeper(*args, **kwargs)
            _add(api)
            return result

        wrapped.__rca__ = True  # type: ignore[attr-defined]
        setattr(api, name, wrapped)
    return _add(api)


@guard.quiet(False)
def _add(api: Any) -> bool:
    """Add the processor to the global provider, if there is one; gives whether there is."""
    if getattr(api, "_TRACER_PROVIDER", False) is None and "OTEL_PYTHON_TRACER_PROVIDER" in os.environ:
        return False  # asking would set it
    provider = api.get_tracer_provider()
    add = getattr(provider, "add_span_processor", None)
    if add is None or os.environ.get(WANTED) == "0":
        return False
    if not any(known is provider for known in _providers):
        _providers.append(provider)
        add(_processor())
    if os.environ.get(WANTED) == "1":
        from rca.trace_inject import mirror

        mirror.start()
    return True


def _processor() -> Any:
    """The processor as a subclass of the SDK's, which newer releases call by more than the four methods."""
    sdk = sys.modules.get("opentelemetry.sdk.trace")
    base = getattr(sdk, "SpanProcessor", None)
    return JournalProcessor() if base is None else type("JournalProcessor", (JournalProcessor, base), {})()
