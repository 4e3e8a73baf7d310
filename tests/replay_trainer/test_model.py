"""The policy's model: the same at the start on all processes, causal, and the cache changes nothing."""

import pytest

torch = pytest.importorskip("torch")

from rca.replay_trainer import task  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402
from rca.replay_trainer.model import Cache, build, device, digest  # noqa: E402

CONFIG = Config(width=16, heads=2, digits=4)


def rows(count=5, length=8):
    return torch.randint(len(task.VOCABULARY), (count, length), generator=task.generator(CONFIG, "rows")).to(device())


def test_the_model_is_made_from_the_seed():
    """Two builds are the same bits whatever torch's own generator holds; another seed is another model."""
    torch.manual_seed(1)
    first = digest(build(CONFIG).state_dict())
    torch.manual_seed(2)
    assert digest(build(CONFIG).state_dict()) == first
    assert digest(build(Config(width=16, heads=2, digits=4, seed=8)).state_dict()) != first


@torch.no_grad()
def test_the_first_policy_is_nearly_uniform():
    """Every character of the vocabulary has a fair chance to be tried."""
    likely = build(CONFIG)(rows()).softmax(2)
    assert float(likely.min()) > 0.5 / len(task.VOCABULARY)
    assert float(likely.max()) < 2 / len(task.VOCABULARY)


@torch.no_grad()
def test_no_token_sees_a_later_one():
    """Another last token changes the logits at its own place and nowhere before."""
    model, tokens = build(CONFIG), rows()
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % len(task.VOCABULARY)
    one, two = model(tokens), model(other)
    assert torch.equal(one[:, :-1], two[:, :-1])
    assert not torch.equal(one[:, -1], two[:, -1])


@torch.no_grad()
@pytest.mark.parametrize("parts", [(5, 1, 1, 1), (1,) * 8, (3, 5), (8,)])
def test_logits_with_the_cache_are_those_without(parts):
    """However the string is cut, up to float error."""
    model, tokens, cache = build(CONFIG), rows(), Cache()
    cut = [model(part, cache) for part in tokens.split(parts, 1)]
    assert cache.length == 8
    torch.testing.assert_close(torch.cat(cut, 1), model(tokens), rtol=1e-5, atol=1e-6)


def test_a_string_that_is_too_long_is_refused():
    """With and without a cache, and both lengths are told."""
    model = build(CONFIG)
    with pytest.raises(ValueError, match=r"10 tokens.* 9"):
        model(rows(length=10))
    cache = Cache()
    model(rows(), cache)
    with pytest.raises(ValueError, match=r"10 tokens.* 9"):
        model(rows(length=2), cache)


def test_a_fingerprint_sees_one_bit():
    """Not the order of names, but every value, name and shape."""
    weights = {"b": torch.zeros(2, 3), "a": torch.ones(4)}
    assert digest(weights) == digest(dict(reversed(weights.items())))
    changed = {**weights, "b": torch.zeros(2, 3)}
    changed["b"][1, 2] = -0.0
    assert len({digest(w) for w in (weights, changed, {**weights, "b": torch.zeros(3, 2)}, {"c": weights["b"], "a": weights["a"]})}) == 4
    assert len(digest(weights)) == 12
