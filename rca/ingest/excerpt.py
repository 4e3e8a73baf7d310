"""Which parts of a large file are decoded: its head, its tail, and the surroundings of hits.

Logs are gigabytes and evidence is kilobytes. A file that fits the budget is read whole; of a larger one only excerpts
become lines, and the reader sees them in order with gaps between.

Reading a line costs what scanning 60 KB does, so that a phrase that every rank repeats a hundred times must not be read a
hundred times per rank: of each literal the first and last few hits have their surroundings read, the others hardly more than their line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BUDGET_BYTES = 3 << 18  # heads and tails decoded per run: an eighth of a second of parsing on two cores
WHOLE_MIN = 4 << 10  # every file may be read whole up to this size, however many there are
WHOLE_MAX = 256 << 10
HEAD_SHARE = 3  # a third of a file's share goes to its head (who am I), the rest to its tail (how did it end)
NEAR_HITS = 4  # of a literal at each end of a file, that are read with their surroundings
BEFORE_HIT = 2 << 10  # the step or stage that a hit belongs to is announced within a few lines before it
AFTER_HIT = 4 << 10  # what else was logged then; a block that is open there is read on, see below
BLOCK_MAX = 12 << 10  # from the last hit: a traceback or a stack dump rarely is longer
BEFORE_REPEAT, AFTER_REPEAT = 512, 1 << 10  # the line itself, and the beginning of its block
LINE, LONG_LINE = (192, 448), (3 << 10, 3 << 10)  # around a literal of which only the line is wanted
NEWEST_LINES = 40  # per literal: as many steps of the run
NONE: Mapping[int, bool] = {}
HITS_MIN, HITS_BYTES = 64 << 10, 6 << 20  # for the surroundings of hits: per file in any case, and per run


def share(files: int) -> int:
    """Bytes that each of `files` files may have decoded besides the surroundings of hits."""
    return max(WHOLE_MIN, min(WHOLE_MAX, BUDGET_BYTES // max(1, files)))


def hits_share(files: int) -> int:
    """Bytes around hits that each of `files` files may have decoded."""
    return max(HITS_MIN, HITS_BYTES // max(1, files))


def regions(size: int, hits: Sequence[tuple[int, int]], allowance: int, around: int = HITS_BYTES, lines: Mapping[int, bool] = NONE) -> list[tuple[int, int]]:
    """Sorted, disjoint `(start, end)` byte ranges to decode of a file of `size` bytes.

    `hits` are `(literal, offset)` by offset. About `around` bytes are given to them; the first and the last of each literal come first. Of the
    literals in `lines` only the line is wanted, be it long (True) or not.

    >>> regions(100, [], 200)
    [(0, 100)]
    >>> regions(100_000, [(7, 50_000)], 4096)
    [(0, 1365), (47952, 54096), (97269, 100000)]
    """
    if size <= allowance:
        return [(0, size)]
    own: list[tuple[int, int]] = []
    if lines:
        own = _own_lines(size, [h for h in hits if h[0] in lines], lines)
        hits = [h for h in hits if h[0] not in lines]
    head = allowance // HEAD_SHARE
    ends = [(0, head), (size - (allowance - head), size)]
    merged: list[tuple[int, int]] = []
    for near, repeats in ((NEAR_HITS, True), (NEAR_HITS, False), (1, False)):
        merged = _merged(ends + _surroundings(size, hits, near, repeats))
        if sum(end - start for start, end in merged) <= allowance + around:
            break
    return _merged(merged + own) if own else merged


def _own_lines(size: int, hits: Sequence[tuple[int, int]], lines: Mapping[int, bool]) -> list[tuple[int, int]]:
    """The lines of hits that announce stages: of each literal the first few and the newest."""
    places: dict[int, list[int]] = {}
    for literal, offset in hits:
        places.setdefault(literal, []).append(offset)
    found = []
    for literal, offsets in places.items():
        before, after = LONG_LINE if lines[literal] else LINE
        chosen = offsets if len(offsets) <= NEAR_HITS + NEWEST_LINES else offsets[:NEAR_HITS] + offsets[-NEWEST_LINES:]
        found += [(max(0, o - before), min(size, o + after)) for o in chosen]
    return _merged(found)


def _surroundings(size: int, hits: Sequence[tuple[int, int]], near: int, repeats: bool) -> list[tuple[int, int]]:
    """The range around each hit, large for the `near` first and last of each literal."""
    places: dict[int, list[int]] = {}
    for literal, offset in hits:
        places.setdefault(literal, []).append(offset)
    telling = {offset for offsets in places.values() for offset in (*offsets[:near], *offsets[-near:])}
    found = [(max(0, h - BEFORE_HIT), min(size, h + AFTER_HIT)) for h in telling]
    if repeats:
        found += [(max(0, h - BEFORE_REPEAT), min(size, h + AFTER_REPEAT)) for _, h in hits if h not in telling]
    return found


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of ranges, sorted."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
