"""Ray actors and tasks: a span at the caller, one in the worker, and one while the caller waits for the result.

    @ray.remote
    @traced_actor(role="rollout")                 # beneath `ray.remote`; `rank` of the constructor is this actor's rank
    class Rollout:
        def __init__(self, rank): ...
        def generate(self, prompts): ...

    trace_ray()                                   # in the driver: what `ray.get` and `ray.wait` wait for
    worker = traced_handle(Rollout.remote(rank=0), "rollout/0")
    ray.get(worker.generate.remote(prompts))

The caller's place travels as one more keyword argument, which the decorated side takes off again. Only public parts of Ray are used. Workers on other
machines learn where to record from `ray.init(runtime_env={"env_vars": ray_environment()})`.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from rca.trace_inject import context, guard, recorder, spans
from rca.trace_inject.integrations.calls import CLIENT, PRODUCER, SERVER, Call

CARRIER = "_rca"
RESULTS_MAX = 10_000
_results: OrderedDict[str, tuple[str, str | None]] = OrderedDict()  # object id -> (what was called, on whom)


def ray_environment() -> dict[str, str]:
    """What workers need to record into the same folder name, within this trace: for `runtime_env={"env_vars": ...}`."""
    found = {k: v for k, v in context.environment({}).items() if k in context.ENVIRONMENT.values()}
    return found | {k: v for k, v in os.environ.items() if k in (recorder.FOLDER, recorder.SIZE, recorder.OFF, "RCA_RUN")}


# -- the worker's side ----------------------------------------------------------------------------------------------------


def traced_actor(cls: Any = None, *, role: str | None = None, rank: str = "rank") -> Any:
    """A class of actors whose public methods, and whose start, are spans. `rank` names the argument of the constructor that is the actor's number."""
    if cls is None:
        return lambda c: traced_actor(c, role=role, rank=rank)
    try:
        name = role or cls.__name__.lower()
        for attribute, function in list(vars(cls).items()):
            if inspect.isfunction(function) and (not attribute.startswith("_") or attribute == "__init__"):
                start = functools.partial(_introduce, name, rank, inspect.signature(function)) if attribute == "__init__" else None
                setattr(cls, attribute, _callee(function, f"{cls.__name__}.{attribute}", start))
        if "__init__" not in vars(cls):  # the constructor of a base, or none
            _give_constructor(cls, name, rank)
    except Exception as error:
        guard.fault("traced_actor", error)
    return cls


def _give_constructor(cls: Any, role: str, rank: str) -> None:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super(cls, self).__init__(*args, **kwargs)

    cls.__init__ = _callee(__init__, f"{cls.__name__}.__init__", functools.partial(_introduce, role, rank, inspect.signature(__init__)))


def traced_task(function: Any) -> Any:
    """A remote function that is a span in its worker: `@ray.remote` above `@traced_task`."""
    try:
        return _callee(function, function.__qualname__.rpartition(".")[2])
    except Exception as error:
        guard.fault("traced_task", error)
        return function


@guard.quiet()
def _introduce(role: str, rank: str, signature: inspect.Signature, args: tuple, kwargs: dict[str, Any]) -> None:
    """In a new actor: its role and number, for all that its process records."""
    given = signature.bind_partial(*args, **kwargs).arguments
    value = given.get(rank, given.get("kwargs", {}).get(rank))
    recorder.start(None, {"role": role, **({"rank": value} if type(value) is int else {})}) if os.environ.get(recorder.FOLDER) else None


def _callee(function: Any, name: str, start: Callable[[tuple, dict[str, Any]], None] | None = None) -> Any:
    """The function within a span of a server, in the place that the caller sent."""

    def begin(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Call]:
        carrier = kwargs.pop(CARRIER, None)
        if start is not None:
            start(args, kwargs)
        return context.extract(carrier if isinstance(carrier, dict) else {}), Call(name, {"kind": SERVER, "rpc.system": "ray", "rpc.method": name})

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            at, call = begin(args, kwargs)
            with at, call:
                return await function(*args, **kwargs)

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            at, call = begin(args, kwargs)
            with at, call:
                async for value in function(*args, **kwargs):
                    yield value

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            at, call = begin(args, kwargs)
            with at, call:
                return (yield from function(*args, **kwargs))

    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            at, call = begin(args, kwargs)
            with at, call:
                return function(*args, **kwargs)

    wrapped.__signature__ = _with_carrier(inspect.signature(function))  # type: ignore[attr-defined]
    del wrapped.__wrapped__  # Ray would look through to the signature beneath
    return wrapped


