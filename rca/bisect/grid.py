"""Dual-phase replay: rows, then columns of the grid of machines; the one bad machine is where the failing row crosses the failing column.

Machine i of n·m stands in row i // m and column i % m. The first round runs all rows at once, each as a job of its own, the second all columns: two rounds
whatever the number of machines. With one bad machine whose fault always shows, two rounds are enough; with more, the crossings of failing rows and columns are
candidates and group testing goes on (`group_testing`).

Source: ByteRobust, "Robust LLM Training Infrastructure at ByteDance", 2025, arXiv:2509.16293, the section on dual-phase replay; the square array is older
(M. Sobel, P. Groll, "Group Testing to Eliminate Efficiently All Defectives", 1959, and matrix pooling since).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """Machines in rows and columns, as square as it can be; the last row may be shorter.

    >>> Grid.of(7).rows()
    [[0, 1, 2], [3, 4, 5], [6]]
    >>> Grid.of(7).columns()
    [[0, 3, 6], [1, 4], [2, 5]]
    """

    machines: int
    width: int

    @classmethod
    def of(cls, machines: int) -> Grid:
        return cls(machines, math.isqrt(machines - 1) + 1 if machines else 0)

    def rows(self) -> list[list[int]]:
        """The groups of the first round: machines with the same quotient."""
        return [list(range(first, min(first + self.width, self.machines))) for first in range(0, self.machines, self.width)]

    def columns(self) -> list[list[int]]:
        """The groups of the second round: machines with the same remainder."""
        return [list(range(first, self.machines, self.width)) for first in range(min(self.width, self.machines))]


@dataclass(frozen=True)
class Crossing:
    """What two rounds say: `found`, `ambiguous`, `not found`, or `one phase` when only rows or only columns failed."""

    outcome: str
    candidates: list[int]
    text: str


def intersect(grid: Grid, failed_rows: Sequence[int], failed_columns: Sequence[int], shows: float = 1.0) -> Crossing:
    """Where the failing rows and columns meet; `shows` is how often a bad machine makes its group fail.

    >>> intersect(Grid.of(64), [3], [5]).candidates
    [29]
    >>> intersect(Grid.of(64), [3, 4], [5, 6]).outcome
    'ambiguous'
    """
    columns = grid.columns()
    crossings = sorted(machine for row in failed_rows for machine in grid.rows()[row] if machine % grid.width in set(failed_columns))
    hidden = (1 - shows) ** 2
    if not failed_rows and not failed_columns:
        if hidden:
            return Crossing("not found", [], f"no row and no column failed: a fault that shows {shows:.0%} of the time stays hidden through two rounds in {hidden:.0%} of cases")
        return Crossing("not found", [], "no row and no column failed: no machine is bad, or the fault does not show in this test")
    if not failed_rows or not failed_columns:
        groups = [grid.rows()[row] for row in failed_rows] or [columns[column] for column in failed_columns]
        which = "rows" if failed_rows else "columns"
        members = sorted(machine for group in groups for machine in group)
        return Crossing("one phase", members, f"only {which} failed: the fault shows sometimes, or what failed was not a machine; all members of the failing {which} are candidates")
    if len(crossings) == 1:
        return Crossing("found", crossings, "one row and one column failed, and one machine is in both")
    if not crossings:
        return Crossing("ambiguous", [], "the failing rows and columns have no machine in common: faults that show sometimes, or false alarms")
    least = max(len(failed_rows), len(failed_columns))
    return Crossing("ambiguous", crossings, f"{len(failed_rows)} rows and {len(failed_columns)} columns failed: at least {least} bad machines among {len(crossings)} crossings; groups of them tell which")
