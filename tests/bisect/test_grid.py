"""Rows, then columns."""

from __future__ import annotations

import pytest

from rca.bisect.grid import Grid, intersect


@pytest.mark.parametrize("machines", [1, 2, 3, 7, 12, 63, 64, 65, 1000])
def test_every_machine_is_in_one_row_and_one_column(machines):
    """And no two machines share both, or a crossing would be two machines."""
    grid = Grid.of(machines)
    for groups in (grid.rows(), grid.columns()):
        assert sorted(machine for group in groups for machine in group) == list(range(machines))
        assert all(groups)
    assert all(len(set(row) & set(column)) <= 1 for row in grid.rows() for column in grid.columns())
    assert len(grid.rows()) <= grid.width


@pytest.mark.parametrize("bad", range(64))
def test_one_bad_machine_of_64_is_where_row_and_column_cross(bad):
    """Two rounds, for each of the 64."""
    grid = Grid.of(64)
    found = intersect(grid, [i for i, row in enumerate(grid.rows()) if bad in row], [i for i, column in enumerate(grid.columns()) if bad in column])
    assert (found.outcome, found.candidates) == ("found", [bad])


def test_what_is_not_sure_is_not_found():
    """Several rows, one phase only, nothing at all: each says what it is."""
    grid = Grid.of(64)
    several = intersect(grid, [0, 1], [2, 3])
    assert several.outcome == "ambiguous" and several.candidates == [2, 3, 10, 11] and "at least 2" in several.text
    assert intersect(grid, [0], []).outcome == "one phase" and intersect(grid, [0], []).candidates == list(range(8))
    assert "25%" in intersect(grid, [], [], shows=0.5).text
    assert intersect(grid, [], []).outcome == "not found"
