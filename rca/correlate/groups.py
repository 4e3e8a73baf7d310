"""Parallel groups: which ranks share a tensor, pipeline or data parallel group.

Given by the operator, or stated rank by rank (`rank 15 in world size 16 is assigned as DP rank 0, PP rank 1, TP rank 7`), or derived from
stated sizes: then in the order in which Megatron-LM and the trainers built on it count, tensor parallel fastest, then context, data and
pipeline parallel.

>>> groups = Groups({"tp": 2, "pp": 2}, 8)
>>> groups.of(5, "tp"), groups.of(5, "pp"), groups.of(5, "dp"), groups.of(8, "tp")
((4, 5), (1, 5), (5, 7), None)

Source: Megatron-LM `parallel_state.py` (RankGenerator, order tp-cp-ep-dp-pp).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

ORDER = ("tp", "cp", "dp", "pp")


class Groups:
    """The groups of the trainer's world; `sizes` are the stated degrees."""

    def __init__(self, sizes: dict[str, int] | None = None, world: int | None = None, given: dict[str, Any] | None = None, places: dict[int, dict[str, int]] | None = None) -> None:
        self.sizes = dict(sizes or {})
        self.derived = not given and not places
        self._of: dict[str, dict[int, tuple[int, ...]]] = {}
        if places:
            self._placed(places)
        elif world is not None and self.sizes:
            self._counted(world)
        for axis, groups in (given or {}).items():
            self._of[axis] = {rank: tuple(group) for group in groups for rank in group}

    def of(self, rank: int | None, axis: str) -> tuple[int, ...] | None:
        """The ranks of the group along an axis that a rank belongs to, itself among them; None where that is not known."""
        return self._of.get(axis, {}).get(rank) if rank is not None else None

    def shared(self, ranks: set[int]) -> list[tuple[str, tuple[int, ...]]]:
        """The smallest groups that hold all of these ranks, with their axes."""
        found = {(axis, group) for axis, table in self._of.items() for group in table.values() if ranks <= set(group) and len(group) > 1}
        least = min((len(g) for _, g in found), default=0)
        return sorted((axis, group) for axis, group in found if len(group) == least)

    def __bool__(self) -> bool:
        return bool(self._of)

    def _counted(self, world: int) -> None:
        inner = 1
        for axis in ("tp", "cp", "pp"):
            inner *= self.sizes.get(axis, 1)
        if inner < 2 or world % inner or world // inner * inner != world or self.sizes.get("dp", world // inner) not in (world // inner, 0):
            return
        degrees = {"tp": self.sizes.get("tp", 1), "cp": self.sizes.get("cp", 1), "dp": world // inner, "pp": self.sizes.get("pp", 1)}
        stride = 1
        for axis in ORDER:
            degree = degrees[axis]
            if degree > 1:
                table = self._of.setdefault(axis, {})
                for rank in range(world):
                    first = rank - rank // stride % degree * stride
                    table[rank] = tuple(first + k * stride for k in range(degree))
            stride *= degree

    def _placed(self, places: dict[int, dict[str, int]]) -> None:
        axes = sorted({axis for place in places.values() for axis in place})
        for axis in axes:
            rest = [a for a in axes if a != axis]
            groups: dict[tuple, list[int]] = {}
            for rank, place in sorted(places.items()):
                groups.setdefault(tuple(place.get(a) for a in rest), []).append(rank)
            self._of[axis] = {rank: tuple(group) for group in groups.values() for rank in group}


def agreed(stated: list[dict[str, int]]) -> dict[str, int]:
    """The degrees that all statements agree on.

    >>> agreed([{"tp": 2, "pp": 2}, {"tp": 2}, {"pp": 4}])
    {'tp': 2}
    """
    values: dict[str, Counter[int]] = {}
    for sizes in stated:
        for axis, size in sizes.items():
            values.setdefault(axis, Counter())[size] += 1
    return {axis: next(iter(counts)) for axis, counts in values.items() if len(counts) == 1}
