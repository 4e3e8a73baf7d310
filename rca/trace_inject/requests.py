"""Requests as their worker sees them: what was asked, in which state, and what came of it.

    with rt.recorded("train_batch", {"ids": ids}, state=lambda: {"weights": model.state_dict()}) as request:
        loss = train(ids)
        request.result({"loss": loss})

    @rt.recorded(state=lambda trainer: {"weights": trainer.model.state_dict()})
    def train_batch(self, ids): ...

A line is written before the work begins and another when it is done, so that the one a process died in is known with all that it was given.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from itertools import count
from types import MethodType
from typing import Any

from rca.trace_inject import content, context, guard, recording
from rca.trace_inject.content import Array
from rca.trace_inject.recording import Recording

ERROR_MAX = 20_000  # characters of an error's text
STATES_MAX = 16  # objects whose state is remembered
NAME_MAX = 200
_open: ContextVar[Any] = ContextVar("rca.request", default=None)
_numbers = count(1)
_states: dict[Any, dict[str, tuple[Any, Any]]] = {}  # whose -> group -> its version, and how a line says it


def told(of: Recording, values: Mapping[str, Any], step: int | None, files: list[str]) -> dict[str, Any]:
    """Values as a line says them; their arrays are kept under the digest that it names."""
    plain, arrays = content.split(values)
    value: dict[str, Any] = {"values": plain, "tensors": None, "digests": {}}
    if arrays:
        each = {name: content.digest({name: array}) for name, array in arrays.items()}
        whole = next(iter(each.values())) if len(each) == 1 else content.digest(arrays)
        files.append(whole + recording.TENSORS)  # first: what belongs to an open request is not taken away
        value["tensors"], kept = of.tensors(arrays, step, whole)
        value["digests"] = each
        if not kept:
            value["kept"] = False
    return value


def place(values: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """Where it happens: request id, stage and step of this place of the trace; the step, if nothing else tells it, is what the values say."""
    here = context.here()
    step = here.step
    if step is None and type(values.get("step")) is int:
        step = values["step"]
    return {"rq": here.request, "st": here.stage, "s": step}, step


def error_of(error: BaseException) -> dict[str, str]:
    """How a line says an error."""
    try:
        text = str(error)
    except Exception as another:
        text = f"(its text cannot be made: {type(another).__name__})"
    return {"type": type(error).__qualname__[:NAME_MAX], "text": text[:ERROR_MAX]}


class recorded:
    """One request: `with recorded(method, values, state, version) as request: ...; request.result(value)`; or the decorator of a function or method.

    `state` gives what the request finds by groups: the tensors of one by name (or a function that gives them), or a plain value. `version` says in which version it is, for all
    groups or by group: what has the same version as before is neither asked for nor hashed again. As a decorator both are called with the first argument if they take one.
    """

    __slots__ = ("_id", "_of", "_state", "_step", "_streams", "_token", "_value", "_version", "files", "method", "values")

    def __init__(self, method: Any = None, values: Mapping[str, Any] | None = None, state: Callable[..., Any] | None = None, version: Callable[..., Any] | None = None) -> None:
        self.method, self.values, self._state, self._version = method, values or {}, state, version
        self._of: Recording | None = None
        self._token: Any = None
        self._streams = False
        self._value: Any = None
        self._step: int | None = None
        self._id = ""
        self.files: list[str] = []  # of the store

    def __new__(cls, method: Any = None, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        if callable(method):  # `@recorded` without brackets
            made.__init__(None, *args, **kwargs)
            return made(method)
        return made

    # -- as a context -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> recorded:
        self.begin()
        try:
            self._token = _open.set(self)
        except Exception as error:
            guard.fault("request", error)
        return self

    def __exit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        self.leave()
        if error is not None:
            self.failed(error)
        elif not self._streams:
            self.done()

    @guard.quiet()
    def leave(self) -> None:
        """What follows in this thread or task is no part of the request."""
        token, self._token = self._token, None
        if token is not None:
            try:
                _open.reset(token)
            except ValueError:  # left in another context than entered
                return

    @guard.quiet()
    def begin(self) -> None:
        """Tell that it begins."""
        of = recording.current()
        if of is None:
            return
        now = time.time_ns()
        where, self._step = place(self.values)
        self._id = f"{next(_numbers):x}"
        self._of, of.blobs.open[self] = of, self.files
        args = told(of, self.values, self._step, self.files)
        state, _ = self._look(of)
        random = random_state(of, self._step, self.files)
        of.put({"e": "request", "t": now, "id": self._id, **where, "n": str(self.method)[:NAME_MAX], "args": args, "state": state, "rng": random}, self._step, self._id)

    def result(self, value: Any) -> Any:
        """What is answered: a mapping, one value, or parts that are made while they are sent; gives it."""
        if self._of is not None and isinstance(value, Iterator):
            self._streams = True  # the request ends when they do
            return self.parts(value)
        self._value = value
        return value

    @guard.quiet()
    def done(self) -> None:
        """Tell that it is done."""
        of = self._of
        if of is None:
            return
        now, value = time.time_ns(), self._value
        result = None if value is None else told(of, value if isinstance(value, Mapping) else {"value": value}, self._step, self.files)
        self._ended(of, now, {"ok": True, "result": result})

    @guard.quiet()
    def failed(self, error: BaseException) -> None:
        """Tell what went wrong."""
        if self._of is not None:
            self._ended(self._of, time.time_ns(), {"ok": False, "error": error_of(error)})

    def _ended(self, of: Recording, now: int, said: dict[str, Any]) -> None:
        try:
            _, changed = self._look(of)
            self._of = None
            of.put({"e": "outcome", "t": now, "id": self._id, **said, "after": changed}, self._step)
        finally:
            of.lines.open.pop(self._id, None)
            of.blobs.open.pop(self, None)

    @guard.quiet(lambda: ({}, {}))
    def _look(self, of: Recording) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state by groups, and what of it has changed since it was looked at last."""
        if self._state is None:
            return {}, {}
        known = _states.get(self._state)
        if known is None:
            known = _states[self._state] = {}
            while len(_states) > STATES_MAX:
                _states.pop(next(iter(_states)), None)
        try:
            version = self._version() if self._version is not None else None
            groups = dict(self._state().items())
        except Exception as error:  # of the trainer's own functions: no fault of ours, three of which would end the recording
            return {"state": _lost(error)}, {}
        state, changed = {}, {}
        for name, value in groups.items():
            is_plain = not callable(value) and not isinstance(value, Mapping)
            mark = version.get(name) if isinstance(version, dict) else version
            was = known.get(name)
            if is_plain:
                said = content.split({name: value})[0].get(name)
            elif was is not None and mark is not None and was[0] == mark and of.blobs.has(f"{was[1]}{recording.TENSORS}", self._step):
                said = was[1]
            else:
                try:
                    arrays = content.arrays(value() if callable(value) else value, copied=False)
                except Exception as error:  # as of an optimizer's `state_dict()`, which is nested
                    state[name] = _lost(error)
                    continue
                said, _ = of.tensors(arrays, self._step)
            if not is_plain:
                self.files.append(f"{said}{recording.TENSORS}")
            if was is None or was[1] != said:
                changed[name] = said
            known[name] = (mark, said)
            state[name] = said
        return state, changed

    # -- answers that come in parts -----------------------------------------------------------------------------------------

    def parts(self, given: Iterable[Any]) -> Iterator[Any]:
        """The parts of an answer as they come; their end is the end of the request. One that is not asked for to its end has no outcome."""
        taken: list[Any] = []
        try:
            for part in given:
                taken.append(part)
                yield part
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failed(error)
            raise
        self.result(joined(taken))
        self.done()

    # -- as a decorator -----------------------------------------------------------------------------------------------------

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, each call of which is recorded."""
        return _decorated(function, self.method or getattr(function, "__qualname__", "call"), self._state, self._version)


def _lost(error: Exception) -> dict[str, str]:
    """What stands for a group that cannot be kept. Raises what a signal handler of the trainer raised meanwhile."""
    if guard.passes(error):
        raise error
    return {content.LOST: f"{type(error).__name__}: {error}"[:NAME_MAX]}


def joined(parts: list[Any]) -> dict[str, Any]:
    """The parts of an answer as one: tensors behind each other where they fit, and `parts`, their number."""
    torch = sys.modules.get("torch")
    whole: dict[str, Any] = {"parts": len(parts)}
    if parts and all(isinstance(part, Mapping) and part.keys() == parts[0].keys() for part in parts):
        for name in parts[0]:
            each = [part[name] for part in parts]
            if torch is not None and all(isinstance(value, torch.Tensor) for value in each):
                try:
                    whole[name] = torch.cat(each)
                    continue
                except Exception:
                    pass
            whole[name] = each[0] if len(each) == 1 else each
        return whole
    return whole | {"value": parts}


def random_state(of: Recording, step: int | None, files: list[str]) -> dict[str, str]:
    """The digests of the states of the generators that everybody in this process shares. Of GPUs there is none."""
    found = {}
    for name, (raw, make) in _generators().items():
        was = of.last.get(name)
        if was is None or was[0] != raw or not of.blobs.has(was[1] + recording.TENSORS, step):
            was = of.last[name] = (raw, of.tensors(make(raw), step)[0])
        found[name] = was[1]
        files.append(was[1] + recording.TENSORS)
    return found


def _generators() -> dict[str, tuple[Any, Callable[[Any], dict[str, Array]]]]:
    """Each generator's state, and how to make arrays of it; both are cheap to compare with what they were."""
    import random

    found: dict[str, tuple[Any, Callable[[Any], dict[str, Array]]]] = {"python": (random.getstate(), _of_python)}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        found["torch"] = (content.array(torch.get_rng_state()), lambda state: {"state": state})
    return found


