"""The task that is learned: write a string of digits backwards; whether an answer is right can be verified character by character.

    "482>" -> "284"

Shapes: P prompts of a step, B rows (prompts or samples of them), L = `prompt_length`, N = `answer_length`. Tokens are indices into `VOCABULARY`.
Every prompt has the same length, so nothing is padded. Rewards are the share of right characters: a policy that has one of three right is told so, which is
what makes the first steps of learning possible. A verifiable reward in place of a reward model: DeepSeek-R1, arXiv:2501.12948, section 2.2.2.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from rca.replay_trainer.config import Config

VOCABULARY = "0123456789>"  # ">" ends the prompt
DIGITS = 10
SEPARATOR = VOCABULARY.index(">")


def prompt_length(config: Config) -> int:
    """L: the digits and the separator."""
    return config.digits + 1


def answer_length(config: Config) -> int:
    """N: as many characters as the prompt has digits."""
    return config.digits


def chance(config: Config) -> float:
    """The mean reward of a policy that draws every character of the vocabulary equally often, whatever the length of the strings."""
    return 1 / len(VOCABULARY)


def generator(config: Config, *names: object) -> torch.Generator:
    """A generator on the CPU whose numbers depend on the run's seed and these names alone: `generator(config, "rollout", step, worker)`.

    It carries no state from step to step, so that a run that was recovered draws what the lost one would have drawn.
    """
    key = hashlib.sha256(repr((config.seed, *names)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:4], "big"))  # the CPU's generator takes 32 bits of a seed


def prompts(config: Config, step: int) -> Tensor:
    """The prompts of a step, [P, L]: the same on every process and in every attempt."""
    drawn = torch.randint(DIGITS, (config.prompts, config.digits), generator=generator(config, "prompts", step))  # [P, L - 1]
    return torch.cat([drawn, torch.full((config.prompts, 1), SEPARATOR)], dim=1)  # [P, L]


def truth(prompts: Tensor) -> Tensor:
    """The right answers of prompts [B, L], [B, N]."""
    return prompts[:, :-1].flip(1)  # [B, N]


def rewards(prompts: Tensor, answers: Tensor) -> Tensor:
    """The share of right characters of each row, [B] in [0, 1]. Raises ValueError where prompts [B, L] and answers [B, N] do not belong together."""
    right = truth(prompts)  # [B, N]
    if right.shape != answers.shape:
        raise ValueError(f"answers of shape {tuple(answers.shape)} to prompts of shape {tuple(prompts.shape)}")
    return (right == answers).float().mean(1)  # [B]


def known(tokens: Tensor, name: str) -> None:
    """Raise ValueError for tokens that are no indices into the vocabulary: on a GPU an index that is out of range would break the device for the whole process."""
    if tokens.dtype != torch.long:
        raise ValueError(f"{name} must be whole numbers of 64 bits: {tokens.dtype}")
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(VOCABULARY):
        raise ValueError(f"{name} hold tokens from {int(tokens.min())} to {int(tokens.max())}, the vocabulary has 0 to {len(VOCABULARY) - 1}")


def text(tokens: Tensor) -> list[str]:
    """Rows of tokens as a reader sees them.

    >>> text(torch.tensor([[4, 8, 2, 10], [0, 0, 7, 10]]))
    ['482>', '007>']
    """
    return ["".join(VOCABULARY[t] for t in row) for row in tokens.tolist()]
