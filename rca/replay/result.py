"""The file that a replay leaves beside the run, `rca.replay/1`: JSON lines, a claim each, so that `rca analyze` can cite them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rca
from rca.errors import RcaError
from rca.replay.cases import Case
from rca.replay.handovers import Broken
from rca.replay.outcome import Replayed

SCHEMA = "rca.replay/1"
NAME = "replay.rca.jsonl"
TEXT_MAX = 600
UNSAFE = re.compile(r"[^A-Za-z0-9-]+")


@dataclass
class Outcome:
    """What a replay found, and the file that says so."""

    replayed: list[Replayed]
    broken: Broken | None
    verdict: Any
    file: Path | None
    notes: list[str] = field(default_factory=list)
    unwritten: RcaError | None = None  # why there is no file


def header(same: bool) -> dict[str, Any]:
    """What the result says of the replay itself."""
    import torch

    versions = {"rca": rca.__version__, "python": platform.python_version(), "torch": torch.__version__}
    return {"rca_version": rca.__version__, "time": time.time_ns(), "with_fault": False, "versions": versions, "same_environment": same}


def place(run: Path, part: str | None = None) -> Path:
    """Where the result of a run's replay lies, with the logs, where it has any; that of a part has a name of its own, so that it does not replace the verdict."""
    safe = f"replay-{UNSAFE.sub('_', part)[:80]}.rca.jsonl" if part is not None else NAME
    return (run / "logs" if (run / "logs").is_dir() else run) / safe


def write(file: Path, header: Mapping[str, Any], replayed: Iterable[Replayed], broken: Broken | None, verdict: Mapping[str, Any] | None) -> None:
    """Write it whole or not at all. Raises RcaError."""
    all_of_them = list(replayed)
    healthy = [one for one in all_of_them if one.recorded == "ok"]
    records: list[Mapping[str, Any]] = [{"schema": SCHEMA, **header}]
    records += [_request(one) for one in all_of_them if not one.identical]
    records.append({"e": "healthy", "count": len(healthy), "identical": sum(one.identical for one in healthy)})
    if broken is not None:
        records.append({"e": "hand_over", **about(broken.case), "from": broken.sender, "to": broken.receiver, "text": broken.text[:TEXT_MAX]})
    if verdict is not None:
        records.append({"e": "verdict", **verdict})
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.write_text("".join(json.dumps(record, allow_nan=False) + "\n" for record in records), "utf-8")
        aside.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise RcaError(f"cannot write the result: {(error.strerror or str(error)).lower()}", where=str(file)) from error


def about(case: Case) -> dict[str, Any]:
    """Which request a record speaks of."""
    side = case.side
    return {
        "t": side.start_ns, "request": side.request_id, "method": side.method, "role": side.role, "rank": side.rank, "host": case.host,
        "step": side.step, "stage": side.stage, "attempt": case.attempt,
    }  # fmt: skip


def _request(one: Replayed) -> dict[str, Any]:
    found = one.difference
    apart = {} if found is None else {"tensor": found.name, "element": list(found.element) if found.element is not None else None, "expected": _plain(found.expected), "got": _plain(found.got)}
    return {
        "e": "request", **about(one.case), "recorded": one.recorded, "replayed": one.replayed, "outcome": one.outcome,
        "error": (one.case.error or "")[:TEXT_MAX] or None, **apart, **({"because_of": one.because_of} if one.because_of else {}), "text": one.text[:TEXT_MAX],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """JSON has no word for what is not finite."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
