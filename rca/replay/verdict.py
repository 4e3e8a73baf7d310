"""What the replayed requests say of the run's failure.

Failing again needs more than an error: with damaged input the next one down fails again whatever the cause. So where an input was damaged or missing, the step is played whole, by the real
controller from the recorded state, and what fails then is the program's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rca.replay.cases import ERROR, OK, Case, speaks_of
from rca.replay.compare import CANNOT_TELL, DIVERGES, DOES_NOT, REPRODUCES, same_error
from rca.replay.files import read_by
from rca.replay.handovers import Broken, damage_before
from rca.replay.outcome import Replayed
from rca.replay.result import about

ALL_OF = 3  # so many requests, of several workers, that all give other numbers are no single bad machine


@dataclass(frozen=True)
class Verdict:
    """What a replay says of the failure, and which request it says it of."""

    verdict: str
    text: str
    case: Case | None = None
    error: str | None = None
    told: Mapping[str, Any] | None = None

    def record(self) -> dict[str, Any]:
        """The last line of the result."""
        where = about(self.case) if self.case is not None else {}
        told = {name: self.told[name] for name in ("step", "stage") if name in self.told} if self.told else {}
        return {**where, **told, "verdict": self.verdict, "error": (self.error or "")[:600] or None, "text": self.text[:600]}


def decide(
    told: Mapping[str, Any] | None, of_failure: Sequence[Case], played: Sequence[Replayed], broken: Broken | None, all_cases: Sequence[Case],
    whole_step: Callable[[], str | None] | None, alike: bool = True,
) -> Verdict:  # fmt: skip
    """`whole_step` plays the failing step by the controller and gives its error, or None if it went well; it is asked only where the requests alone do not decide. On a machine
    that is not `alike`, other numbers say nothing.
    """
    error = str(told["error"]) if told and told.get("error") else next((case.error for case in of_failure if case.error), None)
    mine = [one for one in played if any(one.case is case for case in of_failure)]
    diverging = sorted((one for one in played if one.outcome == DIVERGES), key=lambda one: one.because_of is not None)
    if diverging and not (of_failure or alike):
        return Verdict(
            CANNOT_TELL,
            f"other numbers, on a machine or with versions that are not those of the recording: {diverging[0].text}",
            diverging[0].case,
            error,
            None,
        )
    compared = [one for one in played if one.recorded == OK and one.outcome in (DIVERGES, REPRODUCES)]
    if diverging and alike and len({one.case.worker for one in compared}) > 1 and len(compared) >= ALL_OF and not any(one.identical for one in compared):
        return Verdict(
            CANNOT_TELL,
            f"none of {len(compared)} requests gives the numbers that were recorded: this machine is another one, it says nothing of one worker",
            diverging[0].case,
            error,
            told,
        )
    if diverging and alike:
        worst = diverging[0]
        return Verdict(DIVERGES, worst.text, worst.case, error, None)
    again = [one for one in mine if one.outcome == REPRODUCES]
    passed = sorted((one for one in mine if one.outcome == DOES_NOT), key=lambda one: one.case.recorded != ERROR)  # what said an error is nearest to the run's own
    first = next((case for case in of_failure), None)
    open_ = [one for one in mine if one.recorded == ERROR and one.outcome == CANNOT_TELL]
    if mine and not any(speaks_of(error, case) for case in of_failure):  # something that was survived, or the controller's own error
        return _whole(told, again, broken, first, error, whole_step)
    if passed and not again and (passed[0].recorded == ERROR or not open_):  # beside an error that is open, others only lost their caller
        return Verdict(DOES_NOT, f"what failed succeeds with the same input and state: {passed[0].text}", passed[0].case, error, told)
    if again and not _suspicious(again, broken, all_cases):
        errors = [one for one in again if one.replayed == ERROR] or again  # the others of its world only wait for it
        return Verdict(REPRODUCES, f"with the same input and state it fails again: {errors[0].text}", errors[0].case, error, told)
    return _whole(told, again, broken, first, error, whole_step)


def _suspicious(again: Sequence[Replayed], broken: Broken | None, all_cases: Sequence[Case]) -> bool:
    """Whether what failed again was given input that had come to harm before: a request of another stage that failed, a hand-over whose ends differ, a file."""
    others = broken is not None and all(broken.case is not one.case for one in again) and any(broken.case.begun_ns <= one.case.begun_ns for one in again)
    return others or any(read_by(one.case) for one in again) or any(damage_before(all_cases, one.case) for one in again)


def _whole(told: Mapping[str, Any] | None, again: Sequence[Replayed], broken: Broken | None, first: Case | None, error: str | None, whole_step: Callable[[], str | None] | None) -> Verdict:
    case = again[0].case if again else broken.case if broken is not None else first
    if whole_step is None or told is None:
        return Verdict(CANNOT_TELL, "what failed cannot be played again, and what the run ended with was not recorded", case, error, told)
    try:
        now = whole_step()
    except NotPlayed as reason:
        return Verdict(CANNOT_TELL, f"the step cannot be played whole: {reason}", case, error, told)
    harmed = f"; its input was damaged on the way: {broken.text}" if broken is not None else ""
    if now is None:
        return Verdict(DOES_NOT, f"played whole from the recorded state, the step succeeds{harmed}", case, error, told)
    if same_error(error, now):
        return Verdict(REPRODUCES, f"played whole from the recorded state, the step fails again: {now}", case, error, told)
    return Verdict(CANNOT_TELL, f"played whole from the recorded state, the step fails otherwise: {now}", case, error, told)


class NotPlayed(Exception):
    """A step cannot be played whole, for a reason that is its text."""
