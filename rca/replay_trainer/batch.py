"""The batch of a step: tensors whose first dimension is the samples, split over workers and merged again in their order.

`[B, ...]` throughout: B samples, of which each worker has a contiguous share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rca.replay_trainer.errors import FrameworkError


def split(batch: Mapping[str, Tensor], parts: int) -> list[dict[str, Tensor]]:
    """`parts` shares of near-equal size, each with all names. Tensors of different length are split each by its own."""
    chunks = {name: value.tensor_split(parts) for name, value in batch.items()}
    return [{name: pieces[i] for name, pieces in chunks.items()} for i in range(parts)]


def merge(parts: Sequence[Mapping[str, Tensor] | None]) -> dict[str, Tensor]:
    """The shares that came, one after the other; a share that did not come (None) leaves no gap. Raises FrameworkError for shares that do not fit together."""
    came = [part for part in parts if part]
    names = came[0].keys() if came else ()
    if any(part.keys() != names for part in came):
        raise FrameworkError("DistributedBatchMemoryError: shares with different tensors: " + ", ".join(sorted({" ".join(sorted(part)) for part in came})))
    try:
        return {name: torch.cat([part[name] for part in came]) for name in names}
    except (RuntimeError, TypeError) as error:
        raise FrameworkError(f"DistributedBatchMemoryError: shares that do not fit together: {error}") from error


def attach(batch: Mapping[str, Tensor], **more: Tensor) -> dict[str, Tensor]:
    """The batch with further tensors. Raises FrameworkError when they speak of another number of samples."""
    sizes = {name: len(value) for name, value in {**batch, **more}.items()}
    if len(set(sizes.values())) > 1:
        raise FrameworkError("DistributedBatchMemoryError: Batch size mismatch: " + ", ".join(f"{name} {size}" for name, size in sorted(sizes.items())))
    return {**batch, **more}
