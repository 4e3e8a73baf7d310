"""A worker that is called through a proxy of its own: only when it was asked for, told by a file, gone with the worker."""

from __future__ import annotations

import http.client
import http.server
import threading
import time
from pathlib import Path

import pytest

from rca.replay_trainer import wires
from rca.replay_trainer.proxy import tell


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * 50_000)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def port() -> int:
    """Of a server that answers with 50,000 bytes."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def asked(port: int) -> int:
    """How many bytes come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/")
    return len(connection.getresponse().read())


def test_nothing_stands_before_a_worker_that_nobody_named(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own port is called."""
    monkeypatch.setenv(wires.WIRES, "train-1,rollout-0")
    with wires.before(tmp_path, "train", 0, "127.0.0.1", port) as called:
        assert called == port


@pytest.mark.real
def test_a_worker_that_was_named_is_called_through_a_proxy(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes everything on until it is told to cut; when the worker ends, nobody listens any more."""
    monkeypatch.setenv(wires.WIRES, "train-0")
    with wires.before(tmp_path, "train", 0, "127.0.0.1", port) as called:
        assert called != port and asked(called) == 50_000
        tell(wires.control_of(tmp_path, "train", 0), "cut 1000")
        time.sleep(0.2)
        assert 0 < asked(called) < 1000
    with pytest.raises(OSError):
        asked(called)
