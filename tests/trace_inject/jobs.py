"""Real jobs that are watched through the trace they leave, and broken at a moment that the trace shows.

    with Job([python, "examples/http_workers/main.py"], tmp_path) as job:
        worker, _ = job.wait_for("rollout", 1, "start", "POST /generate", step=1)
        os.kill(worker, signal.SIGKILL)
        job.ended()
    job.verdict().first == ("coord.actor_died", ...)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import venvs

import rca

LOOK_S = 0.02


class Job:
    """A started job with everything that it leaves: `trace/*.rca.jsonl` and `job.log`."""

    def __init__(self, command: list[Any], folder: Path, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.trace = folder, folder / "trace"
        self._log = open(folder / "job.log", "wb")  # noqa: SIM115
        self._environment = venvs.environment(**({"RCA_TRACE_DIR": str(self.trace)} | environment))
        self.process = subprocess.Popen([str(c) for c in command], stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self._environment, cwd=folder, start_new_session=True)
        self._seen: dict[Path, int] = {}

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its own session: nothing else is in it
        self.process.wait(30)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()

    def records(self, kind: str | None = None, name: str | None = None) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """(header, record) of everything that was recorded so far."""
        for path in sorted(self.trace.glob("*.rca.jsonl")):
            head: dict[str, Any] = {}
            for line in path.read_bytes().split(b"\n")[:-1]:
                record = json.loads(line)
                if "schema" in record:
                    head = record
                elif kind in (None, record["e"]) and name in (None, record.get("n")):
                    yield head, record

    def pids(self) -> set[int]:
        """Processes of this job that record and are not known to have ended."""
        return {head["pid"] for head, _ in self.records() if self._mine(head["pid"])}

    def _mine(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return f"RCA_TRACE_DIR={self.trace}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    def wait_for(self, role: str, rank: int | None, kind: str, name: str, step: int | None = None, timeout_s: float = 60) -> tuple[int, dict[str, Any]]:
        """Wait until a process has recorded something; gives its pid and the record."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            for head, record in self.records(kind, name):
                if (head.get("role"), head.get("rank")) == (role, rank) and step in (None, record.get("s")):
                    return head["pid"], record
            if self.process.poll() is not None:
                break
            time.sleep(LOOK_S)
        raise AssertionError(f"{role}/{rank} never recorded {kind} {name}:\n{self.said()[-3000:]}")

    def ended(self, timeout_s: float = 60) -> int:
        """Wait for its end; gives the exit code."""
        return self.process.wait(timeout_s)

    def wait_for_text(self, text: str, timeout_s: float = 60) -> None:
        """Wait until it has printed something."""
        until = time.monotonic() + timeout_s
        while text not in self.said():
            assert time.monotonic() < until, self.said()[-3000:]
            time.sleep(LOOK_S)

    def said(self) -> str:
        """What it printed."""
        return (self.folder / "job.log").read_text(errors="replace")

    def faults(self) -> list[dict[str, Any]]:
        """What went wrong within the recording itself."""
        return [record for _, record in self.records("event") if record["n"] in ("rca.stopped", "rca.dropped")]

    def verdict(self) -> Verdict:
        """What is made of what is left."""
        return Verdict(rca.analyze(str(self.folder), workers=1))


class Verdict:
    """The part of a report that tests look at."""

    def __init__(self, report: Any) -> None:
        self.report, self.verdict = report, report.verdict
        self.hypotheses = report.document["hypotheses"]

    @property
    def cause(self) -> str | None:
        """The class of the first hypothesis."""
        return self.hypotheses[0]["cause"] if self.hypotheses else None

    @property
    def entity(self) -> dict[str, Any]:
        """What the first hypothesis accuses."""
        return {k: v for k, v in self.hypotheses[0]["entity"].items() if v is not None} if self.hypotheses else {}

    def __repr__(self) -> str:
        told = [f"{h['confidence']:.2f} {h['cause']} {({k: v for k, v in h['entity'].items() if v is not None})}" for h in self.hypotheses[:4]]
        return "\n".join([self.verdict, *told, self.report.document["summary"]])
