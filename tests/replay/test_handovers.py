"""The first hand-over whose ends differ."""

from replay.sides import call, case, request

from rca.replay.cases import Case, failed
from rca.replay.handovers import broken, first_broken


def test_equal_ends_are_whole():
    of = request("generate", "rollout", 1, 10, 20, digests={"answers": "aa"})
    assert broken(case(of, call(of, arrived={"answers": "aa"}))) is None


def test_an_answer_that_changed_on_its_way():
    of = request("compute_logprobs", "reference", 0, 10, 20, digests={"reference_logprobs": "aa"})
    found = broken(case(of, call(of, arrived={"reference_logprobs": "bb"})))
    assert (found.sender, found.receiver) == ("reference/0", "controller") and "reference_logprobs" in found.text
    assert case(of, call(of, arrived={"reference_logprobs": "bb"})).recorded == "lost"


def test_arguments_that_changed_on_their_way():
    of = request("train_batch", "train", 0, 10, 20, args={"answers": "aa"})
    found = broken(case(of, call(of, sent={"answers": "bb"})))
    assert (found.sender, found.receiver) == ("controller", "train/0")


def test_an_answer_that_never_came():
    of = request("generate", "rollout", 1, 10, 20, digests={"answers": "aa"})
    found = broken(case(of, call(of, "error", error="Request timeout after 8 s")))
    assert found.sender == "rollout/1" and "did not arrive" in found.text


def test_an_answer_that_broke_off_and_was_used():
    of = request("compute_logprobs", "reference", 0, 10, outcome=None)
    assert "broke off" in broken(case(of, call(of, "ok", arrived={"reference_logprobs": "bb"}))).text


def test_a_request_that_never_reached_its_worker():
    of = request("event", "train", 1, 10)
    found = broken(Case(None, call(of, "error", error="timeout")))
    assert (found.sender, found.receiver) == ("controller", "train/1")


def test_an_error_of_the_worker_is_no_broken_hand_over():
    of = request("train_batch", "train", 0, 10, 20, outcome="error", error="out of memory")
    assert broken(case(of, call(of, "error", error="Status code: 500, out of memory"))) is None


def test_the_step_of_the_failure_comes_before_what_an_earlier_step_survived():
    early = request("generate", "rollout", 0, 10, 20, step=2, digests={"answers": "aa"})
    late = request("generate", "rollout", 1, 110, 120, step=3, digests={"answers": "aa"})
    end = request("compute_logprobs", "reference", 0, 150, 160, step=3, outcome="error", error="Invalid tensor shape")
    ordered = [case(early, call(early, "error", error="timeout")), case(late, call(late, "error", error="timeout")), case(end)]
    assert first_broken(ordered, ordered[2]).case is ordered[1]
    assert first_broken(ordered).case is ordered[0]
    assert first_broken([ordered[0], ordered[2]], ordered[2]).case is ordered[0]


def test_the_failure_is_what_the_run_says_of_itself():
    lost = request("generate", "rollout", 1, 10, 20, stage="rollout", outcome=None)
    wrong = request("compute_logprobs", "reference", 0, 30, 40, stage="reference", outcome="error", error="Invalid tensor shape")
    well = request("generate", "rollout", 0, 10, 20, stage="rollout")
    cases = [case(lost, call(lost, "error")), case(well, call(well)), case(wrong, call(wrong, "error"))]
    assert failed(cases, {"step": 3, "stage": "reference"}) == [cases[2]]
    assert failed(cases, {"step": 3, "stage": "train"}) == [cases[0], cases[2]]  # the controller's own failure: what went wrong in that step
    assert failed(cases, None) == [cases[0], cases[2]]


def test_only_the_last_attempt_is_the_failure():
    crash = request("generate", "rollout", 0, 10, outcome=None, step=5, attempt=1)
    load = request("load", "train", 0, 100, 110, outcome="error", step=None, stage="recover", attempt=2, error="Corrupted file")
    assert failed([case(crash), case(load)], {"step": None, "stage": "recover"}) == [case(load)]
