"""Draw answers from a policy, and say how likely given answers are under it.

Shapes: B rows, L tokens of a prompt, N of an answer, V characters of the vocabulary. Everything that goes in and comes out lies on the CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rca.replay_trainer import grpo
from rca.replay_trainer.model import Cache, Transformer


@torch.no_grad()
def generate(model: Transformer, prompts: Tensor, answer_length: int, temperature: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Answers [B, N] to prompts [B, L] and the log-probabilities [B, N] with which they were drawn, at this temperature.

    The same generator in the same state gives the same bits. Characters are drawn on the CPU, so that the generator need not know the device.
    """
    where = next(model.parameters()).device
    cache = Cache()
    answers, logprobs = [], []
    tokens = prompts.to(where)  # [B, L] first, then [B, 1]
    for _ in range(answer_length):
        logits = model(tokens, cache)[:, -1:].cpu()  # [B, 1, V]
        drawn = torch.multinomial((logits[:, 0] / temperature).softmax(1), 1, generator=generator)  # [B, 1]
        answers.append(drawn)
        logprobs.append(grpo.token_logprobs(logits, drawn, temperature))  # [B, 1]
        tokens = drawn.to(where)  # [B, 1]
    return torch.cat(answers, 1), torch.cat(logprobs, 1)  # [B, N] each


def score(model: Transformer, prompts: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [B, N] of answers [B, N] to prompts [B, L], in one pass; on the model's device, and differentiable where gradients are on."""
    tokens = torch.cat([prompts, answers], 1).to(next(model.parameters()).device)  # [B, L + N]
    logits = model(tokens[:, :-1])[:, prompts.shape[1] - 1 :]  # [B, N, V]
    return grpo.token_logprobs(logits, tokens[:, prompts.shape[1] :], temperature)  # [B, N]
