"""The MetaServer: keeps the weights of the newest versions in memory between train and rollout. PUT `/v1/put_binary?key=`, GET `/v1/get_binary?key=`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rca import trace_inject as rt
from rca.replay_trainer.config import Config
from rca.replay_trainer.serve import Service

log = logging.getLogger("meta_server")
WAIT_MAX_S = 30.0
KEY = re.compile(r"[A-Za-z0-9_.-]{1,60}/[0-9]{1,12}")


def service(config: Config, run: Path, rank: int, address: str) -> Service:
    """The routes of the MetaServer. Keys end in a version, `weights/12`."""
    blobs: dict[str, bytes] = {}
    arrived = asyncio.Condition()

    async def put(request: Request) -> Response:
        key = _key(request)
        blobs[key] = await request.body()
        if keep := config.meta_server_keeps:
            for old in sorted((k for k in blobs), key=_version, reverse=True)[keep:]:
                del blobs[old]
        held = sum(map(len, blobs.values()))
        log.info("put %s, %.1f MB; %d blobs, %.1f MB in memory", key, len(blobs[key]) / 1e6, len(blobs), held / 1e6)
        rt.event("meta_server.memory", blobs=len(blobs), bytes=held)
        async with arrived:
            arrived.notify_all()
        return JSONResponse({"bytes": held})

    async def get(request: Request) -> Response:
        key = _key(request)
        try:
            wait_s = float(request.query_params.get("wait_s", 0))
            wait_s = min(wait_s, WAIT_MAX_S) if wait_s > 0 else 0.0  # `nan` is not
        except ValueError:
            raise HTTPException(400, "wait_s must be seconds") from None
        if key not in blobs:
            async with arrived:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(arrived.wait_for(lambda: key in blobs), wait_s)
        blob = blobs.get(key)
        return JSONResponse({"error": f"no such key: {key}"}, 404) if blob is None else Response(blob, media_type="application/octet-stream")

    routes = [Route("/v1/put_binary", put, methods=["PUT"]), Route("/v1/get_binary", get, methods=["GET"])]
    return Service("meta_server", rank, routes=routes)


def _key(request: Request) -> str:
    key = request.query_params.get("key", "")
    if not KEY.fullmatch(key):
        raise HTTPException(400, "a key ends in a version, as `weights/12`")
    return key


def _version(key: str) -> int:
    return int(key.rpartition("/")[2])
