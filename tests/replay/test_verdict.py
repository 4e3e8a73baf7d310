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
