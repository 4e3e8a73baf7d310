"""GRPO by hand: advantages, the clipped loss, the divergence, and the signs of their gradients."""

import math

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rca.replay_trainer import grpo  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402

CONFIG = Config(clip_low=0.2, clip_high=0.28, kl_weight=0.1)
SHARES = st.integers(0, 12).map(lambda n: n / 12)
#: Ratios 1, 2, 0.5, 1.1 of new to old probabilities, in two rows of two tokens.
OLD = torch.tensor([[0.5, 0.2], [0.8, 0.5]]).log()
NEW = torch.tensor([[0.5, 0.4], [0.4, 0.55]]).log()


def test_advantages_by_hand():
    """Groups of four: one right of four is sqrt(3) deviations above, a group without spread counts nothing."""
    rewards = torch.tensor([1.0, 0, 0, 0, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1, 1, 0, 0])
    third = 1 / math.sqrt(3)
    assert grpo.advantages(rewards, 4).tolist() == pytest.approx([3 * third, -third, -third, -third, 0, 0, 0, 0, 1, 1, -1, -1])


@given(st.lists(st.lists(SHARES, min_size=5, max_size=5), min_size=1, max_size=6))
@settings(deadline=None)
def test_advantages_are_relative_to_the_group(groups):
    """In each group the mean is 0 and the deviation 1, or all are 0 where all rewards are equal; better is never less; order and other groups do not matter."""
    rewards = torch.tensor(groups)
    found = grpo.advantages(rewards.view(-1), 5).view(-1, 5)
    for mine, given_rewards in zip(found, rewards, strict=True):
        assert float(mine.mean()) == pytest.approx(0, abs=1e-5)
        assert float(mine.square().mean()) == pytest.approx(float(len(set(given_rewards.tolist())) > 1), abs=1e-4)
        assert torch.equal(mine[given_rewards.argsort()], mine.sort().values)
        torch.testing.assert_close(grpo.advantages(given_rewards.flip(0), 5).flip(0), mine, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grpo.advantages(rewards.view(-1) * 0.5 + 0.25, 5).view(-1, 5), found, rtol=1e-4, atol=1e-4)


def test_rewards_that_cannot_be_compared_are_refused():
    """Half a group, and a reward that is no number."""
    with pytest.raises(ValueError, match=r"\(6,\).*groups of 4"):
        grpo.advantages(torch.zeros(6), 4)
    with pytest.raises(ValueError, match="not finite: 1 of 4"):
        grpo.advantages(torch.tensor([0, 1, math.nan, 0]), 4)


def test_log_probabilities_by_hand():
    """softmax([0, ln 3]) = [1/4, 3/4]; at temperature 2 it is [1, sqrt 3] / (1 + sqrt 3)."""
    logits = torch.tensor([[[0.0, math.log(3)], [0.0, math.log(3)]]])
    tokens = torch.tensor([[0, 1]])
    assert grpo.token_logprobs(logits, tokens, 1.0).exp()[0].tolist() == pytest.approx([0.25, 0.75])
    root = math.sqrt(3)
    assert grpo.token_logprobs(logits, tokens, 2.0).exp()[0].tolist() == pytest.approx([1 / (1 + root), root / (1 + root)])


def test_divergence_by_hand():
    """Probability 1/2 where the reference has 1/4: r = 1/2, k3 = r - 1 - ln r = -1/2 + ln 2; none where they agree."""
    found = grpo.kl(torch.tensor([[0.5, 0.3]]).log(), torch.tensor([[0.25, 0.3]]).log())
    assert found[0].tolist() == pytest.approx([math.log(2) - 0.5, 0])


@given(st.lists(st.tuples(st.floats(-20, 0, width=32), st.floats(-20, 0, width=32)), min_size=1, max_size=8))
@settings(deadline=None)
def test_divergence_is_never_negative(pairs):
    """Whatever the two log-probabilities, and zero where they are equal."""
    one, two = torch.tensor(pairs).T.reshape(2, 1, -1)
    assert float(grpo.kl(one, two).min()) >= 0
    assert float(grpo.kl(one, one).abs().max()) == 0


def test_the_mean_of_k3_is_the_divergence():
    """Over the policy's own distribution: sum p (q/p - 1 - ln(q/p)) = sum p ln(p/q)."""
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5])
    assert float((p * grpo.kl(p.log()[None], q.log()[None])[0]).sum()) == pytest.approx(float((p * (p / q).log()).sum()))


