"""A wrong result without an error: one bit of one element in the output of one Linear of a model is another one while something is computed.

The numbers after it are really computed from the wrong one, as after a silent data corruption of an arithmetic unit: Dixit et al. 2021, arXiv:2102.11245.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

#: Whole numbers as wide as an element, in which its bits can be changed.
WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Flip:
    """Which bit of what, how often. A call is one request to a worker; in a call that is touched, one bit is flipped once."""

    touched_by: tuple[str, ...] = ()  # calls of workers; none means all that compute
    linear: str = "head"  # name of the module
    element: int = -1  # of its output, flat; counted from the end below 0, and around past either end
    bit: int = 22  # 0 is the lowest; of 32 bits 31 is the sign, 30 to 23 are the exponent: its higher ones make numbers that do not stay silent
    nth: int = 0  # of the matmuls with this Linear in one call
    probability: float = 1.0  # of a call to be touched
    seed: int = 0  # which calls those are: the same seed, owner and count of calls give the same answer

    def touches(self, what: str, owner: str, count: int) -> bool:
        """Whether the call with this number, of those that can be touched in this process, is touched."""
        return (not self.touched_by or what in self.touched_by) and random.Random(f"{self.seed}-{owner}-{count}").random() < self.probability

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Flip:
        """Raises ValueError, TypeError for a text that is none."""
        values = json.loads(text)
        return cls(**{**values, "touched_by": tuple(values["touched_by"])})

    @contextlib.contextmanager
    def in_model(self, model: nn.Module) -> Iterator[None]:
        """The model computes wrongly within the block. Raises AttributeError for a Linear that it does not have."""
        passed = 0

        def flip(module: nn.Module, given: Any, output: Tensor) -> None:
            nonlocal passed
            if passed == self.nth:
                flip_bit(output, self.element, self.bit)
            passed += 1

        hook = model.get_submodule(self.linear).register_forward_hook(flip)
        try:
            yield
        finally:
            hook.remove()


def flip_bit(tensor: Tensor, element: int, bit: int) -> None:
    """Change one bit where it lies. What autograd keeps for the way back is not touched: a matmul keeps what went in, not what came out."""
    width = 8 * tensor.element_size()
    whole = tensor.detach().view(-1).view(WHOLE[tensor.element_size()])
    whole[element % len(whole)] ^= 1 << bit if bit < width - 1 else -1 << bit  # the highest is the sign of a whole number
