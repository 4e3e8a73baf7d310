"""The outcome of one request that was played again: reproduces, does not reproduce, diverges, or cannot tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rca.replay.answer import DIED, HUNG, Answer, timed_out
from rca.replay.cases import ERROR, LOST, OK, UNFINISHED, Case
from rca.replay.compare import CANNOT_TELL, DIVERGES, DOES_NOT, REPRODUCES, Difference, first_difference, same_error

FIRST_COMPUTED = "computed.0"  # what a rank itself added to the first sum, see `train.train_batch`
UNSAID = frozenset({"parts"})  # of an answer in parts, how many: its caller sees them merged


@dataclass(frozen=True)
class Replayed:
    """A request, how it was recorded, what came of it now, and what follows."""

    case: Case
    replayed: str
    outcome: str
    text: str
    difference: Difference | None = None
    because_of: str | None = None  # another worker of its world, whose numbers it added up

    @property
    def recorded(self) -> str:
        return self.case.recorded

    @property
    def identical(self) -> bool:
        """Whether a request that went well went well again, to the last bit."""
        return self.recorded == OK and self.outcome == REPRODUCES


def judged(case: Case, answer: Answer, expected: Mapping[str, Any] | None, expected_after: Mapping[str, Any] | None, patient: bool = True) -> Replayed:
    """`expected` is the recorded result, `expected_after` the groups of state that it left; None where nothing was recorded or kept. `patient`: no such request would have taken so long."""
    recorded = case.recorded
    difference = None
    if answer.outcome == OK and expected is not None:
        difference = first_difference({k: v for k, v in expected.items() if k not in UNSAID}, {k: v for k, v in answer.values.items() if k not in UNSAID})
        if difference is None and expected_after is not None:
            difference = _state(expected_after, answer.after)
    if answer.outcome == OK:
        if difference is not None and difference.of_form:
            return Replayed(case, OK, CANNOT_TELL, f"{case.where} gives a result of another form, as another version of the program would: {difference}", difference)
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
    if recorded == OK:
        return Replayed(case, answer.outcome, CANNOT_TELL, f"{case.where} went well then, and not in the replay: {_line(answer.error)}")
    if answer.outcome == UNFINISHED and _ends_as(case, answer):
        if answer.how == HUNG and not patient:
            return Replayed(case, UNFINISHED, CANNOT_TELL, f"{case.where} has not ended in time: it may be slow here, and --patience says how long is waited")
        return Replayed(case, UNFINISHED, REPRODUCES, f"{case.where} does not end again: {_line(answer.error)}")
    return Replayed(case, answer.outcome, CANNOT_TELL, f"{case.where} ends otherwise than then, and not well: {_line(answer.error)}")


def blamed(gang: Sequence[Replayed]) -> list[Replayed]:
    """Of a world that adds up what its ranks compute all differ: the one whose own part differed first is it, and the others differ because of it."""
    own = [one for one in gang if one.outcome == DIVERGES and one.difference is not None and one.difference.name == FIRST_COMPUTED]
    if not own:
        return list(gang)
    return [one if one in own or one.outcome != DIVERGES else dataclasses.replace(one, because_of=own[0].case.worker, text=f"{one.text}; it shares the sum with {own[0].case.worker}") for one in gang]


def _ends_as(case: Case, answer: Answer) -> bool:
    """Whether a request that has not ended now is what was recorded: it hung and hangs, or its process ended and ends again. What only waits for another, which failed, says nothing."""
    if answer.how not in (HUNG, DIED) or case.recorded not in (ERROR, UNFINISHED):
        return False
    if case.recorded == ERROR:  # a time-out of the recorded run, which was shorter than the patience of a replay
        return answer.how == HUNG and timed_out(case.error)
    said = case.call.error if case.call is not None else None
    return said is None or answer.how == (HUNG if timed_out(said) else DIED)


def _state(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Difference | None:
    """Of the groups that were recorded; one that is no tensors, the device's memory, is compared as a value."""
    return first_difference(expected, {name: got.get(name) for name in expected})


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
