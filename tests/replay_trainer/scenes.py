"""A small scene to break: one program on one host, with its control group and storage, and what tests wait for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.replay_trainer.control_groups import ControlGroup
from rca.replay_trainer.hosts import Here, Host, lacking
from rca.replay_trainer.storage import Storage

PATH = {"PATH": os.environ["PATH"]}
#: Allocates as many MiB as the number in a file says.
GROWS = """
import sys, time
held = []
while True:
    want = int(open(sys.argv[1]).read() or 0)
    while len(held) < want:
        held.append(b"\\1" * (1 << 20))
    time.sleep(0.01)
"""


def need(*mechanisms: str) -> None:
    """Skip, with the reason, where the machine does not allow it."""
    if missing := lacking(mechanisms):
        pytest.skip(missing)


def until(true: Callable[[], object], limit_s: float = 15.0) -> bool:
    end = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def state(pid: int) -> str:
    """The letter of a process's state, "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    return state(pid) not in ("", "Z")


def python(host: Host, code: str, *args: str, within: ControlGroup | None = None, log: Path | None = None) -> subprocess.Popen[bytes]:
    return host.start([sys.executable, "-I", "-S", "-c", code, *args], env=PATH, within=within, log=log)


class OneProgram:
    """A scene in which every process is the same one."""

    def __init__(self, folder: Path, pid: int = 0, host: Host | None = None, group: ControlGroup | None = None, storage: Storage | None = None) -> None:
        self.run, self.logs, self.storage = folder, folder / "logs", storage
        self._host, self._pid, self._group = host or Here(), pid, group
        self.truth: dict[str, Any] = {}

    def host(self, role: str, rank: int) -> Host:
        return self._host

    def pid(self, role: str, rank: int) -> int:
        return self._pid

    def group(self, role: str, rank: int) -> ControlGroup:
        assert self._group
        return self._group

    def device(self, role: str, rank: int) -> Path:
        return self.run / "device"

    def remember(self, **facts: Any) -> None:
        self.truth.update(facts)
