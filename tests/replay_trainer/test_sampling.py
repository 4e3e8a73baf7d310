"""Sampling: repeatable bit by bit, and the log-probabilities are those of the policy that drew."""

import pytest

torch = pytest.importorskip("torch")

from rca.replay_trainer import sampling, task  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402
from rca.replay_trainer.model import build, device  # noqa: E402

CONFIG = Config(width=16, heads=2, digits=4)


def sharp_model():
    """A model whose answers are far from uniform."""
    model = build(CONFIG)
    with torch.no_grad():
        model.head.weight.mul_(50)
    return model


def draw(seed=1, temperature=1.0, rows=16):
    prompts = task.prompts(CONFIG, 1)[:1].repeat(rows, 1)
    answers, logprobs = sampling.generate(sharp_model(), prompts, 4, temperature, torch.Generator().manual_seed(seed))
    return prompts, answers, logprobs


def test_the_same_generator_gives_the_same_bits():
    """Tokens and log-probabilities; another seed gives others."""
    _, answers, logprobs = draw()
    _, again, logprobs_again = draw()
    assert torch.equal(answers, again)
    assert torch.equal(logprobs, logprobs_again)
    assert not torch.equal(draw(seed=2)[1], answers)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_scores_are_the_log_probabilities_of_the_draw(temperature):
    """One pass without the cache says what the draw with the cache said, up to float error, at any temperature."""
    prompts, answers, logprobs = draw(temperature=temperature)
    with torch.no_grad():
        scored = sampling.score(sharp_model(), prompts, answers, temperature)
    assert answers.shape == logprobs.shape == scored.shape == (16, 4)
    torch.testing.assert_close(logprobs, scored.cpu(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_characters_come_as_often_as_the_policy_says(temperature):
    """Of 20,000 first characters, each within a percent point of its probability at that temperature."""
    prompts, answers, _ = draw(rows=20_000, temperature=temperature)
    with torch.no_grad():
        likely = sharp_model()(prompts[:1].to(device()))[0, -1].div(temperature).softmax(0).cpu()
    seen = torch.bincount(answers[:, 0], minlength=len(task.VOCABULARY)) / 20_000
    torch.testing.assert_close(seen, likely, rtol=0, atol=0.01)


def test_every_token_is_read_once():
    """The cache is used: the prompt goes in whole, then one character at a time."""
    model, lengths = build(CONFIG), []
    model.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    sampling.generate(model, task.prompts(CONFIG, 1), 4, 1.0, task.generator(CONFIG))
    assert lengths == [5, 1, 1, 1]


def test_sampling_keeps_no_gradient():
    """A rollout worker's memory does not grow with what was drawn."""
    assert not draw()[2].requires_grad
