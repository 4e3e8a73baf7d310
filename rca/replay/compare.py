"""What was recorded of a request against what came of it now: the same bits, or the first tensor and the first element in it that differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SIMILAR = 90.0  # of 100: two error texts that say the same with other numbers, paths and addresses
NUMBERS = re.compile(r"0x[0-9a-f]+|/[\w./-]+|\d+(?:\.\d+)?")
THERE, LACKS = "there", "not there"
REPRODUCES, DOES_NOT, DIVERGES, CANNOT_TELL = "reproduces", "does not reproduce", "diverges", "cannot tell"


@dataclass(frozen=True)
class Difference:
    """The first place at which two results differ; `element` is its index, None where all of the tensor, or the value, is meant."""

    name: str
    element: tuple[int, ...] | None
    expected: Any
    got: Any
    count: int = 1  # of elements of that tensor that differ

    @property
    def of_form(self) -> bool:
        """Whether one of the two has a part that the other lacks: another program, not other numbers."""
        return THERE in (self.expected, self.got) and LACKS in (self.expected, self.got)

    def __str__(self) -> str:
        where = f"{self.name}{list(self.element)}" if self.element is not None else self.name
        return f"{where} was {self.expected!r} and is {self.got!r}" + (f", and {self.count - 1} more of this tensor" if self.count > 1 else "")


def first_difference(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Difference | None:
    """Two dictionaries of tensors and plain values, compared bit by bit in the order of their names."""
    import torch

    for name in sorted({*expected, *got}):
        if name not in expected or name not in got:
            return Difference(name, None, THERE if name in expected else LACKS, THERE if name in got else LACKS)
        one, other = expected[name], got[name]
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            found = _tensors(name, one, other)
        elif (isinstance(one, Mapping) and isinstance(other, Mapping)) or (isinstance(one, list) and isinstance(other, list) and len(one) == len(other)):
            inner = first_difference(_by_name(one), _by_name(other))
            found = Difference(f"{name}.{inner.name}", inner.element, inner.expected, inner.got, inner.count) if inner else None
        else:
            found = None if type(one) is type(other) and (one == other or (one != one and other != other)) else Difference(name, None, _short(one), _short(other))
        if found is not None:
            return found
    return None


def _by_name(value: Mapping[str, Any] | list[Any]) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {str(number): inner for number, inner in enumerate(value)}


def _tensors(name: str, one: Any, other: Any) -> Difference | None:
    import torch

    if one.shape != other.shape or one.dtype != other.dtype:
        return Difference(name, None, f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}", f"{str(other.dtype).removeprefix('torch.')} {list(other.shape)}")
    if not one.numel():
        return None
    flat = [value.detach().cpu().contiguous().reshape(-1) for value in (one, other)]
    if torch.equal(flat[0].view(torch.uint8), flat[1].view(torch.uint8)):  # bits: a NaN equals itself, and -0.0 is not 0.0
        return None
    bits = [value.view(torch.uint8).view(value.numel(), -1) for value in flat]  # [elements, bytes of one]
    apart = (bits[0] != bits[1]).any(1).nonzero().reshape(-1)  # [elements that differ]
    first = int(apart[0])
    element, rest = [], first
    for size in reversed(one.shape):
        element.append(rest % size)
        rest //= size
    return Difference(name, tuple(reversed(element)), flat[0][first].item(), flat[1][first].item(), len(apart))


def same_error(one: str | None, other: str | None) -> bool:
    """Whether two error texts tell of the same failure, whatever the numbers, paths and addresses in them.

    >>> same_error("Tensor shape mismatch: [64, 3] and [32, 3] (/srv/run/a)", "Tensor shape mismatch: [64, 3] and [16, 3] (/tmp/b)"), same_error("no space left", "connection refused")
    (True, False)
    """
    from rapidfuzz import fuzz

    texts = [NUMBERS.sub("#", " ".join(str(text or "").split())[:2000]) for text in (one, other)]
    return all(texts) and fuzz.ratio(texts[0], texts[1]) >= SIMILAR  # two that say nothing are not the same


def _short(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) or value is None else str(value)[:200]
