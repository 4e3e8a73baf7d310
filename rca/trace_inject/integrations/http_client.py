"""Clients over HTTP: one span for each request that `requests` or `httpx` sends, on disk before the first byte goes out, so that a call that hangs is seen.

    trace_requests()            # every session from here on; or trace_requests(session) for one
    trace_httpx()               # every client, synchronous or not; or trace_httpx(client)

The span tells the peer, the path without its query, the status and how often the same request was sent before; its place travels in the headers.
The body of a streamed answer is a span of its own, from the first byte asked for to the last.

Attribute names: OpenTelemetry semantic conventions for HTTP.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rca.trace_inject import context, guard
from rca.trace_inject.integrations.calls import CLIENT, Call, Resends

PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_resends = Resends()


def trace_requests(session: Any = None, peers: Mapping[str, str] | None = None) -> bool:
    """Record what a `requests.Session` sends; without one, what all of them send, also by `requests.get`. Idempotent.

    `peers` says who listens where, `{"10.0.0.7:8000": "rollout/3"}`, for callees that leave no trace of their own. Gives whether it is recorded now.
    """
    return _trace(session, lambda: _import("requests").Session, peers)


def trace_httpx(client: Any = None, peers: Mapping[str, str] | None = None) -> bool:
    """Record what an `httpx.Client` or `httpx.AsyncClient` sends; without one, what all of them send. See `trace_requests`."""
    if client is not None:
        return _trace(client, None, peers)
    return all([_trace(None, lambda: _import("httpx").Client, peers), _trace(None, lambda: _import("httpx").AsyncClient, peers)])


def _import(name: str) -> Any:
    from importlib import import_module

    return import_module(name)


@guard.quiet(False)
def _trace(one: Any, all_of_them: Any, peers: Mapping[str, str] | None) -> bool:
    """Put a recording `send` before that of an object or a class."""
    target = one if one is not None else all_of_them()
    inner = target.send
    if getattr(inner, "__rca__", False):
        return True
    names = dict(peers or {})
    wrapped = _of_coroutine(inner, names, one is not None) if _is_coroutine(inner) else _of_function(inner, names, one is not None)
    wrapped.__rca__ = True
    target.send = wrapped
    return True


def _is_coroutine(function: Any) -> bool:
    import inspect

    return inspect.iscoroutinefunction(function)


def _of_function(inner: Any, peers: dict[str, str], bound: bool) -> Any:
    @functools.wraps(inner)
    def send(*args: Any, **kwargs: Any) -> Any:
        call, key = _begin(args[not bound] if len(args) > (not bound) else kwargs.get("request"), peers)
        if call is None:
            return inner(*args, **kwargs)
        try:
            with call:
                answer = inner(*args, **kwargs)
                _answered(call, answer)
        finally:
            _resends.ended(key, bool(call.told) and "status" not in call.told)
        if kwargs.get("stream"):
            _watch_body(answer, call)
        return answer

    return send


def _of_coroutine(inner: Any, peers: dict[str, str], bound: bool) -> Any:
    @functools.wraps(inner)
    async def send(*args: Any, **kwargs: Any) -> Any:
        call, key = _begin(args[not bound] if len(args) > (not bound) else kwargs.get("request"), peers)
        if call is None:
            return await inner(*args, **kwargs)
        try:
            with call:
                answer = await inner(*args, **kwargs)
                _answered(call, answer)
        finally:
            _resends.ended(key, bool(call.told) and "status" not in call.told)
        if kwargs.get("stream"):
            _watch_body(answer, call)
        return answer

    return send


def _begin(request: Any, peers: dict[str, str]) -> tuple[Call | None, tuple]:
    """The span of a request, and by what a repetition of it is known."""
    try:
        url = urlsplit(str(request.url))
        port = url.port or PORTS.get(url.scheme)
        key = (request.method, url.hostname, port, url.path, context.span_id())
        said: dict[str, Any] = {"kind": CLIENT, "http.request.method": request.method, "server.address": url.hostname, "server.port": port, "url.path": url.path or "/"}
        if resent := _resends.count(key):
            said["http.request.resend_count"] = resent
        if peer := peers.get(f"{url.hostname}:{port}"):
            said["rca.peer"] = peer
        return _Request(f"{request.method} {url.path or '/'}", said, request), key
    except (AttributeError, ValueError):  # no request, or one to nowhere: the library's to refuse
        return None, ()
    except Exception as error:
        guard.fault("http", error)
        return None, ()


class _Request(Call):
    """The call, which puts its place into the headers of its request when it begins."""

    __slots__ = ("request",)

    def __init__(self, name: str, attributes: dict[str, Any], request: Any) -> None:
        super().__init__(name, attributes)
        self.request = request

    def __enter__(self) -> _Request:
        super().__enter__()
        try:
            if self.recorded:
                context.inject(self.request.headers)
        except Exception as error:
            guard.fault("http headers", error)
        return self


@guard.quiet()
def _answered(call: Call, answer: Any) -> None:
    """What the answer says: from 400 on the call failed."""
    status = answer.status_code
    call.told["http.response.status_code"] = status
    if status >= 400:
        call.failed(str(status))


@guard.quiet()
def _watch_body(answer: Any, call: Call) -> None:
    """A span from the first piece asked for to the last: a stream that stops in the middle, or never goes on."""
    about = {k: v for k, v in (call.span.attributes or {}).items() if k != "http.request.resend_count"}
    name = f"{about.get('http.request.method')} {about.get('url.path')} body"
    for method in ("iter_content", "iter_raw", "aiter_raw"):
        inner = getattr(answer, method, None)
        if inner is not None:
            setattr(answer, method, (_later_pieces if method == "aiter_raw" else _pieces)(inner, name, about))


def _pieces(inner: Any, name: str, about: dict[str, Any]) -> Any:
    @functools.wraps(inner)
    def pieces(*args: Any, **kwargs: Any) -> Any:
        def each() -> Any:
            call = Call(name, about)
            call.__enter__()
            call.leave()
            try:
                yield from inner(*args, **kwargs)
            except BaseException as error:
                call.finish(error)
                raise
            call.finish()

        return each()

    return pieces


def _later_pieces(inner: Any, name: str, about: dict[str, Any]) -> Any:
    @functools.wraps(inner)
    async def pieces(*args: Any, **kwargs: Any) -> Any:
        call = Call(name, about)
        call.__enter__()
        call.leave()
        try:
            async for piece in inner(*args, **kwargs):
                yield piece
        except BaseException as error:
            call.finish(error)
            raise
        call.finish()

    return pieces
