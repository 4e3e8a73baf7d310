"""The outcome of one request that was played again: reproduces, does not reproduce, diverges, or cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rca.replay.answer import Answer
from rca.replay.cases import ERROR, LOST, OK, UNFINISHED, Case
from rca.replay.compare import CANNOT_TELL, DIVERGES, DOES_NOT, REPRODUCES, Difference, first_difference, same_error

UNSAID = frozenset({"parts"})  # of an answer in parts, how many: its caller sees them merged


@dataclass(frozen=True)
class Replayed:
    """A request, how it was recorded, what came of it now, and what follows."""

    case: Case
    replayed: str
    outcome: str
    text: str
    difference: Difference | None = None

    @property
    def recorded(self) -> str:
        return self.case.recorded

    @property
    def identical(self) -> bool:
        """Whether a request that went well went well again, to the last bit."""
        return self.recorded == OK and self.outcome == REPRODUCES


def judged(case: Case, answer: Answer, expected: Mapping[str, Any] | None, expected_after: Mapping[str, Any] | None) -> Replayed:
    """`expected` is the recorded result, `expected_after` the groups of state that it left; None where nothing was recorded or kept."""
    recorded = case.recorded
    difference = None
    if answer.outcome == OK and expected is not None:
        difference = first_difference({k: v for k, v in expected.items() if k not in UNSAID}, {k: v for k, v in answer.values.items() if k not in UNSAID})
        if difference is None and expected_after is not None:
            difference = _state(expected_after, answer.after)
    if answer.outcome == OK:
        if difference is not None:
            return Replayed(case, OK, DIVERGES, f"{case.where} gives other numbers: {difference}", difference)
        if recorded == OK:
            if expected is None:
                return Replayed(case, OK, CANNOT_TELL, f"{case.where}: its outcome was not kept")
            return Replayed(case, OK, REPRODUCES, f"{case.where} gives the same bits")
        known = {ERROR: "failed", UNFINISHED: "never ended", LOST: "was never answered whole"}[recorded]
        same = ", and gives the bits that the worker had" if expected is not None else ""
        return Replayed(case, OK, DOES_NOT, f"{case.where} {known} then and succeeds now{same}")
    if recorded == ERROR and answer.outcome == ERROR:
        if same_error(case.request.error if case.request else None, answer.error):
            return Replayed(case, ERROR, REPRODUCES, f"{case.where} fails again: {_line(answer.error)}")
        return Replayed(case, ERROR, CANNOT_TELL, f"{case.where} fails otherwise than then: {_line(answer.error)}")
    if recorded in (ERROR, UNFINISHED) and answer.outcome == UNFINISHED:
        return Replayed(case, UNFINISHED, REPRODUCES, f"{case.where} does not end again: {_line(answer.error)}")
    if recorded == OK:
        return Replayed(case, answer.outcome, CANNOT_TELL, f"{case.where} went well then, and not in the replay: {_line(answer.error)}")
    return Replayed(case, answer.outcome, CANNOT_TELL if recorded == LOST else REPRODUCES, f"{case.where} does not end well again: {_line(answer.error)}")


def _state(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Difference | None:
    """Of the groups that were recorded; one that is no tensors, the device's memory, is compared as a value."""
    return first_difference(expected, {name: got.get(name) for name in expected})


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
