"""Real trainers, broken for real: an interpreter imports an example and its libraries once, and runs pieces of code in children of its own.

    with Library("trl_grpo", "torch==2.13.0", "trl") as library:
        library.run("main.build(OUT).train()", folder)                              # its exit status
        library.run("main.build(OUT).train()", folder, kill=lambda record: ...)     # SIGKILL when the newest record is such

What a child prints and what it records lies in `folder`, as a user would have it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from venvs import ROOT, environment, python_with

import rca
from rca.model import Event, Hypothesis
from rca.pipeline import Report

TIMEOUT_S = 120
#: All that the three examples need, in one environment.
REQUIREMENTS = ("torch==2.13.0", "transformers", "accelerate", "trl", "datasets", "lightning")
SERVER = """\
import json, os, sys, traceback
sys.path.insert(0, sys.argv[1])
import hashlib, main
from rca import trace_inject as rt
def digest(model):
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for fd, name in ((1, "stdout.log"), (2, "stderr.log")):
            os.dup2(os.open(os.path.join(asked["folder"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), fd)
        status = 0
        try:
            rt.install(asked["folder"], role="train")
            exec(compile(asked["code"], "train.py", "exec"), {"main": main, "OUT": asked["out"], "digest": digest, "__name__": "__main__"})
        except BaseException:
            status = 1
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        os._exit(status)
    print(json.dumps(pid), flush=True)
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), flush=True)
"""


class Library:
    """One interpreter with an example imported, see the module."""

    def __init__(self, example: str) -> None:
        self.example = ROOT / "examples" / example
        self.python = python_with(*REQUIREMENTS)
        self.environment = environment(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def main(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the example as its README says, with its output in files beside its records."""
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "stdout.log", "w") as out, open(folder / "stderr.log", "w") as err:
            command = [str(self.python), str(self.example / "main.py"), *arguments]
            return subprocess.run(command, stdout=out, stderr=err, env=self.environment | {"RCA_TRACE_DIR": str(folder)}, timeout=TIMEOUT_S, text=True, stdin=subprocess.DEVNULL)

    def run(self, code: str, folder: Path, out: Path | None = None, kill: Callable[[dict[str, Any]], bool] | None = None) -> int:
        """Run code with the example as `main`, a folder to write to as `OUT`, and `digest` of a model's weights; gives the exit status."""
        folder.mkdir(parents=True, exist_ok=True)
        if self._server is None:
            self._server = subprocess.Popen([str(self.python), "-c", SERVER, str(self.example)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment, text=True, bufsize=1)
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps({"code": code, "folder": str(folder), "out": str(out or folder / "out")}) + "\n")
        pid = int(self._server.stdout.readline())
        if kill is not None:
            end = time.monotonic() + TIMEOUT_S
            while time.monotonic() < end and not any(map(kill, records(folder)[-1:])):
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
        return int(self._server.stdout.readline())


def records(folder: Path, names: str = "*") -> list[dict[str, Any]]:
    """All whole records of a folder but headers, of those files whose name fits."""
    found = []
    for path in sorted(folder.glob(f"{names}.rca.jsonl")):
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # half a line, of a process that writes or was killed
                continue
            if "schema" not in record:
                found.append(record)
    return found


def begun(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The starts among the records; each of them has an end."""
    starts = [r for r in told if r["e"] == "start"]
    assert {r["id"] for r in starts} == {r["id"] for r in told if r["e"] == "end"}
    return starts


def explained(folder: Path) -> tuple[Report, Hypothesis]:
    """What is found in a folder, and the first hypothesis."""
    found = rca.analyze(folder)
    return found, found.judged.hypotheses[0]


def died_inside(folder: Path) -> Event:
    """The innermost span that was open when the process was killed; that is no cause, and nobody is sure of one."""
    found = rca.analyze(folder)
    (inside,) = [e for e in found.run.events if e.kind == "trace.ends_inside"]
    assert found.verdict == "inconclusive" and f"`{inside.attrs['op']}` ({inside.stage}, step {inside.step})" in found.document["summary"]
    return inside
