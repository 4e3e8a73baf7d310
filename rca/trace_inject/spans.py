"""Spans: a record when one starts and another when it ends, so that the one a process died or hangs in is known.

The way of one span through here costs about what two bare writes cost: no lock, no object but the span, texts prepared where they are known.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar, overload

from rca.trace_inject import context, guard, recorder
from rca.trace_inject.context import Scope, scope

F = TypeVar("F", bound=Callable[..., Any])
STACK_MAX = 6  # innermost frames of an error
MESSAGE_MAX = 600
#: What is no failure: a generator that is left, a loop that ends, an exit that says all is well.
CANCELLED = ("CancelledError", "Cancelled")
NO_FAILURE = (GeneratorExit, StopIteration, StopAsyncIteration)

now = time.time_ns
_current = context.current
_get, _set, _reset = _current.get, _current.set, _current.reset
write = os.write


def _new_numbers() -> Iterator[int]:
    """Ids of 16 hex digits that never come twice in one process, and hardly in two."""
    return count(1 << 63 | int.from_bytes(os.urandom(8), "big") >> 2)


_numbers = _new_numbers()
mirror: Any = None  # of `mirror.Mirror`, where the user's OpenTelemetry is to have the spans too
names: dict[str, str] = {}  # a name as a record says it
NAMES_MAX = 10_000


def _said(name: str) -> str:
    found = names.get(name)
    if found is None:
        found = f',"n":{json.dumps(str(name)[:200])}'
        if len(names) < NAMES_MAX:
            names[name] = found
    return found


class Span:
    """One piece of work: `with Span("load", {"path": p}) as span: ...; span.set(rows=3)`. Recorded when it starts and when it ends."""

    __slots__ = ("_journal", "_said", "_token", "attributes", "key", "scope")

    def __init__(self, name: str, attributes: dict[str, Any] | None = None, scope: Scope | None = None) -> None:
        self._said = names.get(name) or _said(name)
        self.attributes = attributes
        self.scope = scope
        self._journal = None

    def __enter__(self) -> Span:
        # Written out, with nothing called that need not be: this and `__exit__` are what tracing costs.
        try:
            outer = _get()
            if type(outer) is Span:
                parent, above = outer.key, outer.scope
            else:
                above = outer or context.root()
                parent = above.parent
            if self.scope is None:
                self.scope = above
            else:
                above = self.scope
            self.key = key = "%x" % next(_numbers)  # noqa: UP031 (half the time of an f-string)
            self._token = _set(self)
            journal = recorder.journal
            if journal is None and (journal := recorder.current()) is None:
                return self
            self._journal = journal
            if mirror is not None:
                key, parent, above = mirror.begin(self, outer, parent, above)
            started = now()
            data = f'{{"t":{started},"e":"start","id":"{key}","p":"{parent}"{above.tail}{self._said}}}\n'.encode()
            if self.attributes is not None:
                data = self._with_attributes(data)
            journal.open[key] = data
            try:
                count = write(journal.fd, data)
            except OSError as error:
                journal.failed(data, error)
                return self
            if not journal.from_ns < started < journal.look_ns or count != len(data):
                journal.look(data, count)
        except BaseException as error:
            self._broken_off(error)
        return self

    def __exit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        try:
            _reset(self._token)
            journal = self._journal
            if journal is None or journal.open.pop(self.key, None) is None:
                return  # not recorded; or begun before a fork: then the parent ends it
            if mirror is not None:
                mirror.end(self, error)
            data = f'{{"t":{now()},"e":"end","id":"{self.key}"}}\n'.encode() if error is None else self._failed(error)
            try:
                count = write(journal.fd, data)
            except OSError as fault:
                journal.failed(data, fault)
                return
            if count != len(data):
                journal.look(data, count)
        except BaseException as fault:
            if type(fault) is ValueError and not guard.passes(fault):  # left in another context than entered: the span ends all the same
                self._end_elsewhere(error)
            else:
                self._broken_off(fault, ending=True)

    def _broken_off(self, fault: BaseException, ending: bool = False) -> None:
        """A fault of ours is counted. What a signal handler raised in the midst of it goes on to the trainer: then the span is over."""
        if isinstance(fault, Exception) and not guard.passes(fault):
            guard.fault("span", fault)
            return
        try:
            if _current.get() is self:  # by its token, or if there was no time to keep that, by what `__enter__` found
                if hasattr(self, "_token"):
                    _reset(self._token)
                elif fault.__traceback__ is not None:
                    _set(fault.__traceback__.tb_frame.f_locals.get("outer"))
            if self._journal is not None and (self._journal.open.pop(self.key, None) is not None or ending):
                self._journal.put(b'{"t":%d,"e":"end","id":"%b"}\n' % (now(), self.key.encode()))
        except Exception as error:
            guard.fault("span", error)
        raise fault

    @guard.quiet()
    def _end_elsewhere(self, error: BaseException | None) -> None:
        journal = self._journal
        if journal is not None and journal.open.pop(self.key, None) is not None:
            if mirror is not None:
                mirror.end(self, error)
            journal.put(self._failed(error) if error is not None else b'{"t":%d,"e":"end","id":"%b"}\n' % (now(), self.key.encode()))

    def _with_attributes(self, data: bytes) -> bytes:
        """The record of the start, with what is said of it."""
        return _attributed(data, self.attributes or {})

    def _failed(self, error: BaseException) -> bytes:
        return recorder.encode(last(self.key, error))

    @guard.quiet()
    def set(self, **attributes: Any) -> None:
        """Say more of what goes on: recorded at once, as an event of this span, whichever is innermost by then."""
        if self._journal is not None:
            record("event", "attributes", attributes, of=self)


def _attributed(data: bytes, attributes: dict[str, Any]) -> bytes:
    """The record of a start, with what is said of it."""
    said = recorder.text(recorder.plain(attributes)).encode()
    long = data[:-2] + b',"a":' + said + b"}\n"
    return long if len(long) <= recorder.RECORD_MAX else recorder.encode(json.loads(long))


def last(key: str, error: BaseException) -> dict[str, Any]:
    """The record of an end by an exception."""
    record: dict[str, Any] = {"t": now(), "e": "end", "id": key}
    if type(error).__name__ in CANCELLED:  # its caller gave it up: why is another span's to say
        record["a"] = {"status": "unset", "rca.cancelled": True}
    elif is_failure(error):
        record["a"] = {"status": "error", "exception.type": f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."), "exception.message": str(error)[:MESSAGE_MAX], "exception.stacktrace": _stack(error)}
    return record


def is_failure(error: BaseException) -> bool:
    """Whether what left a span is a failure."""
    return not isinstance(error, NO_FAILURE) and not (isinstance(error, SystemExit) and error.code in (None, 0))


def _stack(error: BaseException) -> str:
    """The innermost frames as Python prints them, without lines of source."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    lines = [f'  File "{file}", line {line}, in {name}' for file, line, name in frames[-STACK_MAX:]]
    return "\n".join(["Traceback (most recent call last):", *lines, f"{type(error).__name__}: {str(error)[:MESSAGE_MAX]}"])


