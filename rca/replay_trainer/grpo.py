"""Group Relative Policy Optimization as pure functions: advantages, log-probabilities, divergence from the reference, loss.

Shapes: B rows (samples), G = `Config.group` samples of one prompt which lie next to each other, N tokens of an answer, V characters of the vocabulary.

* Advantage relative to the group: GRPO, DeepSeekMath, arXiv:2402.03300, section 4.1.2. Its division by the group's standard deviation weighs prompts that are
  nearly always or nearly never answered more; "Dr. GRPO", arXiv:2503.20783, section 3, leaves it out. It stays here: on one task of one difficulty it only sets the scale.
* Clipped ratio: PPO, arXiv:1707.06347, equation 7; its two bounds decoupled, and the mean over all tokens in place of one for each answer: DAPO, arXiv:2503.14476,
  sections 3.1 and 3.3.
* Divergence: the estimator k3 of J. Schulman, "Approximating KL Divergence" (2020), joschu.net/blog/kl-approx.html; as a term of the loss: DeepSeekMath, equation 4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rca.replay_trainer.config import Config

#: Rewards are shares in [0, 1] in single precision: less standard deviation than this is rounding.
LEAST_SPREAD = 1e-6


def advantages(rewards: Tensor, group: int) -> Tensor:
    """How much better each sample did than the others of its prompt, in standard deviations of the group: [B] from rewards [B].

    Zero where a whole group did equally well: there is nothing to learn from it. Raises ValueError for rows that are no whole groups, or a reward that is not finite.
    """
    if rewards.dim() != 1 or rewards.shape[0] % group:
        raise ValueError(f"rewards of shape {tuple(rewards.shape)} are no groups of {group}")
    if not bool(rewards.isfinite().all()):
        raise ValueError(f"rewards that are not finite: {int((~rewards.isfinite()).sum())} of {rewards.shape[0]}")
    grouped = rewards.double().view(-1, group)  # [B / G, G]
    centred = grouped - grouped.mean(1, keepdim=True)  # [B / G, G]
    spread = centred.square().mean(1, keepdim=True).sqrt()  # [B / G, 1]
    scaled = torch.where(spread > LEAST_SPREAD, centred / spread.clamp_min(LEAST_SPREAD), 0.0)  # [B / G, G]
    return scaled.view(-1).to(rewards.dtype)  # [B]


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """The log-probability of each of tokens [B, N] under logits [B, N, V] at a temperature: [B, N]."""
    every = (logits / temperature).log_softmax(2)  # [B, N, V]
    return every.gather(2, tokens[:, :, None])[:, :, 0]  # [B, N]


def kl(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate k3 of the policy's divergence from the reference at each token, [B, N], from log-probabilities [B, N] of what the policy drew.

    Never negative; its mean over the policy's samples is the divergence. Raises ValueError where the shapes differ.
    """
    _same("log-probabilities", logprobs, "reference log-probabilities", reference_logprobs)
    lead = reference_logprobs - logprobs  # [B, N]
    return lead.expm1() - lead  # [B, N]


def loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor | None, reference_logprobs: Tensor | None, config: Config
) -> tuple[Tensor, dict[str, float]]:
    """The loss, a scalar with a gradient with respect to logprobs [B, N], and what to log.

    old_logprobs [B, N] are those with which the tokens were drawn, advantages [B], mask [B, N] is true where a token counts (None: all do), reference_logprobs [B, N]
    are left out as None. The mean is over tokens that count. Logged, means over the same tokens: `clip_share` (where the bound holds the gradient back), `kl` (0 without a
    reference), `ratio`. Raises ValueError where shapes do not belong together or no token counts.
    """
    _same("log-probabilities", logprobs, "old log-probabilities", old_logprobs)
    if advantages.shape != logprobs.shape[:1]:
        raise ValueError(f"advantages of shape {tuple(advantages.shape)} for log-probabilities of shape {tuple(logprobs.shape)}")
    if mask is None:
        counted = torch.ones_like(logprobs)  # [B, N]
    else:
        _same("log-probabilities", logprobs, "mask", mask)
        counted = mask.to(logprobs.dtype)  # [B, N]
    tokens = counted.sum()  # scalar
    if not bool(tokens > 0):
        raise ValueError(f"no token counts: mask of shape {tuple(logprobs.shape)}")

    def mean(values: Tensor) -> Tensor:
        return (values * counted).sum() / tokens  # scalar

    gain = advantages[:, None]  # [B, 1]
    ratio = (logprobs - old_logprobs).exp()  # [B, N]
    bounded = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)  # [B, N]
    per_token = -torch.minimum(ratio * gain, bounded * gain)  # [B, N]
    clipped = (bounded * gain < ratio * gain).to(logprobs.dtype)  # [B, N]
    stats = {"clip_share": float(mean(clipped.detach())), "kl": 0.0, "ratio": float(mean(ratio.detach()))}
    if reference_logprobs is not None:
        apart = kl(logprobs, reference_logprobs)  # [B, N]
        per_token = per_token + config.kl_weight * apart  # [B, N]
        stats["kl"] = float(mean(apart.detach()))
    return mean(per_token), stats


def _same(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    if value.shape != other.shape:
        raise ValueError(f"{name} of shape {tuple(value.shape)}, {other_name} of shape {tuple(other.shape)}")
