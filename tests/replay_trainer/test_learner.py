"""A train rank: many ranks on shards are one rank on the whole, and a saved state goes on as if nothing had happened."""

import dataclasses
import math
import threading

import pytest

torch = pytest.importorskip("torch")

from rca.replay_trainer import grpo, sampling, task  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402
from rca.replay_trainer.learner import LONGEST_GRADIENT, Learner  # noqa: E402
from rca.replay_trainer.model import build, digest  # noqa: E402

CONFIG = Config(width=16, heads=2, prompts=4, group=4, updates=2, kl_weight=0.01)
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def one_thread():
    """For tensors this small a second thread costs more than it gives: twenty times the time where another process has the core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def batch(step=1, config=CONFIG):
    """What one step of the loop gives to the train ranks: of a policy that is not the one that is trained, so that ratios are not 1."""
    old = build(Config(width=16, heads=2, seed=99))
    prompts = task.prompts(config, step).repeat_interleave(config.group, 0)
    answers, logprobs = sampling.generate(old, prompts, 3, 1.0, task.generator(config, "rollout", step))
    with torch.no_grad():
        reference = sampling.score(build(config), prompts, answers, 1.0).cpu()
    gain = grpo.advantages(torch.rand(len(prompts), generator=task.generator(config, "rewards", step)), config.group)
    mask = torch.rand(answers.shape, generator=task.generator(config, "mask", step)) < 0.8
    return prompts, answers, logprobs, gain, reference, mask


class Ranks:
    """A stand-in for a process group: threads that meet at a barrier and add up what they bring."""

    def __init__(self, size):
        self.meeting, self.brought, self.size = threading.Barrier(size, timeout=TIMEOUT_S), {}, size
        self.lengths = set()

    def all_reduce(self, rank):
        def add(tensor):
            self.brought[rank] = tensor.clone()
            self.lengths.add(tensor.numel())
            self.meeting.wait()
            tensor.copy_(sum(self.brought[r] for r in range(self.size)))
            self.meeting.wait()

        return add

    def run(self, shards, steps=2):
        """Learners after `steps` updates, rank r on the rows `shards[r]` of each batch, and what each logged last."""
        done = {}

        def work(rank):
            learner = Learner(CONFIG, self.size, rank, self.all_reduce(rank))
            for step in range(1, steps + 1):
                stats = learner.update(*(t[shards[rank]] for t in batch(step)))
            done[rank] = learner, stats

        threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
        return [done[r] for r in range(self.size)]


@pytest.mark.parametrize(
    "shards",
    [
        [slice(0, 8), slice(8, 16)],
        [slice(0, 4), slice(4, 8), slice(8, 12), slice(12, 16)],
        [slice(0, 13), slice(13, 16)],
        [slice(0, 16), slice(16, 16)],
    ],
    ids=["two", "four", "uneven", "one without rows"],
)
def test_ranks_on_shards_are_one_rank_on_the_whole(shards):
    """The weights agree up to float error, are the same bits on all ranks, and every rank logs the figures of the whole batch."""
    alone = Learner(CONFIG)
    for step in (1, 2):
        stats = alone.update(*batch(step))
    ranks = Ranks(len(shards)).run(shards)
    assert len({learner.digest() for learner, _ in ranks}) == 1
    for learner, seen in ranks:
        assert learner.step == 4
        assert seen == pytest.approx(stats, rel=1e-4, abs=1e-6)
        for name, value in alone.weights().items():
            torch.testing.assert_close(learner.weights()[name], value, rtol=1e-4, atol=2e-5)


def test_one_buffer_is_summed_for_each_optimizer_step():
    """Its length is that of the weights and five figures, whatever the shard."""
    buffers = []
    learner = Learner(CONFIG, 2, 0, lambda tensor: buffers.append(tensor.numel()))
    learner.update(*batch())
    assert buffers == [sum(w.numel() for w in learner.weights().values()) + 5] * CONFIG.updates


def test_a_step_makes_good_answers_likelier():
    """Those with a positive advantage gain log-probability, those with a negative lose, in the mean."""
    learner = Learner(CONFIG)
    prompts, answers, _, gain, _, _ = batch()
    before = learner.logprobs(prompts, answers)
    learner.update(prompts, answers, before, gain)
    change = (learner.logprobs(prompts, answers) - before).mean(1)
    assert float((change * gain).mean()) > 0


def test_a_loaded_state_goes_on_bit_by_bit():
    """Saved after one update and loaded elsewhere, the next update gives the same bits as without the break; the moments matter."""
    learner, other, forgetful = Learner(CONFIG), Learner(CONFIG), Learner(CONFIG)
    learner.update(*batch(1))
    state = learner.state()
    assert set(state) == {"step"} | {f"{kind}.{name}" for kind in ("weights", "adam.mean", "adam.square") for name in learner.weights()}
    assert all(value.is_contiguous() for value in state.values())
    learner.update(*batch(2))
    other.load(state)
    forgetful.load({name: torch.zeros_like(value) if name.startswith("adam") else value for name, value in state.items()})
    for again in (other, forgetful):
        again.update(*batch(2))
    assert other.digest() == learner.digest() != forgetful.digest()
    assert other.step == learner.step == 4


def test_a_state_is_a_copy():
    """Learning on does not change what was taken to be saved, nor does learning change what was loaded."""
    learner = Learner(CONFIG)
    learner.update(*batch(1))
    state, weights = learner.state(), learner.weights()
    kept = {name: value.clone() for name, value in state.items()}
    learner.load(state)
    learner.update(*batch(2))
    assert all(torch.equal(state[name], kept[name]) for name in kept)
    assert all(torch.equal(weights[name], kept[f"weights.{name}"]) for name in weights)


def test_the_first_state_can_be_loaded():
    """Before the first step, moments are zeros; a learner that went on goes back to the very start."""
    learner, fresh = Learner(CONFIG), Learner(CONFIG)
    first = learner.state()
    learner.update(*batch(1))
    learner.load(first)
    assert learner.step == 0
    assert learner.digest() == fresh.digest()
    assert learner.update(*batch(1)) == fresh.update(*batch(1))
    assert learner.digest() == fresh.digest()


@pytest.mark.parametrize("spoil", ["missing", "shape", "kind"])
def test_a_state_that_does_not_fit_changes_nothing(spoil):
    """The tensor is named, and the learner is as it was."""
    learner, state = Learner(CONFIG), Learner(CONFIG).state()
    before = learner.digest()
    state["weights.token.weight"] += 1
    name = "adam.square.head.weight"
    if spoil == "missing":
        del state[name]
    else:
        state[name] = state[name][:-1] if spoil == "shape" else state[name].double()
    with pytest.raises(ValueError, match=name):
        learner.load(state)
    assert learner.digest() == before


def test_a_rollout_worker_draws_from_the_weights_it_was_given():
    """Their fingerprint is the learner's, and the log-probabilities of what it draws are those that the learner finds."""
    learner, worker = Learner(CONFIG), build(Config(width=16, heads=2, seed=99))
    learner.update(*batch(1))
    worker.load_state_dict(learner.weights())
    assert digest(worker.state_dict()) == learner.digest()
    prompts = task.prompts(CONFIG, 2)
    answers, logprobs = sampling.generate(worker, prompts, 3, CONFIG.temperature, task.generator(CONFIG, "rollout", 2))
    torch.testing.assert_close(learner.logprobs(prompts, answers), logprobs, rtol=1e-5, atol=1e-6)


