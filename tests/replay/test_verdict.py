"""What the outcomes of requests say of the failure."""

from types import SimpleNamespace

import pytest
from replay.sides import call, case, request

from rca.replay.handovers import first_broken
from rca.replay.outcome import Replayed
from rca.replay.verdict import NotPlayed, decide

TOLD = {"step": 3, "stage": "train", "error": "TrainEngineError: TrainBatchError: Tensor shape mismatch for KL computation: [64, 3] and [32, 3]"}


def _one(of_case, outcome):
    return Replayed(of_case, "ok" if outcome == "does not reproduce" else "error", outcome, f"{of_case.where} {outcome}")


def _failing(**more):
    of = request("train_batch", "train", 0, 50, 60, outcome="error", error="Tensor shape mismatch", **more)
    return case(of, call(of, "error", error="Status code: 500, Tensor shape mismatch"))


def _never():
    raise AssertionError("the whole step is not needed")


def test_what_succeeds_now_does_not_reproduce():
    bad = _failing()
    found = decide(TOLD, [bad], [_one(bad, "does not reproduce")], None, [bad], _never)
    assert found.verdict == "does not reproduce" and found.record()["step"] == 3 and found.record()["stage"] == "train"


def test_what_fails_again_on_sound_input_reproduces():
    bad = _failing()
    assert decide(TOLD, [bad], [_one(bad, "reproduces")], None, [bad], _never).verdict == "reproduces"


def _with_damaged_input():
    of = request("compute_logprobs", "reference", 0, 10, 20, digests={"reference_logprobs": "aa"})
    lost = case(of, call(of, "ok", arrived={"reference_logprobs": "bb"}))
    return lost, _failing()


@pytest.mark.parametrize(("now", "verdict"), [(None, "does not reproduce"), (TOLD["error"], "reproduces"), ("OSError: no space left on device", "cannot tell")])
def test_with_damaged_input_the_whole_step_decides(now, verdict):
    lost, bad = _with_damaged_input()
    played = [_one(lost, "does not reproduce"), _one(bad, "reproduces")]
    found = decide(TOLD, [bad], played, first_broken([lost, bad], bad), [lost, bad], lambda: now)
    assert found.verdict == verdict


def test_a_step_that_cannot_be_played_leaves_it_open():
    lost, bad = _with_damaged_input()

    def cannot():
        raise NotPlayed("its state was not kept")

    found = decide(TOLD, [bad], [_one(bad, "reproduces")], first_broken([lost, bad], bad), [lost, bad], cannot)
    assert found.verdict == "cannot tell" and "was not kept" in found.text


def test_a_file_that_was_read_is_input_as_well():
    bad = _failing(files=[SimpleNamespace(path="/mnt/ckpt/latest/step-000003/model.safetensors")])
    assert decide(TOLD, [bad], [_one(bad, "reproduces")], None, [bad], lambda: None).verdict == "does not reproduce"


def test_other_numbers_outweigh_everything():
    good = case(request("generate", "rollout", 1, 10, 20))
    bad = _failing()
    found = decide(TOLD, [bad], [_one(good, "diverges"), _one(bad, "reproduces")], None, [good, bad], _never)
    assert (found.verdict, found.record()["role"], found.record()["rank"]) == ("diverges", "rollout", 1)


def test_other_numbers_on_another_machine_say_nothing():
    good = case(request("generate", "rollout", 1, 10, 20))
    bad = _failing()
    assert decide(None, [], [_one(good, "diverges")], None, [good], None, False).verdict == "cannot tell"
    assert decide(TOLD, [bad], [_one(good, "diverges"), _one(bad, "reproduces")], None, [good, bad], _never, False).verdict == "reproduces"


CUT = {"step": 3, "stage": "rollout", "error": "FrameworkError: DistributedBatchMemoryError: Batch size mismatch"}


def test_what_was_survived_is_not_the_failure():
    """A worker failed and was passed over; then the controller failed by itself. That the worker succeeds now says nothing of the controller."""
    of = request("generate", "rollout", 1, 10, 20, outcome="error", error="worker was killed", stage="rollout")
    survived = case(of, call(of, "error", error="Status code: 500, worker was killed"))
    for outcome in ("does not reproduce", "reproduces"):
        assert decide(CUT, [survived], [_one(survived, outcome)], None, [survived], lambda: CUT["error"]).verdict == "reproduces"
        assert decide(CUT, [survived], [_one(survived, outcome)], None, [survived], lambda: None).text.startswith("played whole")


def test_an_error_that_is_open_is_not_answered_by_those_beside_it():
    """Others of the step had lost their caller when it failed; they go well now, and the one that failed cannot be played."""
    bad = _failing()
    beside = request("train_batch", "train", 1, 50, 60)
    lost = case(beside, call(beside, None))
    played = [_one(bad, "cannot tell"), _one(lost, "does not reproduce")]
    assert decide(TOLD, [bad, lost], played, None, [bad, lost], lambda: "OSError: no space left on device").verdict == "cannot tell"
    assert decide(TOLD, [bad, lost], played, None, [bad, lost], lambda: TOLD["error"]).verdict == "reproduces"


def test_other_numbers_of_everybody_are_no_bad_machine():
    goods = [case(request("generate", "rollout", rank, 10 + rank, 20)) for rank in range(4)]
    others = [Replayed(each, "ok", "diverges", "other numbers") for each in goods]
    assert decide(None, [], others, None, goods, None).verdict == "cannot tell"
    assert decide(None, [], [*others[:3], Replayed(goods[3], "ok", "reproduces", "same bits")], None, goods, None).verdict == "diverges"
