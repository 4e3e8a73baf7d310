"""Which parts of a large file are decoded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rca.ingest import excerpt
from rca.ingest.excerpt import AFTER_HIT, BEFORE_HIT, BUDGET_BYTES, HITS_MIN, NEAR_HITS, WHOLE_MAX, WHOLE_MIN, hits_share, regions, share

MANY = 10**9


def test_share_shrinks_with_the_number_of_files() -> None:
    """One file may use its full allowance; thousands keep a small one each."""
    assert (share(0), share(1), share(100), share(100_000)) == (WHOLE_MAX, WHOLE_MAX, BUDGET_BYTES // 100, WHOLE_MIN)
    assert (hits_share(1), hits_share(100_000)) == (excerpt.HITS_BYTES, HITS_MIN)


def test_small_file_is_read_whole() -> None:
    """A file within its allowance is one region, hits or not."""
    assert regions(4096, [(0, 17), (0, 4000)], 4096) == [(0, 4096)]
    assert regions(0, [], 4096) == [(0, 0)]


def test_large_file_gives_head_tail_and_surroundings() -> None:
    """A third of the allowance goes to the head, the rest to the tail, and each hit has its surroundings."""
    assert regions(1_000_000, [(0, 500_000)], 4096) == [(0, 1365), (500_000 - BEFORE_HIT, 500_000 + AFTER_HIT), (1_000_000 - 2731, 1_000_000)]


def test_regions_that_touch_are_joined() -> None:
    """Two hits near each other share one region, so that no line is read twice."""
    assert regions(1_000_000, [(0, 500_000), (1, 503_000)], 4096)[1] == (500_000 - BEFORE_HIT, 503_000 + AFTER_HIT)


hits_of = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 999_999)), max_size=40).map(lambda hits: sorted(hits, key=lambda h: h[1]))


@given(st.integers(0, 1_000_000), hits_of, st.integers(WHOLE_MIN, WHOLE_MAX), st.sampled_from([0, 30_000, MANY]))
def test_regions_are_sorted_disjoint_and_hold_every_literal(size: int, hits: list[tuple[int, int]], allowance: int, around: int) -> None:
    """Whatever the hits are, regions lie within the file and do not overlap; the first and last hit of each literal are never left out."""
    hits = [h for h in hits if h[1] < size]
    found = regions(size, hits, allowance, around)
    assert all(0 <= a <= b <= size for a, b in found)
    assert all(a[1] < b[0] for a, b in pairwise(found))
    for literal in {i for i, _ in hits}:
        mine = [offset for i, offset in hits if i == literal]
        assert all(any(a <= h < b for a, b in found) for h in (mine if around == MANY else (mine[0], mine[-1])))


def test_a_phrase_that_repeats_is_not_read_again_and_again() -> None:
    """Of a hundred hits of one literal the inner ones get their lines, or nothing where all files together have too many."""
    hits = [(0, 1_000_000 + 20_000 * i) for i in range(100)]
    rich, poor = regions(10_000_000, hits, 4096, MANY), regions(10_000_000, hits, 4096, 100_000)
    assert len(rich) == 2 + 100 and len(poor) == 2 + 2 * NEAR_HITS
    assert sum(b - a for a, b in rich) < 4096 + 2 * NEAR_HITS * 6144 + 92 * 1536 + 1
    assert sum(b - a for a, b in poor) <= 4096 + 100_000
