"""`--prometheus URL`: a real Prometheus server that holds a recorded DCGM series is asked for the counters of the run's time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest

import rca
from rca.errors import RcaError
from rca.ingest.samples.prometheus_live import ask
from rca.taxonomy import Kind

MINUTES = 50
FAULT = 37  # minute in which the device fails


def installed() -> str | None:
    """The server's program; installed as the system's package where that is allowed."""
    if (found := shutil.which("prometheus")) and shutil.which("promtool"):
        return found
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "prometheus"]):
        subprocess.run(command, capture_output=True, timeout=300, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"})
    return shutil.which("prometheus") if shutil.which("promtool") else None


def recorded(began: int) -> str:
    """An hour of two hosts' exporters in OpenMetrics: one GPU reports an uncorrectable error, and then Xid 79."""
    lines = []
    for name, course in (("DCGM_FI_DEV_XID_ERRORS", (0, 79)), ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", (0, 2)), ("DCGM_FI_DEV_GPU_UTIL", (97, 0))):
        lines.append(f"# TYPE {name} gauge")
        for host, port in (("gn-041", 1), ("gn-042", 2)):
            for gpu in range(4):
                bad = (host, gpu) == ("gn-042", 3)
                labels = f'gpu="{gpu}",pci_bus_id="00000000:{gpu + 1}7:00.0",Hostname="{host}",instance="10.1.0.{port}:9400",job="dcgm"'
                lines += [f"{name}{{{labels}}} {course[bad and minute >= FAULT]} {began + 60 * minute}" for minute in range(-5, MINUTES + 5)]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The address of a running server, and the second at which its series begin."""
    program = installed()
    if program is None:
        pytest.skip("no `prometheus` program, and it cannot be installed here")
    folder = tmp_path_factory.mktemp("prometheus")
    began = int(time.time()) // 3600 * 3600 - 6 * 3600
    (folder / "dcgm.txt").write_text(recorded(began))
    made = subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "dcgm.txt", "data"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    (folder / "prometheus.yml").write_text("global:\n  scrape_interval: 1m\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        for _ in range(120):
            try:
                if urlopen(f"{url}/-/ready", timeout=2).status == 200:
                    break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail((folder / "log").read_text()[-2000:])
        yield url, began
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def logs(root: Path, began: int, zone: str = "Z") -> None:
    """What the job itself left: steps on two hosts, and then a CUDA error that does not say why."""
    for rank, host in enumerate(("gn-041", "gn-042")):
        (root / host).mkdir(parents=True)
        stamp = [f"{datetime.fromtimestamp(began + 60 * m, UTC):%Y-%m-%dT%H:%M:%S}{zone}" for m in range(FAULT + 2)]
        lines = [f"{s} INFO [rank{rank}] step {m} loss: {3 - m / 40:.3f}" for m, s in enumerate(stamp)]
        if rank:
            lines.append(f"{stamp[-1]} ERROR [rank1] RuntimeError: CUDA error: unspecified launch failure")
        (root / host / f"rank{rank}.log").write_text("\n".join(lines) + "\n")


@pytest.mark.real
def test_a_server_is_asked_for_the_time_of_the_run(server: tuple[str, int], tmp_path: Path) -> None:
    """The device that failed is known from the server alone, with the answer as evidence."""
    url, began = server
    logs(tmp_path, began)
    report = rca.analyze(tmp_path, prometheus=url)
    events = [e for e in report.run.events if e.source is None and e.attrs.get("metric")]
    assert {(e.kind, e.host, e.gpu) for e in events if e.severity == "error"} == {(Kind.DEVICE_LOST, "gn-042", 3), (Kind.DEVICE_MEMORY_ERROR, "gn-042", 3)}
    for event in events:
        assert event.time_ns is not None and abs(event.time_ns / 1e9 - (began + 60 * FAULT)) < 120
        assert event.also and all(r.source.startswith(url) for r in event.also)
    assert any(what == "counters" and host == "gn-042" for what, host in report.run.coverage)
    alone = rca.analyze(tmp_path)
    assert not [e for e in alone.run.events if e.attrs.get("metric")]


@pytest.mark.real
def test_a_server_without_the_run_says_so(server: tuple[str, int]) -> None:
    """A window in which nothing was recorded is a stated gap."""
    url, began = server
    (reading,) = ask(url, began - 90 * 86400, began - 89 * 86400)
    assert "none of the known counters" in str(reading.reason) and not reading.facts["samples"]


@pytest.mark.real
def test_the_command_line_takes_the_address(server: tuple[str, int], tmp_path: Path) -> None:
    """`rca analyze --prometheus URL`."""
    import sys

    url, began = server
    logs(tmp_path, began)
    done = subprocess.run([sys.executable, "-m", "rca", "analyze", str(tmp_path), "--prometheus", url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "gn-042" in done.stdout and "GPU 3" in done.stdout


class Odd(BaseHTTPRequestHandler):
    """A server that answers, but not as asked."""

    body, status, delay = b"<html>hello</html>", 200, 0.0

    def do_POST(self) -> None:
        time.sleep(self.delay)
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, b"<html>hello</html>", "does not answer like a Prometheus server"), (200, b'{"status": "success", "data": ', "does not answer like"), (200, b"[1, 2]", "does not answer like"),
        (503, b"busy", "503"), (401, b"", "401"), (422, b'{"status":"error","errorType":"execution","error":"query timed out"}', "query timed out"),
        (200, b'{"status":"error","error":"overloaded"}', "overloaded"),
    ],
)  # fmt: skip
def test_odd_answers_are_said_in_plain_words(status: int, body: bytes, says: str) -> None:
    """Never a traceback."""
    handler = type("Handler", (Odd,), {"status": status, "body": body})
    with HTTPServer(("127.0.0.1", 0), handler) as odd:
        thread = threading.Thread(target=odd.handle_request, daemon=True)
        thread.start()
        with pytest.raises(RcaError, match=says):
            ask(f"http://name:secret@127.0.0.1:{odd.server_address[1]}", 1.79e9, 1.7901e9)
        thread.join(10)


@pytest.mark.parametrize(("url", "says"), [("http://127.0.0.1:1", "cannot reach"), ("http://nowhere.invalid:9090", "cannot reach"), ("file:///etc/passwd", "not a URL"), ("prometheus:9090", "not a URL")])
def test_a_server_that_is_not_there(url: str, says: str) -> None:
    """A clear error, and quickly."""
    with pytest.raises(RcaError, match=says):
        ask(url, 1.79e9, 1.7901e9)


def test_a_password_is_never_shown() -> None:
    """Neither in errors nor in the names of sources."""
    with pytest.raises(RcaError) as raised:
        ask("http://name:secret@127.0.0.1:1/prom", 1.79e9, 1.7901e9)
    assert "secret" not in str(raised.value)
