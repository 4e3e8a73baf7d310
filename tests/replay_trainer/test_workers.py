"""What a worker is asked to compute is looked at first: a wrong call is refused in words and leaves the worker as it was."""

import asyncio

import pytest

torch = pytest.importorskip("torch")
httpx = pytest.importorskip("httpx")

from starlette.applications import Starlette  # noqa: E402

from rca.replay_trainer import meta_server, reference, rollout, task, train  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402

CONFIG = Config(prompts=2, group=2, width=16, heads=2, layers=1, train_ranks=1, rollout_ranks=1, weight_sync="disk")


@pytest.mark.parametrize("bad", [11, -1, 1 << 40])
def test_tokens_outside_the_vocabulary_are_refused_by_every_role(tmp_path, bad):
    prompts, answers = task.prompts(CONFIG, 1), torch.zeros(4, 3, dtype=torch.long)
    whole = prompts.repeat_interleave(2, 0)
    wrong_prompts, wrong_answers = prompts.clone(), answers.clone()
    wrong_prompts[1, 0] = wrong_answers[3, 2] = bad
    says = r"hold tokens from -?\d+ to \d+, the vocabulary has 0 to 10"
    rolling = rollout.service(CONFIG, tmp_path, 0, "127.0.0.1").engine
    with pytest.raises(ValueError, match=f"^prompts {says}"):
        rolling["generate"]({"prompts": wrong_prompts, "step": 1})
    referring = reference.service(CONFIG, tmp_path, 0, "127.0.0.1").engine
    with pytest.raises(ValueError, match=f"^answers {says}"):
        referring["compute_logprobs"]({"prompts": whole, "answers": wrong_answers, "step": 1})
    training = train.service(CONFIG, tmp_path, 0, "127.0.0.1").engine
    before = training["load"]({})["digest"]
    batch = {"prompts": whole, "answers": wrong_answers, "logprobs": torch.zeros(4, 3), "advantages": torch.ones(4), "step": 1}
    with pytest.raises(ValueError, match=f"^answers {says}"):
        training["train_batch"](batch)
    with pytest.raises(ValueError, match=r"^prompts must be whole numbers of 64 bits: torch\.float32"):
        training["train_batch"](batch | {"answers": answers, "prompts": whole.float()})
    assert training["load"]({})["digest"] == before
    assert training["train_batch"](batch | {"answers": answers})["digest"] != before


def test_samples_depend_on_seed_step_and_rank_alone(tmp_path):
    """So a run that was resumed draws what the lost one would have drawn."""
    first, again, other = (rollout.service(CONFIG, tmp_path / str(n), rank, "127.0.0.1").engine["generate"] for n, rank in ((0, 0), (1, 0), (2, 1)))
    asked = {"prompts": task.prompts(CONFIG, 5), "step": 5}
    first({"prompts": task.prompts(CONFIG, 4), "step": 4})
    drawn = first(dict(asked))["answers"]
    assert torch.equal(drawn, again(dict(asked))["answers"])
    assert not torch.equal(drawn, other(dict(asked))["answers"])
    assert not torch.equal(drawn, again(asked | {"step": 6})["answers"])


@pytest.mark.parametrize("change", [{"prompts": torch.zeros(3, 4, dtype=torch.long)}, {"answers": torch.zeros(4, 2, dtype=torch.long)}])
def test_a_share_of_another_shape_is_refused(tmp_path, change):
    asked = {"prompts": torch.zeros(4, 4, dtype=torch.long), "answers": torch.zeros(4, 3, dtype=torch.long), "step": 1}
    with pytest.raises(ValueError, match=r"^Invalid tensor shape: expected \[4, 4\] and \[4, 3\], got"):
        reference.service(CONFIG, tmp_path, 0, "127.0.0.1").engine["compute_logprobs"](asked | change)


def test_colocated_roles_take_turns_or_collide(tmp_path):
    """Without the event that hands the device over, the second finds it full, as on a GPU."""
    config = Config(prompts=2, group=2, width=16, heads=2, layers=1, train_ranks=1, rollout_ranks=1, weight_sync="disk", colocated=True)
    training, rolling = train.service(config, tmp_path, 0, "127.0.0.1"), rollout.service(config, tmp_path, 0, "127.0.0.1")
    training.engine["load"]({})
    rolling.engine["load"]({})
    asked = {"prompts": task.prompts(config, 1), "step": 1}
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        rolling.engine["generate"](asked)
    training.beside["event"]({"name": "rollout_start", "number": "1", "step": 1})
    samples = rolling.engine["generate"](asked)
    batch = {**samples, "prompts": asked["prompts"].repeat_interleave(2, 0), "advantages": samples.pop("rewards"), "step": 1}
    with pytest.raises(torch.OutOfMemoryError):
        training.engine["train_batch"](batch)
    rolling.beside["event"]({"name": "train_start", "number": "2", "step": 1})
    training.engine["train_batch"](batch)


def asked(config, folder, *calls):
    """What a MetaServer answers to (method, path, body), one after the other."""

    async def ask():
        transport = httpx.ASGITransport(Starlette(routes=meta_server.service(config, folder, 0, "").routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://meta") as client:
            return [await client.request(method, path, content=body) for method, path, body in calls]

    return asyncio.run(ask())


def put(version, body=b"x" * 10):
    return ("PUT", f"/v1/put_binary?key=weights/{version}", body)


def get(version, more=""):
    return ("GET", f"/v1/get_binary?key=weights/{version}{more}", b"")


def test_the_meta_server_keeps_the_newest_versions(tmp_path):
    """And waits a while for one that is on its way."""
    found = asked(Config(meta_server_keeps=2), tmp_path, put(9), put(10), put(11, b"newest"), get(9), get(10), get(11), get(12, "&wait_s=0.05"))
    assert [answer.status_code for answer in found] == [200, 200, 200, 404, 200, 200, 404]
    assert found[5].content == b"newest"
    assert [answer.json()["bytes"] for answer in asked(Config(meta_server_keeps=0), tmp_path, *map(put, range(4)))] == [10, 20, 30, 40]


def test_the_meta_server_refuses_calls_that_make_no_sense(tmp_path):
    found = asked(Config(), tmp_path, ("GET", "/v1/get_binary", b""), ("PUT", "/v1/put_binary", b""), get(1, "&wait_s=soon"))
    assert [answer.status_code for answer in found] == [400, 400, 400]