def span(name: str, **attributes: Any) -> Span:
    """`with span("load_shard", path=path): ...`"""
    return Span(name, attributes or None)


def begin(name: str, attributes: dict[str, Any] | None = None) -> str:
    """The record of a span's start, for callbacks that have no `with` around the work; gives the key for `end`, or "" while nothing is recorded.

    It lies in the span around it, and nothing lies in it: what is recorded until its end belongs to that span, too. OpenTelemetry is not told.
    """
    try:
        journal = recorder.journal
        if journal is None and (journal := recorder.current()) is None:
            return ""
        # The lines of `Span.__enter__` once more, and in `end` those of `__exit__`, on purpose: a function that they shared would be one more call for each span.
        outer = _get()
        if type(outer) is Span:
            parent, above = outer.key, outer.scope
        else:
            above = outer or context.root()
            parent = above.parent
        key = "%x" % next(_numbers)  # noqa: UP031 (half the time of an f-string)
        started = now()
        data = f'{{"t":{started},"e":"start","id":"{key}","p":"{parent}"{above.tail}{names.get(name) or _said(name)}}}\n'.encode()
        if attributes is not None:
            data = _attributed(data, attributes)
        journal.open[key] = data
        try:
            count = write(journal.fd, data)
        except OSError as error:
            journal.failed(data, error)
            return key
        if not journal.from_ns < started < journal.look_ns or count != len(data):
            journal.look(data, count)
        return key
    except Exception as error:
        if guard.passes(error):
            raise
        guard.fault("begin", error)
        return ""


