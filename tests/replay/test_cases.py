"""Which requests a failure consists of."""

import pytest
from replay.sides import call, case, request

from rca.replay.cases import failed, speaks_of


def _bad(step, stage="rollout", attempt=1, start=0, error="out of memory"):
    of = request("generate", "rollout", 0, start or 10 * (step or 0), 99, step=step, stage=stage, attempt=attempt, outcome="error", error=error)
    return case(of, call(of, "error", error=f"Status code: 500, {error}"))


def _good(step, attempt=1):
    return case(request("generate", "rollout", 0, 10 * step, 10 * step + 5, step=step, stage="rollout", attempt=attempt))


def test_what_was_survived_in_an_earlier_step_is_no_part_of_it():
    cases = [_bad(2), _good(7)]
    assert failed(cases, {"step": 7, "stage": "train", "error": "FrameworkError: event was not confirmed"}) == []
    assert failed(cases, {"step": None, "stage": "cleanup", "error": "SchedulerError: Failed to stop job"}) == []
    assert failed(cases, None) == []  # broke off in step 7, of which nothing failed


def test_the_stage_that_is_named_comes_first_then_the_step():
    there, other = _bad(7), _bad(7, stage="reference", start=80)
    assert failed([_bad(2), there, other], {"step": 7, "stage": "rollout"}) == [there]
    assert failed([_bad(2), there, other], {"step": 7, "stage": "train"}) == [there, other]


def test_steps_that_were_done_twice_count_in_the_last_attempt():
    first, again = _bad(4), _bad(4, attempt=2, start=400)
    assert failed([first, again], {"step": 4, "stage": "rollout"}) == [again]
    assert failed([first, _good(4, attempt=2)], {"step": 4, "stage": "rollout"}) == []


@pytest.mark.parametrize(
    ("error", "spoken"),
    [
        ("InferenceEngineError: RolloutError: Status code: 500, out of memory (rollout/0)", True),
        ("InferenceEngineError: RolloutError: Server disconnected (rollout/0)", True),
        ("FrameworkError: DistributedBatchMemoryError: Batch size mismatch", False),
        ("InferenceEngineError: RolloutError: Server disconnected (rollout/1)", False),
        (None, True),
    ],
)
def test_whose_error_it_is(error, spoken):
    assert speaks_of(error, _bad(3)) is spoken
