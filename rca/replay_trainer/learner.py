"""What one train rank does to the policy: optimizer steps on its shard of the batch, with gradients averaged over all ranks.

Shapes: B rows of this rank's shard, L tokens of a prompt, N of an answer. Everything that goes in and comes out lies on the CPU.
Optimizer: AdamW, arXiv:1711.05101, without decay of weights, which is Adam, arXiv:1412.6980.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rca.replay_trainer import grpo, sampling
from rca.replay_trainer.config import Config
from rca.replay_trainer.model import build, device, digest, fingerprint

#: A gradient longer than this is shortened to it: one odd batch must not undo many good ones. The usual value since arXiv:2005.14165, appendix B.
LONGEST_GRADIENT = 1.0
STATS = ("loss", "clip_share", "kl", "ratio")
MOMENTS = {"mean": "exp_avg", "square": "exp_avg_sq"}  # our names of what the optimizer keeps, and torch's


class Learner:
    """The policy, its optimizer and what they have learned.

    `all_reduce` sums a tensor on the device over all ranks, in place; it is called once in every optimizer step by every rank, with a buffer of the same length.
    """

    def __init__(self, config: Config, world_size: int = 1, rank: int = 0, all_reduce: Callable[[Tensor], object] | None = None) -> None:
        if world_size > 1 and all_reduce is None:
            raise ValueError(f"{world_size} ranks need an `all_reduce`")
        self.config, self.world_size, self.rank, self.all_reduce = config, world_size, rank, all_reduce
        self.model = build(config)
        self.step = 0  # optimizer steps so far
        self.computed: list[str] = []  # of the last `update`: fingerprints of what this rank computed in each of its steps, before the ranks added it up
        self._names = [name for name, _ in self.model.named_parameters()]
        self._values = list(self.model.parameters())
        self._optimizer = torch.optim.AdamW(self._values, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)

    @torch.no_grad()
    def logprobs(self, prompts: Tensor, answers: Tensor) -> Tensor:
        """Log-probabilities [B, N] of answers [B, N] to prompts [B, L] under the policy as it is."""
        return sampling.score(self.model, prompts, answers, self.config.temperature).cpu()  # [B, N]

    def update(
        self, prompts: Tensor, answers: Tensor, old_logprobs: Tensor, advantages: Tensor, reference_logprobs: Tensor | None = None, mask: Tensor | None = None
    ) -> dict[str, float]:
        """`Config.updates` optimizer steps on this rank's rows: prompts [B, L], answers, old_logprobs, reference_logprobs and mask [B, N], advantages [B].

        Shards may differ in size, and one may have no rows: every token of the whole batch weighs the same. Returns what `grpo.loss` logs, `loss`, `grad_norm` (before
        it is shortened) and `tokens`, of the whole batch in the last of the steps: the same on every rank. Raises ValueError where shapes do not belong together (before anything
        is sent to the other ranks), and ArithmeticError for a gradient that is not finite, on every rank; the policy is then as it was before that step.
        """
        stats: dict[str, float] = {}
        self.computed = []
        for _ in range(self.config.updates):
            flat = self._sums(prompts, answers, old_logprobs, advantages, reference_logprobs, mask)
            self.computed.append(fingerprint(flat))
            if self.all_reduce is not None:
                self.all_reduce(flat)
            stats = self._apply(flat)
        return stats

    def _sums(
        self, prompts: Tensor, answers: Tensor, old_logprobs: Tensor, advantages: Tensor, reference_logprobs: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """What the ranks add up, in one buffer [1 + len(STATS) + parameters]: tokens, then sums over tokens of STATS and of the gradient."""
        where = device()
        tokens = float(answers.numel() if mask is None else mask.sum())
        if not tokens:
            return torch.zeros(1 + len(STATS) + sum(v.numel() for v in self._values), device=where)
        logprobs = sampling.score(self.model, prompts, answers, self.config.temperature)  # [B, N]
        known = None if reference_logprobs is None else reference_logprobs.to(where)  # [B, N]
        counted = None if mask is None else mask.to(where)  # [B, N]
        value, stats = grpo.loss(logprobs, old_logprobs.to(where), advantages.to(where), counted, known, self.config)
        gradient = torch.autograd.grad(value * tokens, self._values)
        found = stats | {"loss": float(value.detach())}
        sums = torch.tensor([tokens, *(tokens * found[name] for name in STATS)], device=where)  # [1 + len(STATS)]
        return torch.cat([sums, *(part.reshape(-1) for part in gradient)])

    def _apply(self, flat: Tensor) -> dict[str, float]:
        """One optimizer step from the sums over all ranks; gives what to log."""
        total = float(flat[0])
        if not total:
            raise ValueError("no rank has a token to learn from")
        mean = flat / total
        gradient = mean[1 + len(STATS) :]  # [parameters]
        norm = float(gradient.norm())
        if not norm < torch.inf:
            raise ArithmeticError(f"the gradient of optimizer step {self.step + 1} is not finite: {norm}")
        gradient *= min(1.0, LONGEST_GRADIENT / (norm + 1e-6))
        for value, part in zip(self._values, gradient.split([v.numel() for v in self._values]), strict=True):
            value.grad = part.view_as(value)
        self._optimizer.step()
        self.step += 1
        return dict(zip(STATS, mean[1 : 1 + len(STATS)].tolist(), strict=True)) | {"grad_norm": norm, "tokens": total}

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights by name."""
        return {name: value.detach().cpu().clone() for name, value in zip(self._names, self._values, strict=True)}

    def live(self) -> dict[str, Tensor]:
        """The weights themselves, by the same names."""
        return dict(zip(self._names, self._values, strict=True))

    def digest(self) -> str:
        """The fingerprint of the weights as they are: see `model.digest`."""
        return digest(self.weights())

    def state(self) -> dict[str, Tensor]:
        """A copy of all that is needed to go on as if nothing had happened: `weights.NAME`, `adam.mean.NAME`, `adam.square.NAME` and `step`."""
        return {f"weights.{name}": value for name, value in self.weights().items()} | {name: value.cpu().clone() for name, value in self.optimizer().items()}

    def optimizer(self) -> dict[str, Tensor]:
        """That of it which is not the weights: the moments themselves, not copies."""
        kept = {}
        for name, value in zip(self._names, self._values, strict=True):
            moments = self._optimizer.state.get(value, {})
            for ours, theirs in MOMENTS.items():
                kept[f"adam.{ours}.{name}"] = moments[theirs] if moments else torch.zeros(value.shape)
        return kept | {"step": torch.tensor(self.step)}

    def version(self) -> tuple[int, int]:
        """Another one whenever weights or optimizer have changed: torch counts what is written into each tensor."""
        return self.step, sum(value._version for value in self._values)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from such a state. Raises ValueError, and changes nothing, for one that lacks a tensor, has another shape or does not hold numbers of the same kind."""
        own = self.state()
        for name, value in own.items():
            if name not in state:
                raise ValueError(f"the state has no `{name}`")
            given = state[name]
            if given.shape != value.shape or given.dtype != value.dtype:
                raise ValueError(f"`{name}` of shape {tuple(given.shape)} and {given.dtype}, where {tuple(value.shape)} and {value.dtype} are needed")
        self.step = int(state["step"])
        self._optimizer.state.clear()
        with torch.no_grad():
            for name, value in zip(self._names, self._values, strict=True):
                value.copy_(state[f"weights.{name}"])
                moments = {theirs: state[f"adam.{ours}.{name}"].to(value.device, copy=True) for ours, theirs in MOMENTS.items()}
                self._optimizer.state[value] = {"step": torch.tensor(float(self.step)), **moments}