def _of_python(state: Any) -> dict[str, Array]:
    from array import array

    _, words, gauss = state
    normal = array("d", [] if gauss is None else [gauss]).tobytes()
    return {"words": Array("int64", (len(words),), array("q", words).tobytes()), "gauss": Array("float64", (len(normal) // 8,), normal)}


@guard.quiet()
def recorded_file(path: str | os.PathLike[str], data: Any) -> None:
    """Tell that the request of this place has read a file, and keep its bytes as they were."""
    of = recording.current()
    if of is None:
        return
    request = _open.get()
    ours = isinstance(request, recorded) and request._of is of
    step = request._step if ours else context.here().step
    name, kept = of.bytes(data, step)
    if ours:
        request.files.append(name + recording.BYTES)
    record = {"e": "file", "t": time.time_ns(), "id": request._id if ours else None, "path": os.fspath(path), "digest": name, "size": len(data)}
    of.put(record if kept else {**record, "kept": False}, step)


# -- decorators -----------------------------------------------------------------------------------------------------------------


def _decorated(function: Callable[..., Any], method: str, state: Callable[..., Any] | None, version: Callable[..., Any] | None) -> Callable[..., Any]:
    signature = _signature(function)

    def request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> recorded:
        values = _named(signature, args, kwargs)
        return recorded(method, values, _bound(state, args), _bound(version, args))

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            if recording.current() is None:
                return await function(*args, **kwargs)
            with request(args, kwargs) as made:
                return made.result(await function(*args, **kwargs))

        return later
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def parts_later(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            made = request(args, kwargs)
            made.begin()
            taken = []
            try:
                async for part in function(*args, **kwargs):
                    taken.append(part)
                    yield part
            except GeneratorExit:
                raise
            except BaseException as error:
                made.failed(error)
                raise
            made.result(joined(taken))
            made.done()

        return parts_later
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def parts(*args: Any, **kwargs: Any) -> Iterator[Any]:
            made = request(args, kwargs)
            made.begin()
            yield from made.parts(function(*args, **kwargs))

        return parts

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if recording.current() is None:
            return function(*args, **kwargs)
        with request(args, kwargs) as made:
            return made.result(function(*args, **kwargs))

    return wrapped


@guard.quiet()
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@guard.quiet(dict)
def _named(signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without the object whose method it is."""
    if signature is None:
        return {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    try:
        found = dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:  # the call will say so itself
        return {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    first = next(iter(signature.parameters), "")
    if first in ("self", "cls"):
        found.pop(first, None)
    return found


def _bound(function: Callable[..., Any] | None, args: tuple[Any, ...]) -> Callable[[], Any] | None:
    """A function of a decorator's user, for the object of this call."""
    if function is None or not args or not _takes_one(function):
        return function
    return MethodType(function, args[0])


@functools.lru_cache(maxsize=256)
def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
