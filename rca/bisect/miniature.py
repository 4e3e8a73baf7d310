"""A training whose every number is known beforehand, on any machine, in any precision, with any library and number of threads.

All values are small whole numbers in floats. Products and sums of them are exact as long as no sum of absolute values passes the largest whole number up to which
the format has them all (2^8 bfloat16, 2^11 float16, 2^24 float32 and TF32 with its float32 accumulators, 2^53 float64), so neither the order of additions nor fused
operations nor split sums can change a bit. What differs from the digests below was computed wrongly.

Shapes: B samples, K inputs, hidden units and outputs (B = K = `Size.width`).
    z [B, K] = x w1      a = clamp(z, -1, 1)      y [B, K] = a w2      e = clamp(y - t, -1, 1)
    g2 [K, K] = aT e     d [B, K] = e w2T         g1 [K, K] = xT (d where |z| < 2, clamped)
    w -= clamp(trunc(g / 2^shift), -1, 1), clamped to -3 .. 3

Source: the idea of comparing an exact known result is that of hardware burn-in tests for silent data corruption (Dixit et al., arXiv:2102.11245; Hochschild et al.,
"Cores that don't count", HotOS 2021); exactness of whole numbers in floats is IEEE 754-2019, section 5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = 3  # of a weight
STEPS = 6
NAMES = ("z", "y", "g2", "d", "g1", "w1", "w2")  # what a digest covers, in the order in which it is computed
MATMULS = NAMES[:5]
PHASES = {"z": "forward", "y": "forward", "g2": "backward", "d": "backward", "g1": "backward", "w1": "update", "w2": "update"}


@dataclass(frozen=True)
class Size:
    """A miniature of one width, in the formats that hold its sums, with its digests after each step."""

    name: str
    width: int
    formats: tuple[str, ...]
    shift: int  # a gradient below 2^shift moves nothing
    digests: tuple[str, ...]


SIZES = (
    Size("width 64", 64, ("float32", "float64", "bfloat16", "float16"), 2, ("cea61eed1cca54ad", "5507764cb5111b45", "6a76b05c219ecf10", "d020cd6d5f0f5771", "ad4fcddb1c6f6e27", "c49ea31fe1c0f99e")),
    Size("width 256", 256, ("float32", "float64", "float16"), 3, ("493efed7764fd1db", "54eadc02b3f4e27d", "8c7fc7552cfb6927", "a91a12603fddd5d7", "fbbcde367ed291e4", "a6692569a65883b7")),
    Size("width 512", 512, ("float32", "float64"), 4, ("244266ce0c00c937", "bc1e49b03185d957", "79fea010941e8ca5", "9f5c3d616142fc29", "6bf53a9c89ca0008", "0cca9764d1782d33")),
)
ON_GPUS = (Size("width 2048", 2048, ("float32",), 5, ("36abe7ccf4c49bf8", "9d9f884302efa190", "4cf352b8a72d0de1", "79c03689a41fff2d", "c0d1451d2ac51c8c", "efb99e300161b47e")),)  # one of this size takes a core half a minute

Wrong = Callable[[int, str, Tensor], None]  # may change the output of a matmul: step, name, tensor; for demonstration


@dataclass
class State:
    """Weights and data of a miniature."""

    x: Tensor
    t: Tensor
    w1: Tensor
    w2: Tensor


def begin(size: Size, kind: torch.dtype, where: str = "cpu") -> State:
    """The first state: numbers from a fixed generator of whole numbers, the same everywhere."""
    n = size.width
    made = [_numbers(seed, n * n).reshape(n, n) for seed in range(1, 5)]
    return State(*(tensor.to(kind).to(where) for tensor in made))


def _numbers(seed: int, count: int) -> Tensor:
    """-1, 0 and 1, from the bits of a multiplicative hash (Knuth, The Art of Computer Programming 3, section 6.4; constants of splitmix32)."""
    values = (torch.arange(count, dtype=torch.int64) + seed * 0x9E3779B9) & 0xFFFFFFFF
    for multiplier, right in ((0x21F0AAAD, 16), (0x735A2D97, 15)):
        values = ((values ^ (values >> right)) * multiplier) & 0xFFFFFFFF
    return (values >> 15) % 3 - 1


def step(state: State, size: Size, number: int, shards: Sequence[Wrong | None] = (None,)) -> dict[str, Tensor]:
    """One step, in place; gives all that was computed. The batch is split over shards, each computed by its own machine; as sums are exact, any split gives the same."""
    rows = torch.arange(size.width, device=state.x.device).tensor_split(len(shards))
    parts = [_gradients(state.x[r], state.t[r], state.w1, state.w2, number, wrong) for r, wrong in zip(rows, shards) if len(r)]
    found = {name: torch.cat([part[name] for part in parts]) for name in ("z", "y", "d")}
    found |= {name: torch.stack([part[name] for part in parts]).sum(0) if len(parts) > 1 else parts[0][name] for name in ("g2", "g1")}
    for weight, gradient in (("w1", "g1"), ("w2", "g2")):
        moved = _quotient(found[gradient], size.shift).clamp(-1, 1)
        setattr(state, weight, (getattr(state, weight) - moved).clamp(-LARGEST, LARGEST))
        found[weight] = getattr(state, weight)
    return {name: found[name] for name in NAMES}


def _quotient(tensor: Tensor, shift: int) -> Tensor:
    """Divided by 2^shift, without the rest; also of whole numbers."""
    return (tensor * 2.0**-shift).trunc() if tensor.is_floating_point() else tensor.div(1 << shift, rounding_mode="trunc")


def _gradients(x: Tensor, t: Tensor, w1: Tensor, w2: Tensor, number: int, wrong: Wrong | None) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}

    def product(name: str, left: Tensor, right: Tensor) -> Tensor:
        found[name] = (left @ right).contiguous()
        if wrong is not None:
            wrong(number, name, found[name])
        return found[name]

    z = product("z", x, w1)
    a = z.clamp(-1, 1)
    e = (product("y", a, w2) - t).clamp(-1, 1)
    product("g2", a.T, e)
    d = product("d", e, w2.T)
    product("g1", x.T, (d * (z.abs() < 2)).clamp(-1, 1))
    return found


def digest(computed: dict[str, Tensor]) -> str:
    """16 hex digits of all numbers of a step, exactly as they are: also what is no whole number any more."""
    sha = hashlib.sha256()
    for name in NAMES:
        sha.update((computed[name].detach().cpu().double() + 0.0).contiguous().numpy().tobytes())  # + 0.0: the zero of a sum may have either sign
    return sha.hexdigest()[:16]


@dataclass(frozen=True)
class Difference:
    """The first number that was computed wrongly. `expected` and `got` are None where the right number could not be computed here either."""

    size: str
    format: str
    step: int
    name: str | None = None
    element: tuple[int, ...] | None = None
    expected: float | None = None
    got: float | None = None

    def text(self) -> str:
        """For people."""
        where = f"step {self.step} in {self.format}, {self.size}"
        if self.name is None:
            return f"{where}: other numbers than the known ones, and the right ones could not be computed here either"
        return f"{where}: {PHASES[self.name]}, {self.name}{list(self.element or ())} is {self.got:g} ({self.got!r}), right is {self.expected:g}"


def train(size: Size, kind: str, where: str = "cpu", shards: Sequence[Wrong | None] = (None,)) -> Difference | None:
    """All steps of one miniature; the first wrong number, or None if each digest is the known one."""
    state = begin(size, getattr(torch, kind), where)
    for number in range(STEPS):
        before = State(state.x, state.t, state.w1, state.w2)
        computed = step(state, size, number, shards)
        if digest(computed) != size.digests[number]:
            return _difference(before, computed, size, kind, number)
    return None


def _difference(before: State, computed: dict[str, Tensor], size: Size, kind: str, number: int) -> Difference:
    """Compute the step again in whole numbers, by another unit of the processor, and compare."""
    whole = State(*(tensor.cpu().to(torch.int64) for tensor in (before.x, before.t, before.w1, before.w2)))
    right = step(whole, size, number)
    if digest(right) != size.digests[number]:
        return Difference(size.name, kind, number)
    for name in NAMES:
        got, expected = computed[name].cpu().double(), right[name].double()
        if not torch.equal(got, expected):
            element = tuple((got != expected).nonzero()[0].tolist())
            return Difference(size.name, kind, number, name, element, float(expected[element]), float(got[element]))
    return Difference(size.name, kind, number)
