"""A worker behind a proxy of its own, so that its connections can be broken without a right to break links: see `proxy` for what it can be told.

`RCA_TRAIN_WIRES=reference-0,train-1` names the workers that are called through one; each is told by the file `wires/<role>-<rank>` in the run's folder.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

WIRES = "RCA_TRAIN_WIRES"
FOLDER = "wires"
READY = "listening on "


def control_of(run: Path, role: str, rank: int) -> Path:
    return run / FOLDER / f"{role}-{rank}"


@contextlib.contextmanager
def before(run: Path, role: str, rank: int, address: str, port: int) -> Iterator[int]:
    """The port to call this worker at: its own, or that of a proxy which lasts as long as the block and dies with the worker."""
    if f"{role}-{rank}" not in os.environ.get(WIRES, "").split(","):
        yield port
        return
    control = control_of(run, role, rank)
    control.parent.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "rca.replay_trainer.tied", "rca.replay_trainer.proxy", f"{address}:0", f"{address}:{port}", "--control", str(control)]
    proxy = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert proxy.stdout is not None
        said = proxy.stdout.readline().strip()
        if not said.startswith(READY):
            raise RuntimeError(f"no proxy before {role}/{rank}: {said or 'it ended'}")
        yield int(said.rpartition(":")[2])
    finally:
        proxy.terminate()
        proxy.wait()
