"""The recording of a run, in `RUN/recording`: this process's part of it, and what earlier attempts have left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

from rca import trace_inject as rt
from rca.replay_trainer.config import Config

FOLDER = "recording"
ATTEMPT = "RCA_TRAIN_ATTEMPT"
KEEP_BLOBS, KEEP_LINES = 2, 8  # of so many attempts, the one that begins among them
ENDING = ".requests.jsonl"


def begin(config: Config, run: Path, role: str) -> None:
    """Record the calls of this process, if the run is recorded. Those of the MetaServer are none."""
    if config.record and role != "meta_server":
        rt.record_requests(run / FOLDER, attempt=int(os.environ.get(ATTEMPT, "1")), steps=config.record_steps, size_max=config.record_bytes, program="rca.replay_trainer", base=run)


def forget(run: Path, attempt: int) -> None:
    """Before an attempt begins: take away blobs, and later lines, of those long before it, so that a run that is resumed for ever has a bound."""
    folder = run / FOLDER
    for path in sorted(folder.glob(f"*{ENDING}")):
        of = _attempt(path)
        if of is None:
            continue
        stem = path.name.removesuffix(ENDING)
        with contextlib.suppress(OSError):
            if of <= attempt - KEEP_BLOBS:
                shutil.rmtree(folder / "blobs" / stem, ignore_errors=True)
            if of <= attempt - KEEP_LINES:
                path.unlink()


def _attempt(path: Path) -> int | None:
    """The last attempt whose header stands in a file: two may have had a process of the same name and number."""
    found = None
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError), path.open("rb") as file:
        for line in file:
            if line.startswith(b'{"schema"'):
                found = int(json.loads(line).get("attempt", 1))
    return found
