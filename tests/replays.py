"""Results of replays for tests, in the form of `rca.replay/1`; a test states only what differs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

MADE_NS = 1_795_400_000_000_000_000  # after every recorded run
HEADER = {"schema": "rca.replay/1", "rca_version": "0.7.0", "time": MADE_NS, "with_fault": False, "versions": {"torch": "2.8.0"}, "same_environment": True}
WORKER = re.compile(r"\((\w+)/(\d+)\)$")  # at the end of an error that a caller tells


def verdict(what: str = "does not reproduce", **changes: Any) -> dict[str, Any]:
    """The last line: what became of the failed request."""
    plain = {
        "t": 1_795_318_546_000_000_000, "request": "a1-7", "role": "train", "rank": 0, "host": "gpu-1", "step": 3, "stage": "train", "error": "RuntimeError: boom",
        "text": f"the failed request {what}",
    }  # fmt: skip
    return {"e": "verdict", "verdict": what, **plain, **changes}


def request(outcome: str = "diverges", **changes: Any) -> dict[str, Any]:
    """A request that failed in the recording, or did not come out the same."""
    plain = {
        "t": 1_795_318_546_000_000_000, "request": "a1-7", "method": "train_batch", "role": "train", "rank": 0, "host": "gpu-1", "step": 3, "stage": "train", "attempt": 1,
        "recorded": "ok", "replayed": "ok", "error": None, "tensor": "layers.0.weight", "element": [3, 1], "expected": 0.25, "got": 0.5,
        "text": "train_batch of train/0: layers.0.weight differs at [3, 1]",
    }  # fmt: skip
    return {"e": "request", "outcome": outcome, **plain, **changes}


def healthy(count: int = 40, identical: int | None = None) -> dict[str, Any]:
    """How many other requests were run again, and how many of them came out the same (all)."""
    return {"e": "healthy", "count": count, "identical": count if identical is None else identical}


def hand_over(**changes: Any) -> dict[str, Any]:
    """The first hand-over whose ends differ."""
    plain = {
        "t": 1_795_318_545_000_000_000, "request": "a1-6", "method": "generate", "from": "rollout/1", "to": "controller", "host": "gpu-3", "step": 3, "stage": "rollout",
        "text": "256 of 512 rows of rollout/1 arrived",
    }  # fmt: skip
    return {"e": "hand_over", **plain, **changes}


def text(*lines: dict[str, Any], **header: Any) -> str:
    """A file of these lines below a header."""
    return "".join(json.dumps(line) + "\n" for line in ({**HEADER, **header}, *lines))


def write(folder: Path, *lines: dict[str, Any], name: str = "replay.rca.jsonl", **header: Any) -> Path:
    """The same, written."""
    path = folder / name
    path.write_text(text(*lines, **header), "utf-8")
    return path


def of_truth(truth: dict[str, Any], what: str) -> dict[str, Any]:
    """The verdict on the failure that a scenario's truth names."""
    failed = truth["failed"]
    worker = WORKER.search(failed["error"])
    return verdict(
        what, t=None, role=worker[1] if worker else None, rank=int(worker[2]) if worker else None, host=None, step=failed["step"], stage=failed["stage"], error=failed["error"],
    )  # fmt: skip
