"""Requests and calls for tests of what is made of them; as a recording gives them, without one."""

from types import SimpleNamespace
from typing import Any

from rca.replay.cases import Case


def request(method: str, role: str, rank: int, start: int, end: int | None = None, *, step: int | None = 3, outcome: str | None = "ok", stage: str | None = None, attempt: int = 1, digests: dict | None = None, args: dict | None = None, error: str | None = None, files: list | None = None) -> Any:
    return SimpleNamespace(
        source="requests.jsonl", line=2, request_id=f"{method}-{role}-{rank}-{start}", method=method, role=role, rank=rank, host=f"host-{role}-{rank}", start_ns=start, end_ns=end, step=step, stage=stage or method,
        attempt=attempt, process=SimpleNamespace(attempt=attempt), outcome=outcome, error=error, files=files or [], result=SimpleNamespace(digests=digests or {}, values={}) if outcome == "ok" else None, args=SimpleNamespace(digests=args or {}, values={}),
    )  # fmt: skip


def call(of: Any, outcome: str | None = "ok", *, arrived: dict | None = None, sent: dict | None = None, error: str | None = None) -> Any:
    return SimpleNamespace(
        request_id=of.request_id, method=of.method, role=of.role, rank=of.rank, start_ns=of.start_ns - 1, end_ns=of.end_ns, step=of.step, stage=of.stage, process=of.process, attempt=of.process.attempt, outcome=outcome, error=error,
        sent=SimpleNamespace(digests=sent or {}, values={}), arrived=SimpleNamespace(digests=arrived or {}, values={}) if outcome == "ok" else None,
    )  # fmt: skip


def case(of: Any, by: Any = None) -> Case:
    return Case(of, by, getattr(of, "host", None))