def test_loss_by_hand():
    """Advantages +1 and -2; each token's term is min(ratio A, bounded A), and the loss is minus their mean.

    row 1, A = +1: ratio 1   -> 1;   ratio 2   -> bounded to 1.28 -> min(2, 1.28)     = 1.28, clipped
    row 2, A = -2: ratio 0.5 -> bounded to 0.8 -> min(-1, -1.6) = -1.6, clipped;   ratio 1.1 -> -2.2
    mean = (1 + 1.28 - 1.6 - 2.2) / 4 = -0.38
    """
    value, stats = grpo.loss(NEW, OLD, torch.tensor([1.0, -2.0]), None, None, CONFIG)
    assert float(value) == pytest.approx(0.38)
    assert stats == pytest.approx({"clip_share": 0.5, "kl": 0.0, "ratio": 4.6 / 4})


def test_masked_tokens_count_nothing():
    """Without the last token of row 1: -(1 - 1.6 - 2.2) / 3; the mean is over tokens, so that row 2 weighs twice as much."""
    mask = torch.tensor([[True, False], [True, True]])
    value, stats = grpo.loss(NEW, OLD, torch.tensor([1.0, -2.0]), mask, None, CONFIG)
    assert float(value) == pytest.approx(2.8 / 3)
    assert stats == pytest.approx({"clip_share": 1 / 3, "kl": 0.0, "ratio": 2.6 / 3})


def test_the_reference_adds_its_weighted_divergence():
    """0.38 as above and 0.1 times the mean of k3 with reference probabilities that are half the policy's: ln 2 - 1/2 at each token."""
    value, stats = grpo.loss(NEW, OLD, torch.tensor([1.0, -2.0]), None, NEW - math.log(2), CONFIG)
    assert float(value) == pytest.approx(0.38 + 0.1 * (math.log(2) - 0.5))
    assert stats["kl"] == pytest.approx(math.log(2) - 0.5)


def test_a_ratio_beyond_its_bound_is_clipped_only_where_that_is_less():
    """Too likely already and good, or too unlikely already and bad: held back. The other two are the way home and stay open."""
    new = torch.tensor([[2.0], [0.5], [2.0], [0.5]]).log().requires_grad_()
    value, stats = grpo.loss(new, torch.zeros(4, 1), torch.tensor([1.0, -1.0, -1.0, 1.0]), None, None, CONFIG)
    value.backward()
    assert new.grad[:, 0].tolist() == pytest.approx([0, 0, 2 / 4, -0.5 / 4])
    assert stats["clip_share"] == 0.5


@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=6), st.integers(1, 4))
@settings(deadline=None)
def test_a_step_down_the_gradient_follows_the_advantage(gains, length):
    """On the policy that drew, good samples become likelier, bad ones less likely, each token by A / tokens; and the loss is minus the mean advantage."""
    gain = torch.tensor(gains)
    old = torch.full((len(gains), length), -2.0)
    new = old.clone().requires_grad_()
    value, stats = grpo.loss(new, old, gain, None, None, CONFIG)
    value.backward()
    torch.testing.assert_close(-new.grad, gain[:, None].expand_as(new) / new.numel())
    assert float(value.detach()) == pytest.approx(-float(gain.mean()), abs=1e-5)
    assert stats == pytest.approx({"clip_share": 0.0, "kl": 0.0, "ratio": 1.0})


def test_the_divergence_pulls_towards_the_reference():
    """Less likely than under the reference: raised; more likely: lowered."""
    new = torch.tensor([[0.1, 0.9]]).log().requires_grad_()
    value, _ = grpo.loss(new, new.detach(), torch.zeros(1), None, torch.tensor([[0.5, 0.5]]).log(), CONFIG)
    value.backward()
    assert new.grad[0, 0] < 0 < new.grad[0, 1]


@pytest.mark.parametrize(
    ("changed", "shapes"),
    [
        ({"reference_logprobs": torch.zeros(1, 2)}, r"\(2, 2\).*reference.*\(1, 2\)"),
        ({"reference_logprobs": torch.zeros(2, 1)}, r"\(2, 2\).*reference.*\(2, 1\)"),
        ({"old_logprobs": torch.zeros(2, 3)}, r"\(2, 2\).*old.*\(2, 3\)"),
        ({"mask": torch.ones(1, 2)}, r"\(2, 2\).*mask.*\(1, 2\)"),
        ({"advantages": torch.zeros(3)}, r"\(3,\).*\(2, 2\)"),
        ({"mask": torch.zeros(2, 2)}, r"no token counts.*\(2, 2\)"),
    ],
)
def test_shapes_that_do_not_belong_together_are_refused(changed, shapes):
    """Nothing is broadcast in silence; both shapes are named."""
    whole = {"logprobs": NEW, "old_logprobs": OLD, "advantages": torch.zeros(2), "mask": None, "reference_logprobs": OLD}
    with pytest.raises(ValueError, match=shapes):
        grpo.loss(**whole | changed, config=CONFIG)
