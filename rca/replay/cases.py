"""A request from both its sides: as its worker had it, and as its caller saw it end. One of the two may be missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rca.replay.recording import Call, Recording, Request

OK, ERROR, UNFINISHED, LOST = "ok", "error", "unfinished", "lost"


@dataclass(frozen=True)
class Case:
    """One request."""

    request: Request | None
    call: Call | None
    host: str | None = None  # of the worker

    @property
    def side(self) -> Any:
        """The side that there is; the worker's, if both."""
        return self.request or self.call

    @property
    def attempt(self) -> int:
        """Which start of the run."""
        return self.side.process.attempt

    @property
    def begun_ns(self) -> int:
        """When it was asked for, by the caller's clock where there is one: the clocks of the workers' hosts may be seconds apart."""
        return (self.call or self.request).start_ns  # type: ignore[union-attr]

    @property
    def ended_ns(self) -> int | None:
        """When it was over, by the same clock."""
        return (self.call or self.request).end_ns  # type: ignore[union-attr]

    @property
    def order(self) -> tuple[int, str, int]:
        """By time, of the one clock; then as `order` has it."""
        return self.begun_ns, *order(self.side)[1:]

    @property
    def worker(self) -> str:
        return f"{self.side.role}/{self.side.rank}"

    @property
    def where(self) -> str:
        """`step 4, weights_update: upload_weights of train/0`."""
        at = ", ".join(str(part) for part in (f"step {self.side.step}" if self.side.step is not None else None, self.side.stage) if part)
        return f"{at}: {self.side.method} of {self.worker}" if at else f"{self.side.method} of {self.worker}"

    @property
    def recorded(self) -> str:
        """How it ended: `ok`; `error`, the worker's own; `unfinished`, begun and never ended; `lost`, done or never begun, and the caller got nothing whole."""
        if self.request is None:
            return LOST
        if self.request.outcome == ERROR:
            return ERROR
        if self.request.outcome is None:
            return UNFINISHED
        return LOST if self.call is not None and (self.call.outcome != OK or changed(self)) else OK

    @property
    def error(self) -> str | None:
        """What the worker said, or else its caller."""
        return (self.request.error if self.request is not None else None) or (self.call.error if self.call is not None else None)


def cases(recording: Recording) -> list[Case]:
    """All requests of a recording, by their beginning."""
    hosts = {place: header.host for header in recording.headers for place in ((header.role, header.rank), (header.role, header.rank, header.attempt))}
    calls = dict(zip(_names(recording.calls), recording.calls, strict=True))
    found = [Case(request, calls.pop(name, None), request.host) for name, request in zip(_names(recording.requests), recording.requests, strict=True)]
    # A worker that recorded nothing at all says nothing about what reached it.
    found += [
        Case(None, call, hosts.get((call.role, call.rank, call.attempt), hosts[call.role, call.rank]))
        for call in calls.values()
        if call.outcome != OK and (call.role, call.rank) in hosts
    ]
    return sorted(found, key=lambda case: case.order)


def order(side: Any) -> tuple[int, str, int]:
    """By time; a process without a rank is before those that have one."""
    return side.start_ns, side.role, -1 if side.rank is None else side.rank


def _names(sides: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What both sides of a request are known by: its id; without one, which of its kind it is."""
    counts: Counter[tuple[Any, ...]] = Counter()
    names = []
    for side in sides:
        name = (side.request_id, side.role, side.rank, side.method) if side.request_id is not None else (side.process.attempt, side.role, side.rank, side.method, side.step)
        names.append((*name, counts[name]))
        counts[name] += 1
    return names


def changed(case: Case) -> str | None:
    """The first tensor that is not the same at both ends of a request or its answer, in words; None where all are, or nobody recorded it."""
    if case.request is None or case.call is None:
        return None
    ends: Sequence[tuple[str, Any, Any]] = (("argument", case.call.sent, case.request.args), ("answer", case.request.result, case.call.arrived))
    for what, sent, arrived in ends:
        if sent is not None and arrived is not None and sent.digests and arrived.digests:
            for name in sorted({*sent.digests, *arrived.digests}):
                if sent.digests.get(name) != arrived.digests.get(name):
                    return f"{what} `{name}`"
    return None


def failed(all_cases: Iterable[Case], told: Mapping[str, Any] | None) -> list[Case]:
    """Those that the run's failure can consist of: not well, in the last attempt, in the step and stage that `failed.json` names; without one, in the last step that was begun.

    What went wrong in an earlier step and was survived is another story, however near it is.
    """
    cases_ = list(all_cases)
    last = max((case.attempt for case in cases_), default=0)
    mine = [case for case in cases_ if case.attempt == last]
    if told is None:
        step = max((case.side.step for case in mine if case.side.step is not None), default=None)
        return [case for case in mine if case.recorded != OK and case.side.step == step]
    there = [case for case in mine if case.recorded != OK and case.side.step == told.get("step")]
    return [case for case in there if case.side.stage == told.get("stage")] or there


def speaks_of(error: str | None, case: Case) -> bool:
    """Whether the error with which a run ended is that of a request: it names the worker, or has the worker's words."""
    said = " ".join((case.error or "").split())[:60]
    return error is None or f"({case.worker})" in error or (bool(said) and said in " ".join(error.split()))
