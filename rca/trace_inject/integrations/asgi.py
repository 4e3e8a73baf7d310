"""Servers behind ASGI (FastAPI, Starlette, any): one span for each request that arrives, within the trace of its caller.

    app.add_middleware(TraceMiddleware)          # FastAPI, Starlette
    app = TraceMiddleware(app)                   # any other

The span begins before the handler and ends with the last byte of the answer, so that a server that dies or hangs in a handler, and a stream that breaks
off, are seen. It tells method, path, route, status, and a client that went away before its answer was complete.

Sources: https://asgi.readthedocs.io/en/latest/specs/www.html; OpenTelemetry semantic conventions for HTTP.
"""

from __future__ import annotations

from typing import Any

from rca.trace_inject import context, guard
from rca.trace_inject.integrations.calls import SERVER, Call


class TraceMiddleware:
    """An ASGI application around another."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        call = _begin(scope)
        if call is None:
            await self.app(scope, receive, send)
            return
        answer = _Answer(call, receive, send)
        with context.extract(_headers(scope)), call:
            try:
                await self.app(scope, answer.receive, answer.send)
            finally:
                answer.settle(scope)


class _Answer:
    """What goes to and fro while one request is handled."""

    def __init__(self, call: Call, receive: Any, send: Any) -> None:
        self._call, self._receive, self._send = call, receive, send
        self.whole = self.gone = False

    async def receive(self) -> Any:
        """The next message of the client."""
        message = await self._receive()
        if message.get("type") in ("http.disconnect", "websocket.disconnect"):
            self.gone = True
        return message

    async def send(self, message: Any) -> None:
        """The next message to the client."""
        kind = message.get("type")
        if kind == "http.response.start":
            self._call.told["http.response.status_code"] = message.get("status")
        await self._send(message)
        if kind in ("websocket.close", "websocket.accept") or (kind == "http.response.body" and not message.get("more_body")):
            self.whole = True

    @guard.quiet()
    def settle(self, scope: Any) -> None:
        """How it ended, once the application has returned or raised."""
        route = getattr(scope.get("route"), "path", None)
        if isinstance(route, str):
            self._call.told["http.route"] = route
        status = self._call.told.get("http.response.status_code")
        if not self.whole and self.gone:
            self._call.failed("client_disconnected", "the client disconnected before its answer was complete")
        elif not self.whole and status is not None:
            self._call.failed("incomplete", "the answer was not completed")
        elif isinstance(status, int) and status >= 500:
            self._call.failed(str(status))


@guard.quiet()
def _begin(scope: Any) -> Call | None:
    if scope["type"] not in ("http", "websocket"):
        return None
    method = scope.get("method") or "WEBSOCKET"
    path = (scope.get("root_path") or "") + scope["path"] if not scope["path"].startswith(scope.get("root_path") or "") else scope["path"]
    said: dict[str, Any] = {"kind": SERVER, "http.request.method": method, "url.path": path}
    server, client = scope.get("server"), scope.get("client")
    if server and server[1]:
        said["rca.port"] = server[1]
    if client:
        said["client.address"] = client[0]
    return Call(f"{method} {path}", said)


def _headers(scope: Any) -> dict[str, str]:
    try:
        return {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k.lower() in (b"traceparent", b"baggage")}
    except Exception as error:
        guard.fault("asgi headers", error)
        return {}
