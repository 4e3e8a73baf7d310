"""Which parts of a large file are decoded: its head, its tail, and the surroundings of every hit.

Logs are gigabytes and evidence is kilobytes. A file that fits the budget is read whole; of a larger one only excerpts
become lines, and the reader sees them in order with gaps between.
"""

from __future__ import annotations

BUDGET_BYTES = 3 << 20  # decoded per run: about half a second of parsing on two cores
WHOLE_MIN = 4 << 10  # every file may be read whole up to this size, however many there are
WHOLE_MAX = 256 << 10
HEAD_SHARE = 4  # a quarter of a file's share goes to its head (who am I), the rest to its tail (how did it end)
BEFORE_HIT = 2 << 10  # the step or stage that a hit belongs to is announced within a few lines before it
AFTER_HIT = 12 << 10  # a traceback or a stack dump rarely is longer


def share(files: int) -> int:
    """Bytes that each of `files` files may have decoded besides the surroundings of hits."""
    return max(WHOLE_MIN, min(WHOLE_MAX, BUDGET_BYTES // max(1, files)))


def regions(size: int, hits: list[int], allowance: int) -> list[tuple[int, int]]:
    """Sorted, disjoint `(start, end)` byte ranges to decode of a file of `size` bytes.

    >>> regions(100, [], 200)
    [(0, 100)]
    >>> regions(100_000, [50_000], 4096)
    [(0, 1024), (47952, 62288), (96928, 100000)]
    """
    if size <= allowance:
        return [(0, size)]
    head = allowance // HEAD_SHARE
    wanted = [(0, head), (size - (allowance - head), size)]
    wanted += [(max(0, h - BEFORE_HIT), min(size, h + AFTER_HIT)) for h in hits]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(wanted):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
