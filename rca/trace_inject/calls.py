"""Requests as their caller sees them: what was sent to which worker, and what arrived.

    with rt.recorded_call("rollout/1", "generate", {"prompts": prompts}) as call:
        call.result(post(url, prompts))

Where both ends are recorded, the first hand-over whose ends differ is known; and a call that nobody answered is there with what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rca.trace_inject import guard, recording, requests
from rca.trace_inject.recording import Recording


class recorded_call:
    """One call; `group` is the same text for calls that are made together. What the block raises is recorded, and goes on."""

    __slots__ = ("_id", "_of", "_step", "_value", "files", "group", "method", "values", "worker")

    def __init__(self, worker: str, method: str, values: Mapping[str, Any] | None = None, group: str | None = None) -> None:
        self.worker, self.method, self.values, self.group = worker, method, values or {}, group
        self._of: Recording | None = None
        self._value: Any = None
        self._step: int | None = None
        self._id = ""
        self.files: list[str] = []

    @guard.quiet(None)
    def _begin(self) -> None:
        of = recording.current()
        if of is None:
            return
        now = time.time_ns()
        where, self._step = requests.place(self.values)
        self._id = f"c{next(requests._numbers):x}"
        self._of, of.blobs.open[self] = of, self.files
        sent = requests.told(of, self.values, self._step, self.files)
        of.put({"e": "call", "t": now, "id": self._id, **where, "n": str(self.method)[: requests.NAME_MAX], "w": str(self.worker)[: requests.NAME_MAX], "g": self.group, "sent": sent}, self._step, self._id)

    def __enter__(self) -> recorded_call:
        self._begin()
        return self

    def result(self, value: Any) -> Any:
        """What arrived: a mapping, or one value; gives it."""
        self._value = value
        return value

    def __exit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        self._end(error)

    @guard.quiet(None)
    def _end(self, error: BaseException | None) -> None:
        of, self._of = self._of, None
        if of is None:
            return
        now, value = time.time_ns(), self._value
        said: dict[str, Any] = {"ok": False, "error": requests.error_of(error)} if error is not None else {"ok": True}
        try:
            if value is not None:
                said["arrived"] = requests.told(of, value if isinstance(value, Mapping) else {"value": value}, self._step, self.files)
            of.put({"e": "answer", "t": now, "id": self._id, **said}, self._step)
        finally:
            of.lines.open.pop(self._id, None)
            of.blobs.open.pop(self, None)
