"""A real run of `rca train` in a process of its own, to be watched and broken."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0  # of whatever a test waits for: this machine may be busy
#: As little computing as a system of this kind can have; all roles, both kinds of saves.
SMALL = {"prompts": 4, "group": 4, "width": 16, "heads": 2, "layers": 1, "latest_every": 1, "periodic_every": 3}


class Training:
    """`rca train RUN ARGUMENTS` with settings; what it says is in `said`."""

    def __init__(self, run: Path, *arguments: str, begin: list[str] | None = None, **settings: Any) -> None:
        self.run, self.began = run, time.monotonic()
        self._said = run.parent / f"{run.name}-{len(list(run.parent.glob('*.said')))}.said"
        sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        env = {name: value for name, value in os.environ.items() if not name.startswith("RCA_")} | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with self._said.open("w") as said:
            command = [*(begin or []), sys.executable, "-m", "rca", "train", str(run), *arguments, *sets]
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """The exit code of the launcher."""
        return self.process.wait(limit_s)

    def until(self, true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        """Wait for something while it runs."""
        end = time.monotonic() + limit_s
        while not true():
            assert self.process.poll() is None, f"it ended: {self.said}{tail(self.run)}"
            assert time.monotonic() < end, f"it did not come: {self.said}{tail(self.run)}"
            time.sleep(0.01)

    def until_step(self, step: int) -> None:
        self.until(lambda: any(row["step"] >= step for row in rows(self.run)))

    def pid(self, who: str) -> int:
        """`launcher`, `controller`, `torchrun` of the train ranks, or a worker as in `train-1`."""
        if who == "launcher":
            return self.process.pid
        if who == "controller":
            return next(pid for pid, command in processes(self.run).items() if "controller" in command)
        if who == "torchrun":
            return next(pid for pid, command in processes(self.run).items() if "torch.distributed.run" in command and "train" in command)
        return int(json.loads((self.run / "addresses" / f"{who}.json").read_text())["pid"])

    def kill(self, who: str, number: int = signal.SIGKILL) -> None:
        """A signal to one, or to `everything` that belongs to the run, at once."""
        for pid in [self.process.pid, *processes(self.run)] if who == "everything" else [self.pid(who)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill("everything")
        self.process.wait(LIMIT_S)


def processes(run: Path) -> dict[int, list[str]]:
    """All processes that name the run in their command line, launcher and grandchildren as well: pid -> words. A zombie has none."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                if any(word == str(run) or word.startswith((f"{run}/", f"--log-dir={run}/")) for word in words):
                    found[int(entry.name)] = words
    return found


def left_behind(run: Path, limit_s: float = 10.0) -> dict[int, list[str]]:
    """What is still there of a run when it has had time to end."""
    end = time.monotonic() + limit_s
    while (left := processes(run)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def rows(run: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's metrics."""
    try:
        text = (run / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def learned(run: Path) -> list[dict[str, Any]]:
    """What a run learned, step by step, without how long it took."""
    return [{name: value for name, value in row.items() if name not in ("seconds", "stages")} for row in rows(run)]


def digest(run: Path, step: int) -> str:
    """The fingerprint of the weights in the latest checkpoint, which is of this step."""
    state = json.loads((run / "checkpoints" / "latest" / f"step-{step:06d}" / "state.json").read_text())
    assert state["step"] == step
    return str(state["digest"])


def tail(run: Path, size: int = 2000) -> str:
    """The end of the controller's log, for a test that fails."""
    try:
        return (run / "logs" / "controller.log").read_text()[-size:]
    except OSError:
        return ""