def end(key: str, error: BaseException | None = None) -> None:
    """The record of its end; nothing for "" and for a key that has ended, or was begun before a fork."""
    try:
        journal = recorder.journal
        if journal is None or journal.open.pop(key, None) is None:
            return
        data = f'{{"t":{now()},"e":"end","id":"{key}"}}\n'.encode() if error is None else recorder.encode(last(key, error))
        try:
            count = write(journal.fd, data)
        except OSError as fault:
            journal.failed(data, fault)
            return
        if count != len(data):
            journal.look(data, count)
    except Exception as fault:
        if guard.passes(fault):
            raise
        guard.fault("end", fault)


def stage(name: str, **attributes: Any) -> Span:
    """A stage of training, `with stage("rollout"): ...`; all that is recorded inside belongs to it.

    Usual names: init, load, weights_update, rollout, reference, train, eval, save, recover, cleanup.
    """
    return _inner(name, attributes, stage=name)


def step(number: int, **attributes: Any) -> Span:
    """One step of training, `with step(12): ...`; all that is recorded inside belongs to it."""
    return _inner("step", attributes, step=number)


def request(key: str | None = None, name: str = "request", **attributes: Any) -> Span:
    """One request with an id of its own (given, or made), `with request() as r: post(headers=inject({}))`; the id travels with `inject`.

    On the callee's side: `with extract(headers), span("handle"): ...`.
    """
    return _inner(name, attributes, request=key)


def _inner(name: str, attributes: dict[str, Any], **changes: Any) -> Span:
    try:
        at = context.here()
        if "request" in changes and changes["request"] is None:
            changes["request"] = f"{next(_numbers) & 0xFFFFFFFFFFFF:012x}"
        if "step" in changes:
            changes["step"] = int(changes["step"])
        changes = {k: str(v) if k != "step" else v for k, v in changes.items()}
        inner = scope(at.trace, changes.get("request", at.request), changes.get("stage", at.stage), changes.get("step", at.step), at.parent, at.more)
    except Exception as error:
        guard.fault("scope", error)
        inner = None
    return Span(name, attributes or None, inner)


@overload
def traced(function: F) -> F: ...
@overload
def traced(function: str | None = None, *, stage: str | None = None, **attributes: Any) -> Callable[[F], F]: ...
def traced(function: Any = None, *, stage: str | None = None, **attributes: Any) -> Any:
    """`@traced`, `@traced("name")`, `@traced(stage="rollout", peer="rollout/3")`: a span for every call, also of coroutines and generators.

    Arguments are not recorded: they may hold secrets, and they may be large.
    """
    if not callable(function):
        return lambda f: _traced(f, function, stage, attributes or None)
    return _traced(function, None, None, None)


def _traced(function: Any, name: str | None, in_stage: str | None, attributes: dict[str, Any] | None) -> Any:
    try:
        name = name or getattr(function, "__qualname__", None) or type(function).__name__

        def new() -> Span:
            return Span(name, attributes) if in_stage is None else _inner(name, attributes or {}, stage=in_stage)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                with new():
                    return await function(*args, **kwargs)

        elif inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                with new():
                    async for value in function(*args, **kwargs):
                        yield value

        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with new():
                    return (yield from function(*args, **kwargs))

        else:

            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with new():
                    return function(*args, **kwargs)

        return wrapped
    except Exception as error:
        guard.fault("traced", error)
        return function


@guard.quiet()
def event(name: str, **attributes: Any) -> None:
    """Something that happened at this moment, within the innermost span."""
    record("event", name, attributes)


def record(kind: str, name: str, attributes: dict[str, Any] | None = None, key: str | None = None, of: Span | None = None) -> None:
    """Write one record of any kind at this place, or in the span `of`. Raises what goes wrong: callers are guarded."""
    to = recorder.journal or recorder.current()
    if to is None:
        return
    at = of.scope if of is not None and of.scope is not None else context.here()
    found: dict[str, Any] = {"t": now(), "e": kind}
    if key:
        found["id"] = key
    if above := of.key if of is not None else context.span_id():
        found["p"] = above
    found["tr"] = at.trace
    for short, value in (("rq", at.request), ("st", at.stage), ("s", at.step)):
        if value is not None:
            found[short] = value
    found["n"] = str(name)[:200]
    if attributes:
        found["a"] = recorder.plain(attributes)
    if mirror is not None:
        mirror.event(found["n"], attributes, of)
    to.put(recorder.encode(found))


def _in_child() -> None:
    global _numbers
    _numbers = _new_numbers()


os.register_at_fork(after_in_child=_in_child)
