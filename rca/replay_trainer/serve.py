"""A worker behind HTTP: one thread that computes, and beside it the calls that must be answered while it does.

`POST /v1/<method>` takes and gives what `wire` packs. What the engine raises is answered with status 500 and its text, and is in the worker's log with its traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rca import trace_inject as rt
from rca.replay_trainer import wires

log = logging.getLogger("worker")
Method = Callable[[dict[str, Any]], dict[str, Any] | Iterator[dict[str, Any]]]
LEADERS = ("controller", "meta_server")  # of which there is one: no ranks
KEEP_ALIVE_S = 600  # of an idle connection: the caller, not the worker, gives it up, so that no call meets one that is being closed


@dataclass
class Service:
    """What a worker offers: `engine` calls are computed one after the other, `beside` calls are answered at once."""

    role: str
    rank: int
    engine: Mapping[str, Method] = field(default_factory=dict)
    beside: Mapping[str, Method] = field(default_factory=dict)
    routes: list[Route] = field(default_factory=list)
    ended: Callable[[], None] = lambda: None
    state: Callable[[], dict[str, Any]] | None = None  # for the recording of requests: what a call finds, by groups
    version: Callable[[], dict[str, Any]] | None = None  # of those groups that are not looked at again while it is the same
    restore: Callable[[Mapping[str, Any]], None] | None = None  # put another process's state in place of this one's: groups as `state` gives them


def prepare(role: str, rank: int, trace: str | None) -> None:
    """Log and journal."""
    os.environ |= {"RCA_ROLE": role} | ({} if role in LEADERS else {"RCA_RANK": str(rank)})  # for the log lines where tracing is off
    rt.install(trace, role=role, rank=None if role in LEADERS else rank)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    for chatty in ("httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    rt.stamp_logs()


def address_file(run: Path, role: str, rank: int) -> Path:
    return run / "addresses" / f"{role}-{rank}.json"


def publish(run: Path, role: str, rank: int, address: str, port: int) -> None:
    """Say where a worker listens, whole or not at all."""
    path = address_file(run, role, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps({"url": f"http://{address}:{port}", "pid": os.getpid(), "host": socket.gethostname()}))
    aside.replace(path)


def serve(service: Service, run: Path, address: str) -> None:
    """Answer calls until SIGTERM, or until `stop` is called."""
    listener = socket.create_server((address, 0), backlog=128)
    server = _Server(uvicorn.Config(_app(service, lambda: setattr(server, "should_exit", True)), log_config=None, access_log=False, lifespan="off", timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=1))
    with wires.before(run, service.role, service.rank, address, listener.getsockname()[1]) as port:
        publish(run, service.role, service.rank, address, port)
        log.info("%s %d listens on %s:%d, pid %d", service.role, service.rank, address, port, os.getpid())
        server.run(sockets=[listener])
    service.ended()
    log.info("%s %d ends", service.role, service.rank)


class _Server(uvicorn.Server):
    """Ends with exit code 0 when it is asked to: uvicorn's own raises the signal again once it is done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "should_exit", True))
        yield


def _app(service: Service, leave: Callable[[], None]) -> Any:
    pool = ThreadPoolExecutor(1, thread_name_prefix="engine")

    async def health(request: Request) -> Response:
        return JSONResponse({"role": service.role, "rank": service.rank, "pid": os.getpid()})

    async def stop(request: Request) -> Response:
        # What the engine still computes is finished first: a worker that hangs in a collective cannot be stopped kindly.
        await asyncio.get_running_loop().run_in_executor(pool, lambda: None)
        log.info("asked to stop")
        asyncio.get_running_loop().call_later(0.05, leave)
        return JSONResponse({})

    async def call(request: Request) -> Response:
        from rca.replay_trainer import wire  # brings torch, which the MetaServer can do without

        method = request.path_params["method"]
        handler = service.engine.get(method) or service.beside.get(method)
        if handler is None:
            return JSONResponse({"error": f"no such method: {method}"}, 404)
        try:
            values = wire.unpack(await request.body())
        except (ValueError, ClientDisconnect) as error:
            log.error("%s: %s", method, error)
            return JSONResponse({"error": str(error)}, 400)
        run = functools.partial(contextvars.copy_context().run, _run, service, method, handler, values)
        try:
            result = await asyncio.get_running_loop().run_in_executor(pool if method in service.engine else None, run)
        except Exception as error:
            log.exception("%s failed", method)
            return JSONResponse({"error": str(error), "type": type(error).__name__}, 500)
        if isinstance(result, dict):
            return Response(wire.pack(result), media_type="application/octet-stream")
        return StreamingResponse(wire.frames(result), media_type="application/octet-stream")

    app = Starlette(
        routes=[*service.routes, Route("/health", health), Route("/v1/stop", stop, methods=["POST"]), Route("/v1/{method}", call, methods=["POST"])],
    )
    app.add_middleware(rt.TraceMiddleware)
    return app


def _run(service: Service, method: str, handler: Method, values: dict[str, Any]) -> Any:
    with rt.span(method), rt.recorded(method, values, service.state, service.version) as request:
        return request.result(handler(values))
