"""Both ends of every hand-over, in the order of time: the first one whose ends differ is where data was damaged or lost."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rca.replay.cases import OK, Case, changed

Rows = Callable[[Case, str], tuple[int, int] | None]


@dataclass(frozen=True)
class Broken:
    """A hand-over whose ends differ: `sender` and `receiver` as in `rollout/1`, and what happened in words."""

    case: Case
    sender: str
    receiver: str
    text: str


def broken(case: Case, rows: Rows | None = None) -> Broken | None:
    """What is wrong with the hand-over of one request or its answer, if anything. `rows` looks up how much of a tensor was made and arrived."""
    request, call, worker = case.request, case.call, case.worker
    if call is None:
        return None
    caller = "controller"
    if request is None and call.outcome is None:
        return None
    if request is None:
        return Broken(case, caller, worker, f"{call.method} never reached {worker}: {call.error}")
    if (what := changed(case)) is not None:
        at = (caller, worker) if what.startswith("argument") else (worker, caller)
        return Broken(case, *at, f"{what} of {request.method} is not what {at[0]} sent when it reaches {at[1]}{_sizes(case, what, rows)}")
    if call.outcome is None:
        return None  # the caller itself had ended: nobody waited for what came
    if request.outcome == OK and call.outcome != OK:
        return Broken(case, worker, caller, f"{worker} finished {request.method}, and its answer did not arrive: {call.error}")
    if request.outcome is None and call.outcome == OK:
        return Broken(case, worker, caller, f"the answer of {worker} to {request.method} broke off, and what had come was used")
    if request.outcome is None:
        return Broken(case, worker, caller, f"{worker} never answered {request.method}: {call.error}")
    return None


def _sizes(case: Case, what: str, rows: Rows | None) -> str:
    found = rows(case, what.split("`")[1]) if rows is not None and what.startswith("answer") else None
    return f": {found[1]} of {found[0]} rows" if found is not None and found[0] != found[1] else ""


def first_broken(ordered: Sequence[Case], until: Case | None = None, rows: Rows | None = None) -> Broken | None:
    """The first hand-over whose ends differ, of requests that are ordered by time, up to and with `until`'s step.

    The step of the failure comes first: what an earlier step lost, and survived, is no part of it unless nothing else is broken.
    """
    if until is not None:
        key = (until.attempt, until.side.step if until.side.step is not None else -1)
        same = [case for case in ordered if (case.attempt, case.side.step if case.side.step is not None else -1) == key]
        earlier = list(ordered[: bisect.bisect_left([case.begun_ns for case in ordered], until.begun_ns)])
        return _first(same, rows) or _first(reversed(earlier), rows)
    return _first(ordered, rows)


def _first(ordered: Iterable[Case], rows: Rows | None) -> Broken | None:
    return next((found for case in ordered if (found := broken(case, rows)) is not None), None)


def damage_before(ordered: Sequence[Case], case: Case) -> list[Case]:
    """Requests of the same step and attempt that began before this one and did not end well: what they lack is missing in what came after."""
    side = case.side
    return [other for other in ordered if other is not case and other.recorded != OK and other.begun_ns < case.begun_ns and (other.attempt, other.side.step) == (case.attempt, side.step) and other.side.stage != side.stage]
