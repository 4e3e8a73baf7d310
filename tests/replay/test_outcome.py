"""What comes of one request that is played again, and does not end well."""

import pytest
from replay.sides import call, case, request

from rca.replay.answer import DIED, GIVEN_UP, HUNG, Answer
from rca.replay.compare import Difference
from rca.replay.outcome import Replayed, blamed, judged

ERROR, UNFINISHED = "error", None
SLOW, GONE = "Request timeout after 20 s (train/0)", "RemoteProtocolError: Server disconnected (train/0)"


@pytest.mark.parametrize(
    ("then", "text", "seen", "how", "outcome"),
    [
        (UNFINISHED, None, SLOW, HUNG, "reproduces"),
        (UNFINISHED, None, GONE, DIED, "reproduces"),
        (UNFINISHED, None, SLOW, DIED, "cannot tell"),  # it hung, and its process ends now
        (UNFINISHED, None, GONE, HUNG, "cannot tell"),
        (UNFINISHED, None, SLOW, GIVEN_UP, "cannot tell"),  # it only waits for another, which failed
        (UNFINISHED, None, SLOW, None, "cannot tell"),
        (ERROR, "shapes do not fit", "Status code: 500, shapes do not fit", HUNG, "cannot tell"),
        (ERROR, "Timed out waiting 8000ms for recv operation", "Status code: 500, Timed out", HUNG, "reproduces"),
    ],
)
def test_what_does_not_end_must_not_end_in_the_same_way(then, text, seen, how, outcome):
    of = request("train_batch", "train", 0, 1, 2, outcome=then, error=text)
    assert judged(case(of, call(of, "error", error=seen)), Answer("unfinished", error="no answer", how=how), None, None).outcome == outcome


def test_what_is_only_slow_is_no_hang():
    of = request("train_batch", "train", 0, 1, outcome=None)
    found = judged(case(of, call(of, "error", error=SLOW)), Answer("unfinished", how=HUNG), None, None, patient=False)
    assert found.outcome == "cannot tell" and "--patience" in found.text


def test_a_request_that_was_killed_and_fails_now_is_another_failure():
    of = request("generate", "rollout", 0, 1, outcome=None)
    assert judged(case(of, call(of, "error", error=GONE)), Answer("error", error="no such device"), None, None).outcome == "cannot tell"


def test_errors_without_words_are_not_the_same():
    of = request("generate", "rollout", 0, 1, 2, outcome="error", error="")
    assert judged(case(of, call(of, "error", error="")), Answer("error", error=""), None, None).outcome == "cannot tell"


def test_ranks_that_add_up_a_wrong_number_differ_because_of_the_one_that_computed_it():
    wrong, right = (case(request("train_batch", "train", rank, 1, 9)) for rank in (1, 0))
    gang = [Replayed(right, "ok", "diverges", "x", Difference("computed.1", None, "a", "b")), Replayed(wrong, "ok", "diverges", "y", Difference("computed.0", None, "a", "c"))]
    assert [one.because_of for one in blamed(gang)] == ["train/1", None]
    assert [one.because_of for one in blamed(gang[:1])] == [None]


def test_a_part_that_was_not_recorded_is_another_program_and_no_wrong_number():
    of = case(request("generate", "rollout", 0, 1, 9))
    found = judged(of, Answer("ok", {"answers": 1, "more": 2}), {"answers": 1}, None)
    assert found.outcome == "cannot tell" and "another version" in found.text
