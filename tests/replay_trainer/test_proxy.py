"""A proxy that is told to misbehave does so on real sockets, for connections old and new, and stops when it is told to."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from replay_trainer.scenes import until

from rca.errors import RcaError
from rca.replay_trainer import proxy

ROOT = Path(__file__).resolve().parents[2]


class Echo:
    """Answers every line with as many bytes as it says."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.answer, args=(self.socket.accept()[0],), daemon=True).start()

    def answer(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer, peer.makefile("rb") as lines:
            for line in lines:
                peer.sendall(b"x" * int(line))


class Told:
    def __init__(self, process: subprocess.Popen[str], control: Path) -> None:
        assert process.stdout
        self.process, self.control, self.out = process, control, process.stdout
        self.port = int(self.out.readline().rpartition(":")[2])

    def tell(self, command: str) -> None:
        proxy.tell(self.control, command)
        assert self.out.readline().split()[1:] == command.split()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 5)


def ask(peer: socket.socket, size: int) -> int:
    """The bytes of the answer: fewer when the connection was closed in order."""
    peer.sendall(f"{size}\n".encode())
    got = 0
    while got < size and (data := peer.recv(1 << 16)):
        got += len(data)
    return got


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    echo, control = Echo(), tmp_path / "control"
    command = [sys.executable, "-m", "rca.replay_trainer.proxy", "127.0.0.1:0", f"127.0.0.1:{echo.port}", "--control", str(control)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            yield Told(process, control)
        finally:
            process.terminate()
            echo.socket.close()


def test_forwards(told: Told) -> None:
    """Nothing told: all passes, many times over one connection, and the end of one side is the end of the other."""
    with told.connect() as peer:
        assert [ask(peer, size) for size in (1, 100, 5_000_000)] == [1, 100, 5_000_000]
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(1) == b""


def test_delay(told: Told) -> None:
    """Each piece is late, both ways, and none the later for the ones before it; back to normal at once."""
    with told.connect() as peer:
        assert ask(peer, 1) == 1
        told.tell("delay 100")
        began = time.monotonic()
        assert ask(peer, 3_000_000) == 3_000_000
        assert 0.2 <= time.monotonic() - began < 2
        told.tell("pass")
        began = time.monotonic()
        assert ask(peer, 1) == 1
        assert time.monotonic() - began < 0.1


def test_stall(told: Told) -> None:
    """Connections are taken, nothing comes; what was held back comes when the stall ends."""
    told.tell("stall")
    with told.connect() as peer:
        peer.sendall(b"3\n")
        peer.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        told.tell("pass")
        peer.settimeout(5)
        assert peer.recv(3, socket.MSG_WAITALL) == b"xxx"


def test_drop(told: Told) -> None:
    """A partition: what was sent is lost, the connection stays, and lives when the partition ends."""
    with told.connect() as peer:
        assert ask(peer, 1) == 1
        told.tell("drop")
        peer.sendall(b"3\n")
        peer.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        told.tell("pass")
        peer.settimeout(5)
        assert ask(peer, 4) == 4


def test_reset(told: Told) -> None:
    """Old and new connections get RST."""
    with told.connect() as peer:
        assert ask(peer, 1) == 1
        told.tell("reset")
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    with pytest.raises(ConnectionResetError), told.connect() as peer:
        peer.recv(1)
    told.tell("pass")
    with told.connect() as peer:
        assert ask(peer, 1) == 1


def test_refuse(told: Told) -> None:
    """New connections are refused, old ones go on, and the port is the same afterwards."""
    with told.connect() as peer:
        assert ask(peer, 1) == 1
        told.tell("refuse")
        with pytest.raises(ConnectionRefusedError):
            told.connect()
        assert ask(peer, 2) == 2
    told.tell("pass")
    with told.connect() as peer:
        assert ask(peer, 1) == 1


def test_cut(told: Told) -> None:
    """A response that is longer than N ends after N bytes, in order; a shorter one passes; each is counted anew."""
    with told.connect() as peer:
        assert ask(peer, 900) == 900
        told.tell("cut 1000")
        assert [ask(peer, 900), ask(peer, 900)] == [900, 900]
        assert ask(peer, 200_000) == 1000


def test_rate(told: Told) -> None:
    """N bytes a second."""
    told.tell("rate 100000")
    with told.connect() as peer:
        began = time.monotonic()
        assert ask(peer, 50_000) == 50_000
        assert 0.4 < time.monotonic() - began < 2


def test_a_wrong_command_is_told_and_changes_nothing(told: Told) -> None:
    """Half a word or a missing number leaves the proxy as it is."""
    for wrong in ("stal", "cut", "delay x", "pass 3"):
        with pytest.raises(RcaError):
            proxy.tell(told.control, wrong)
    told.control.write_text("stal\n")
    assert told.process.stderr
    assert "no such command: `stal`" in told.process.stderr.readline()
    with told.connect() as peer:
        assert ask(peer, 1) == 1


def test_a_target_that_is_gone(told: Told, tmp_path: Path) -> None:
    """Who connects is reset, as a load balancer does; it ends by SIGTERM."""
    told.process.terminate()
    assert told.process.wait(5) == -15
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    command = [sys.executable, "-m", "rca.replay_trainer.proxy", "127.0.0.1:0", f"127.0.0.1:{free}", "--control", str(tmp_path / "none")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        other = Told(process, tmp_path / "none")
        with pytest.raises(ConnectionResetError), other.connect() as peer:
            peer.recv(1)
        process.terminate()
    assert until(lambda: process.poll() is not None)
