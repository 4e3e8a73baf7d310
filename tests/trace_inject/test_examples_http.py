"""The controller and its HTTP workers with real requests, httpx, FastAPI and uvicorn: run, broken for real, and explained from what is left."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import venvs
from trace_inject.jobs import Job

pytestmark = pytest.mark.real
MAIN = venvs.ROOT / "examples" / "http_workers" / "main.py"
Change = Callable[[str, bytes], bytes | None]


@pytest.fixture(scope="module")
def python() -> Path:
    return venvs.python_with("fastapi", "uvicorn", "requests", "httpx")


@contextlib.contextmanager
def between(url: str, answer: Change = lambda _, body: body, request: Change = lambda _, body: body) -> Iterator[str]:
    """Something between client and server that changes bodies on their way; where `request` gives None, it answers itself and passes nothing on."""
    host, port = re.fullmatch(r"http://(.+):(\d+)", url).groups()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = request(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            if sent is None:
                status, kind, body = 200, "application/json", b'{"ok":true}'
            else:
                onward = http.client.HTTPConnection(host, int(port), timeout=30)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("content-length", "host")}
                onward.request(self.command, self.path, sent, headers)
                reply = onward.getresponse()
                status, kind, body = reply.status, reply.headers.get("Content-Type", ""), answer(self.path, reply.read())
                onward.close()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_healthy(python: Path, tmp_path: Path) -> None:
    """Every request has both halves in one trace, under the names of the field, and nothing is found."""
    with Job([python, MAIN], tmp_path) as job:
        assert job.ended() == 0, job.said()
    assert job.faults() == []
    calls = {r["id"]: r for head, r in job.records("start") if head["role"] == "controller" and (r.get("a") or {}).get("kind") == 3}
    served = [(head, r) for head, r in job.records("start") if (r.get("a") or {}).get("kind") == 2 and r["n"] != "GET /health"]
    assert len(served) == len(calls) == 3 * 6
    for head, record in served:
        call = calls[record["p"]]
        assert (call["tr"], call.get("rq"), call.get("s"), call["n"]) == (record["tr"], record.get("rq"), record.get("s"), record["n"])
        assert call["a"]["server.port"] == record["a"]["rca.port"] and call["a"]["url.path"] == record["a"]["url.path"]
        assert (head["role"] == "train") == (call["n"] == "POST /train" or head["role"] != "rollout")
    ends = [r["a"] for _, r in job.records("end") if "a" in r]
    assert sum(a.get("http.response.status_code") == 200 for a in ends) >= 36 and {a.get("http.route") for a in ends} >= {"/generate", "/train", "/event"}
    assert job.verdict().verdict == "healthy", job.verdict()


def test_a_server_killed_in_a_request(python: Path, tmp_path: Path) -> None:
    """Its own open span and the caller's broken connection: that worker died."""
    with Job([python, MAIN, "--steps", "50"], tmp_path) as job:
        pid, _ = job.wait_for("rollout", 1, "start", "POST /generate", step=2)
        os.kill(pid, signal.SIGKILL)
        assert job.ended() != 0
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.actor_died"), found
    assert (found.entity["role"], found.entity["pid"]) == ("rollout", pid), found


def test_a_trainer_killed_in_a_request(python: Path, tmp_path: Path) -> None:
    """The same seen by `requests`."""
    with Job([python, MAIN, "--steps", "50"], tmp_path) as job:
        pid, _ = job.wait_for("train", 0, "start", "POST /train", step=2)
        os.kill(pid, signal.SIGKILL)
        assert job.ended() != 0
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.actor_died"), found
    assert (found.entity["role"], found.entity["rank"], found.entity["pid"]) == ("train", 0, pid), found


def test_a_server_killed_between_requests(python: Path, tmp_path: Path) -> None:
    """Nothing of it is open, and the next request finds nobody at its port."""
    with Job([python, MAIN, "--steps", "50", "--timeout", "4"], tmp_path) as job:
        pid, _ = job.wait_for("rollout", 0, "ack", "rollout_done", step=1)
        os.kill(pid, signal.SIGKILL)
        assert job.ended() != 0
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.actor_died"), found
    assert (found.entity["role"], found.entity["pid"]) == ("rollout", pid), found


