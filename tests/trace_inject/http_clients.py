"""Run by test_integrations_http.py in an environment with the real libraries: what happens between clients and servers, whatever goes wrong there."""

import asyncio
import contextlib
import pickle
import socket
import sys
import threading
import time

import httpx
import requests
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import RedirectResponse, StreamingResponse

from rca import trace_inject as rt

rt.install(role="controller")
app = FastAPI()
app.add_middleware(rt.TraceMiddleware)
calls = []


@app.get("/item/{number}")
def item(number: int):
    with rt.span("look up"):
        return {"number": number}


@app.get("/moved")
def moved():
    return RedirectResponse("/item/7")


@app.get("/flaky")
def flaky():
    calls.append(1)
    if len(calls) < 3:
        raise HTTPException(503, "not yet")
    return {"ok": True}


@app.get("/raises")
def raises():
    raise KeyError("labels")


@app.get("/stream")
async def stream(pieces: int = 3, pause: float = 0.0, broken: bool = False):
    async def each():
        for number in range(pieces):
            yield f"piece {number}\n"
            await asyncio.sleep(pause)
        if broken:
            raise OSError("the generator broke")

    return StreamingResponse(each())


@app.get("/slow")
async def slow():
    await asyncio.sleep(30)


with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical"))
threading.Thread(target=server.run, daemon=True).start()
while not server.started:
    time.sleep(0.02)
url = f"http://127.0.0.1:{port}"


def attempt(name, function, *errors):
    with rt.stage(name):
        try:
            return function()
        except errors as error:
            return error


session = requests.Session()
assert rt.trace_requests(session, peers={f"127.0.0.1:{port}": "rollout/3"}) and rt.trace_requests(session)
attempt("plain", lambda: session.get(f"{url}/item/5?token=secret").json())
pickle.loads(pickle.dumps(session))
assert rt.trace_requests() and rt.trace_httpx() and rt.trace_httpx()
attempt("redirect", lambda: requests.get(f"{url}/moved").json())


def until_it_works():
    while requests.get(f"{url}/flaky").status_code != 200:
        pass


attempt("retries", until_it_works)
attempt("raises", lambda: httpx.get(f"{url}/raises"))
attempt("refused", lambda: requests.get("http://127.0.0.1:9/nobody", timeout=2), requests.ConnectionError)
attempt("timeout", lambda: httpx.get(f"{url}/slow", timeout=0.3), httpx.TimeoutException)
attempt("no url", lambda: requests.get("nonsense"), requests.exceptions.MissingSchema)
attempt("not a request", lambda: requests.Session().send("nonsense"), ValueError, AttributeError)


def streamed(client_stream):
    with client_stream as answer:
        return list(answer.iter_lines())


assert attempt("stream requests", lambda: streamed(requests.get(f"{url}/stream", stream=True))) == [b"piece 0", b"piece 1", b"piece 2"]
assert attempt("stream httpx", lambda: streamed(httpx.stream("GET", f"{url}/stream"))) == ["piece 0", "piece 1", "piece 2"]
attempt("stream breaks", lambda: streamed(requests.get(f"{url}/stream?broken=1", stream=True)), requests.exceptions.ChunkedEncodingError)


def leaves_early():
    with httpx.stream("GET", f"{url}/stream?pieces=200&pause=0.05") as answer:
        next(answer.iter_lines())


attempt("leaves early", leaves_early)


async def tasks():
    async with httpx.AsyncClient() as client:
        answers = await asyncio.gather(*(client.get(f"{url}/item/{n}") for n in range(4)))
        async with client.stream("GET", f"{url}/stream") as answer:
            lines = [line async for line in answer.aiter_lines()]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.get(f"{url}/slow"), 0.3)
        return [a.json()["number"] for a in answers], len(lines)


assert attempt("tasks", lambda: asyncio.run(tasks())) == ([0, 1, 2, 3], 3)
time.sleep(0.5)  # the server sees who has left
print(rt.guard.faults, file=sys.stderr)
server.should_exit = True
