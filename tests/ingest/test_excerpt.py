"""Which parts of a large file are decoded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rca.ingest.excerpt import AFTER_HIT, BEFORE_HIT, BUDGET_BYTES, WHOLE_MAX, WHOLE_MIN, regions, share


def test_share_shrinks_with_the_number_of_files() -> None:
    """One file may use its full allowance; thousands keep a small one each."""
    assert (share(0), share(1), share(100), share(100_000)) == (WHOLE_MAX, WHOLE_MAX, BUDGET_BYTES // 100, WHOLE_MIN)


def test_small_file_is_read_whole() -> None:
    """A file within its allowance is one region, hits or not."""
    assert regions(4096, [17, 4000], 4096) == [(0, 4096)]
    assert regions(0, [], 4096) == [(0, 0)]


def test_large_file_gives_head_tail_and_surroundings() -> None:
    """A quarter of the allowance goes to the head, the rest to the tail, and each hit has its surroundings."""
    assert regions(1_000_000, [500_000], 4096) == [(0, 1024), (500_000 - BEFORE_HIT, 500_000 + AFTER_HIT), (1_000_000 - 3072, 1_000_000)]


def test_regions_that_touch_are_joined() -> None:
    """Two hits near each other share one region, so that no line is read twice."""
    assert regions(1_000_000, [500_000, 505_000], 4096)[1] == (500_000 - BEFORE_HIT, 505_000 + AFTER_HIT)


@given(st.integers(0, 1_000_000), st.lists(st.integers(0, 999_999), max_size=20), st.integers(WHOLE_MIN, WHOLE_MAX))
def test_regions_are_sorted_disjoint_and_hold_every_hit(size: int, hits: list[int], allowance: int) -> None:
    """Whatever the hits are, regions lie within the file, do not overlap, and leave no hit out."""
    hits = sorted(h for h in hits if h < size)
    found = regions(size, hits, allowance)
    assert all(0 <= a <= b <= size for a, b in found)
    assert all(a[1] < b[0] for a, b in pairwise(found))
    assert all(any(a <= h < b for a, b in found) for h in hits)
