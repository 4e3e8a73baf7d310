"""Spans of requests between processes: what is said of a call when it ends, and calls that go on after the function that made them has returned."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any

from rca.trace_inject import context, guard, recorder, spans

CLIENT, SERVER, PRODUCER = 3, 2, 4  # kinds of spans as OpenTelemetry numbers them
REMEMBERED = 1024


class Call:
    """A span whose end says more than when it was: `call.told["http.response.status_code"] = 200`."""

    __slots__ = ("span", "told")

    def __init__(self, name: str, attributes: dict[str, Any] | None = None) -> None:
        self.span = spans.Span(name, attributes)
        self.told: dict[str, Any] = {}

    @property
    def recorded(self) -> bool:
        """Whether it is being recorded."""
        return self.span._journal is not None

    def __enter__(self) -> Call:
        self.span.__enter__()
        return self

    def __exit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        self.leave()
        self.finish(error)

    @guard.quiet()
    def leave(self) -> None:
        """What is recorded from here on is no part of this call, which goes on."""
        with contextlib.suppress(ValueError):  # left in another context than entered
            context.current.reset(self.span._token)

    @guard.quiet()
    def finish(self, error: BaseException | None = None) -> None:
        """The call is over; only the first time counts."""
        span = self.span
        journal = span._journal
        if journal is None or journal.open.pop(span.key, None) is None:
            return
        if spans.mirror is not None:
            spans.mirror.end(span, error)
        record: dict[str, Any] = {"t": spans.now(), "e": "end", "id": span.key} if error is None else spans.last(span.key, error)
        if said := {**recorder.plain(self.told), **record.get("a", {})}:
            record["a"] = said
        journal.put(recorder.encode(record))

    def failed(self, why: str, message: str | None = None) -> None:
        """The call failed without an exception."""
        self.told |= {"status": "error", "error.type": why, **({"message": message} if message else {})}


class Resends:
    """How often a request was sent before, without an answer, from the same place. Of many places the latest are remembered."""

    def __init__(self) -> None:
        self._failed: OrderedDict[tuple, int] = OrderedDict()

    def count(self, key: tuple) -> int:
        """How often it failed."""
        return self._failed.get(key, 0)

    def ended(self, key: tuple, well: bool) -> None:
        """It was answered, or failed once more."""
        if well:
            self._failed.pop(key, None)
            return
        self._failed[key] = self._failed.pop(key, 0) + 1
        while len(self._failed) > REMEMBERED:
            with contextlib.suppress(KeyError):  # another thread took it
                self._failed.popitem(last=False)
