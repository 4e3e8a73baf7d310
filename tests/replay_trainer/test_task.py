"""The task: the same prompts everywhere, and rewards that can be checked by eye."""

import pytest

torch = pytest.importorskip("torch")

from rca.replay_trainer import task  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402


def tokens(*strings):
    return torch.tensor([[task.VOCABULARY.index(c) for c in s] for s in strings])


def test_prompts_depend_on_seed_and_step_alone():
    """Two processes and two attempts see the same prompts; another step or seed has others; torch's own generator is left alone."""
    config = Config(prompts=4, train_ranks=1)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = task.prompts(config, 3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(task.prompts(config, 3), first)
    assert not torch.equal(task.prompts(config, 4), first)
    assert not torch.equal(task.prompts(Config(prompts=4, seed=config.seed + 1), 3), first)


def test_prompts_have_the_shape_that_is_told():
    """P rows of L tokens: digits, then the separator."""
    config = Config(digits=5, prompts=6, train_ranks=1, reference_ranks=1)
    drawn = task.prompts(config, 1)
    assert drawn.dtype == torch.int64
    assert drawn.shape == (6, task.prompt_length(config)) == (6, 6)
    assert int(drawn[:, :-1].max()) <= 9
    assert set(drawn[:, -1].tolist()) == {task.SEPARATOR}
    assert task.answer_length(config) == 5


def test_rewards_are_the_share_of_right_characters():
    """All, two of three, one, none."""
    prompts = tokens("482>", "482>", "482>", "482>")
    answers = tokens("284", "280", "580", "4>7")
    assert task.rewards(prompts, answers).tolist() == pytest.approx([1, 2 / 3, 1 / 3, 0])
    assert task.text(task.truth(prompts[:1])) == ["284"]


def test_answers_of_another_length_are_refused():
    """Both shapes are named."""
    with pytest.raises(ValueError, match=r"\(1, 2\).*\(1, 4\)"):
        task.rewards(tokens("482>"), tokens("28"))


def test_chance_is_what_random_answers_get():
    """Over many random answers the mean reward comes near what `chance` says."""
    config = Config(prompts=20_000, train_ranks=1)
    prompts = task.prompts(config, 0)
    answers = torch.randint(len(task.VOCABULARY), (20_000, 3), generator=task.generator(config, "answers"))
    assert float(task.rewards(prompts, answers).mean()) == pytest.approx(task.chance(config), abs=0.005)


def test_generators_of_different_names_differ():
    """Neither step and worker nor their order are mixed up."""
    config = Config()
    drawn = {int(torch.randint(2**62, (1,), generator=task.generator(config, *names))) for names in ((1, 2), (2, 1), (12,), ("1", 2), ())}
    assert len(drawn) == 5