def test_a_server_stopped_in_a_request(python: Path, tmp_path: Path) -> None:
    """It neither answers nor ends: the call times out, and whom it went to is known by the span that began there."""
    with Job([python, MAIN, "--steps", "50", "--timeout", "2"], tmp_path) as job:
        pid, _ = job.wait_for("rollout", 1, "start", "POST /generate", step=2)
        os.kill(pid, signal.SIGSTOP)
        assert job.ended() != 0
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.rpc"), found
    assert (found.entity["role"], found.entity["pid"]) == ("rollout", pid), found


def test_a_call_that_hangs(python: Path, tmp_path: Path) -> None:
    """Nobody has given up yet: both halves of the call are on disk without an end, and nothing is claimed."""
    with Job([python, MAIN, "--steps", "50", "--timeout", "300"], tmp_path) as job:
        pid, _ = job.wait_for("rollout", 1, "start", "POST /generate", step=2)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            job.ended(2)
    ended = {record["id"] for _, record in job.records("end")}
    left = [(head["role"], head.get("rank"), record["n"]) for head, record in job.records("start") if record["id"] not in ended and record["n"].startswith("POST")]
    assert ("controller", None, "POST /generate") in left and ("rollout", 1, "POST /generate") in left
    found = job.verdict()
    assert found.verdict == "inconclusive" or found.cause == "coord.rpc", found


class Workers:
    """Three workers without their controller, so that something can stand between."""

    def __init__(self, python: Path, folder: Path, timeout: str = "10") -> None:
        import socket

        self.urls, self.jobs = [], []
        for role, rank in (("rollout", 0), ("rollout", 1), ("train", 0)):
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                port = s.getsockname()[1]
            self.jobs.append(Job([python, MAIN.with_name("worker.py"), role, rank, port, timeout], folder / f"{role}-{rank}", RCA_TRACE_DIR=str(folder / "trace")))
            self.urls.append(f"http://127.0.0.1:{port}")

    def __enter__(self) -> list[str]:
        return self.urls

    def __exit__(self, *error: object) -> None:
        for job in self.jobs:
            job.process.terminate()
            job.process.wait(20)
            job.__exit__()


def test_a_dropped_event(python: Path, tmp_path: Path) -> None:
    """Something on the way says yes to an event and drops it: the receiver never confirms, and waits."""
    drop = lambda path, body: None if path.startswith("/event") and b'"step":1' in body.replace(b" ", b"") else body  # noqa: E731
    with Workers(python, tmp_path, "2") as urls, between(urls[2], request=drop) as train, Job([python, MAIN, "--workers", *urls[:2], train], tmp_path) as job:
        assert job.ended() != 0
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.event_lost"), found
    assert (found.entity["role"], found.entity["rank"]) == ("train", 0), found


def test_an_answer_lost_on_the_way(python: Path, tmp_path: Path) -> None:
    """The worker ended the call well; what stands between drops the connection. The worker is not dead."""

    def drop(path: str, body: bytes) -> bytes:
        if "generate?step=1" in path:
            raise ConnectionAbortedError
        return body

    with Workers(python, tmp_path) as urls, between(urls[1], drop) as rollout, Job([python, MAIN, "--workers", urls[0], rollout, urls[2]], tmp_path) as job:
        assert job.ended() != 0
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.rpc"), found


def test_a_flipped_byte(python: Path, tmp_path: Path) -> None:
    """One byte of a batch is another one when it arrives; nothing complains but the checksums."""
    flip = lambda path, body: body[:40] + bytes([body[40] ^ 0x10]) + body[41:] if "generate?step=1" in path else body  # noqa: E731
    with Workers(python, tmp_path) as urls, between(urls[1], flip) as rollout, Job([python, MAIN, "--workers", urls[0], rollout, urls[2]], tmp_path) as job:
        job.ended()
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "sw.serialization") and "checksum" in found.report.document["summary"], found
    assert found.entity["role"] == "controller", found


def test_lost_rows(python: Path, tmp_path: Path) -> None:
    """Half of a batch is gone when it arrives, and no step of HTTP minds."""
    cut = lambda path, body: body[: len(body) // 2] if "generate?step=1" in path else body  # noqa: E731
    with Workers(python, tmp_path) as urls, between(urls[1], cut) as rollout, Job([python, MAIN, "--workers", urls[0], rollout, urls[2]], tmp_path) as job:
        job.ended()
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "coord.partial_batch") and "512 was sent and 256 arrived" in found.report.document["summary"], found