def _with_carrier(signature: inspect.Signature) -> inspect.Signature:
    """The signature with the keyword by which the caller's place comes: Ray checks arguments against it."""
    known = list(signature.parameters.values())
    if CARRIER in signature.parameters:
        return signature
    rest = [p for p in known if p.kind is p.VAR_KEYWORD]
    mine = inspect.Parameter(CARRIER, inspect.Parameter.KEYWORD_ONLY, default=None)
    return signature.replace(parameters=[*(p for p in known if p.kind is not p.VAR_KEYWORD), mine, *rest])


# -- the caller's side ----------------------------------------------------------------------------------------------------


class traced_handle:
    """An actor's handle, or a remote function, whose calls are spans and carry this place to the other side, which must be decorated.

    `peer` is the worker's name, as in `rollout/3`. Where Ray wants the handle itself (as an argument of another call) give `.handle`.
    """

    def __init__(self, handle: Any, peer: str | None = None, _name: str | None = None) -> None:
        self.handle, self.peer, self._name = handle, peer, _name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.handle, name)
        if name.startswith("_") or not callable(getattr(found, "remote", None)):
            return found
        return traced_handle(found, self.peer, name)

    def options(self, **options: Any) -> traced_handle:
        """The same with other options."""
        return traced_handle(self.handle.options(**options), self.peer, self._name)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call it: a short span for the sending; `ray.get` waits in one of its own."""
        name = self._name or getattr(self.handle, "__name__", None) or "task"
        said = {"kind": PRODUCER, "rpc.system": "ray", "rpc.method": name, "rca.peer": self.peer}
        with Call(f"{name} sent", said):
            carrier = dict(context.inject({}))
            result = self.handle.remote(*args, **{**kwargs, CARRIER: carrier})
            _remember(result, name, self.peer)
        return result

    def __reduce__(self) -> Any:
        return traced_handle, (self.handle, self.peer, self._name)


@guard.quiet()
def _remember(result: Any, name: str, peer: str | None) -> None:
    for ref in result if isinstance(result, list) else [result]:
        if callable(getattr(ref, "hex", None)):
            _results[ref.hex()] = (name, peer)
            if len(_results) > RESULTS_MAX:
                _results.popitem(last=False)


@guard.quiet(False)
def trace_ray() -> bool:
    """Record what `ray.get` and `ray.wait` wait for, in this process from here on. Idempotent; what was imported from ray by name before is not seen."""
    import ray

    for name in ("get", "wait"):
        inner = getattr(ray, name)
        if not getattr(inner, "__rca__", False):
            setattr(ray, name, _waiting(inner, name))
    return True


def _waiting(inner: Any, name: str) -> Any:
    @functools.wraps(inner)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with _wait_span(name, args[0] if args else kwargs.get("object_refs", kwargs.get("ray_waitables"))):
            return inner(*args, **kwargs)

    wrapped.__rca__ = True  # type: ignore[attr-defined]
    return wrapped


def _wait_span(name: str, refs: Any) -> spans.Span:
    """A span that says for whom is waited, where that is one."""
    said: dict[str, Any] = {"kind": CLIENT, "rpc.system": "ray"}
    what = f"ray.{name}"
    try:
        known = [_results[key] for ref in (refs if isinstance(refs, list | tuple) else [refs]) if callable(getattr(ref, "hex", None)) and (key := ref.hex()) in _results]
        names, peers = sorted({n for n, _ in known}), sorted({p for _, p in known if p})
        if len(names) == 1:
            what = f"ray.{name} {names[0]}"
            said["rpc.method"] = names[0]
        if len(peers) == 1:
            said["rca.peer"] = peers[0]
        elif peers:
            said |= {"kind": 1, "rca.callees": ", ".join(peers)[:300]}
    except Exception as error:
        guard.fault("ray.get", error)
    return spans.Span(what, said)
