"""Who is played with whom, and in which order."""

from replay.sides import call, case, request

from rca.replay.gangs import after, gangs, lacking
from rca.replay_trainer.config import Config


def _names(gang):
    return sorted((r.method, r.role, r.rank) for r in gang)


def test_ranks_of_one_call_are_one_gang_and_steps_are_apart():
    found = gangs([request("train_batch", "train", rank, 10 * step + rank, step=step) for step in (1, 2) for rank in (0, 1)])
    assert [_names(gang) for gang in found] == [[("train_batch", "train", 0), ("train_batch", "train", 1)]] * 2


def test_both_ends_of_a_weight_update_are_one_gang():
    found = gangs([request("upload_weights", "train", 0, 1), request("update_weights", "rollout", 0, 2), request("generate", "rollout", 0, 9)])
    assert [len(gang) for gang in found] == [2, 1]


def test_a_worker_is_in_a_gang_once():
    found = gangs([request("save", "train", 0, 1, 2), request("save", "train", 1, 1, 2), request("save", "train", 0, 5, 6), request("save", "train", 1, 5, 6)])
    assert [len(gang) for gang in found] == [2, 2]


def test_attempts_are_apart():
    assert len(gangs([request("load", "train", 0, 1, attempt=1), request("load", "train", 0, 9, attempt=2)])) == 2


def test_what_had_ended_before_is_waited_for():
    first, second = case(request("upload_weights", "train", 0, 1, 5)), case(request("update_weights", "rollout", 0, 6, 9))
    assert after(second, [first, second]) == [first] and after(first, [first, second]) == []
    overlapping = case(request("update_weights", "rollout", 1, 4, 9))
    assert after(overlapping, [first, overlapping]) == []


def test_clocks_of_workers_that_are_wrong_do_not_order_anything():
    """Both were called at once, by one caller; one host is four seconds ahead."""
    early, late = request("upload_weights", "train", 0, 4_000, 4_005), request("update_weights", "rollout", 0, 6, 9)
    calls = [call(request(of.method, of.role, of.rank, start, 20)) for of, start in ((early, 5), (late, 6))]
    both = [case(early, calls[0]), case(late, calls[1])]
    assert after(both[0], both) == after(both[1], both) == []


def test_who_is_missing_is_told():
    """A rank that had died before it began: the others of its world would wait for it in vain, in a replay as in the run."""
    config = Config.of({"train_ranks": 2, "rollout_ranks": 2, "weight_sync": "collective"})
    both = [request("train_batch", "train", rank, rank) for rank in (0, 1)]
    assert lacking(both, config) == [] and lacking(both[:1], config) == ["train_batch of train/1"]
    ends = [request("upload_weights", "train", 0, 1), *(request("update_weights", "rollout", rank, 2) for rank in (0, 1))]
    assert lacking(ends, config) == [] and lacking(ends[:2], config) == ["update_weights of rollout/1"]
    assert lacking(ends[1:], Config.of({"weight_sync": "astate"})) == ["upload_weights of train/0"]
    assert lacking(ends[:1], Config.of({"weight_sync": "astate"})) == []
    assert lacking([request("generate", "rollout", 0, 1)], config) == []


def test_processes_without_a_rank_have_their_place():
    assert len(gangs([request("work", "process", None, 1), request("work", "process", 0, 1)])) == 1