def test_the_second_step_on_a_batch_is_held_by_the_bounds():
    """The first step's ratios are 1; later ones move and some are clipped."""
    prompts, answers, _, gain, _, _ = batch()
    seen = {}
    for updates in (1, 8):
        learner = Learner(dataclasses.replace(CONFIG, updates=updates, learning_rate=0.01))
        seen[updates] = learner.update(prompts, answers, learner.logprobs(prompts, answers), gain)
    assert seen[1]["ratio"] == pytest.approx(1, abs=1e-5)
    assert seen[1]["clip_share"] == 0 < seen[8]["clip_share"]


@pytest.mark.parametrize("scale", [0.1, 1000.0])
def test_a_long_gradient_is_shortened(scale):
    """The optimizer's first mean is a tenth of the gradient that it was given: as long as told where that is short, else a tenth of the bound."""
    learner = Learner(dataclasses.replace(CONFIG, updates=1))
    prompts, answers, _, gain, _, _ = batch()
    told = learner.update(prompts, answers, learner.logprobs(prompts, answers), gain * scale)["grad_norm"]
    given = torch.cat([value.reshape(-1) for name, value in learner.state().items() if name.startswith("adam.mean")])
    assert (told > LONGEST_GRADIENT) == (scale > 1)
    assert float(given.norm()) == pytest.approx(0.1 * min(told, LONGEST_GRADIENT), rel=1e-4)


def test_a_gradient_that_is_not_finite_changes_nothing():
    """One reward that is no number reaches every rank; none of them steps."""
    learner = Learner(CONFIG)
    prompts, answers, old, gain, reference, mask = batch()
    before = learner.state()
    with pytest.raises(ArithmeticError, match="optimizer step 1 is not finite"):
        learner.update(prompts, answers, old, gain * math.nan, reference, mask)
    assert all(torch.equal(value, before[name]) for name, value in learner.state().items())


def test_a_shard_of_other_shape_is_refused_before_the_ranks_meet():
    """The reference's answers for half the rows: both shapes are named, and no other rank waits for us in the middle of a sum."""
    called = []
    learner = Learner(CONFIG, 2, 0, called.append)
    prompts, answers, old, gain, reference, mask = batch()
    with pytest.raises(ValueError, match=r"\(16, 3\).*reference.*\(8, 3\)"):
        learner.update(prompts, answers, old, gain, reference[:8], mask)
    assert not called


def test_ranks_without_a_sum_are_refused():
    """Two ranks that do not talk would drift apart in silence."""
    with pytest.raises(ValueError, match="2 ranks"):
        Learner(CONFIG, world_size=2)


def test_states_are_numbers_that_safetensors_can_hold(tmp_path):
    """Written and read again, the state is the same."""
    files = pytest.importorskip("safetensors.torch")
    learner = Learner(CONFIG)
    learner.update(*batch(1))
    files.save_file(learner.state(), tmp_path / "state.safetensors")
    other = Learner(CONFIG)
    other.load(files.load_file(tmp_path / "state.safetensors"))
    assert other.digest() == learner.digest()
    assert other.step == learner.step


def test_the_task_is_learned():
    """With the settings as they are, forty steps bring the mean reward from chance to 0.8 and more."""
    config = Config(steps=40)
    learner, reference, seen = Learner(config), build(config), []
    for step in range(1, config.steps + 1):
        prompts = task.prompts(config, step).repeat_interleave(config.group, 0)
        answers, old = sampling.generate(learner.model, prompts, task.answer_length(config), config.temperature, task.generator(config, "rollout", step))
        with torch.no_grad():
            known = sampling.score(reference, prompts, answers, config.temperature).cpu()
        rewards = task.rewards(prompts, answers)
        learner.update(prompts, answers, old, grpo.advantages(rewards, config.group), known)
        seen.append(float(rewards.mean()))
    assert sum(seen[:5]) / 5 < 2 * task.chance(config)
    assert sum(seen[-5:]) / 5 >= 0.8
