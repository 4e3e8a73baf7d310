"""Find the literals of all signatures in one file, at the price of reading it.

One buffer per process is filled again and again; lines are never cut out and newlines never counted on the way. A match
at the edge of two chunks is found because each search begins within the last bytes of the chunk before.

A literal that repeats without end (80,000 warnings in one file) must not cost more than the rest of the scan: of each
literal the first and the last 64 hits are kept besides the count. One that fills whole chunks is *muted*: taken out of
the search for the rest of the file and counted by `bytes.count`, which costs the same however often it occurs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from rca.ingest.engines import Matcher
from rca.ingest.sources import Source
from rca.ingest.streams import open_stream

CHUNK_BYTES = 256 << 10  # fits the L2 cache; larger chunks measured no faster, smaller ones slower
KEEP_HITS = 64  # per literal at each end of a file: more never make a report
HEAD_BYTES = TAIL_BYTES = 8 << 10
# Measured with Hyperscan: a hit costs about 0.3 us; counting a chunk by `bytes.count` and finding its last 64, 60 us; compiling
# a matcher without the literal, 20 ms. A literal is muted where that pays within the file.
MUTE_HITS = 200  # in one chunk, at which counting is as cheap as being called
MUTE_SAVES_HITS = 60_000  # calls that muting must save in the rest of the file


class ScanResult(NamedTuple):
    """What one file holds. Offsets count decoded bytes; see `Source.compression`."""

    hits: list[tuple[int, int]]  # (index of the literal, offset of its first byte), by offset; at most 128 per literal
    counts: dict[int, int]  # occurrences per literal found, all of them; for `once` literals, chunks that hold them
    decoded_size: int
    consumed: int  # bytes on disk that were used; the rest of `Source.size` was skipped because of `truncated`
    head: bytes
    tail: bytes
    truncated: str | None  # why the file was not used to its end
    newline_count: int | None = None  # not counted while scanning; see `line_numbers`


@cache
def _buffer(before: int) -> tuple[bytearray, memoryview]:
    """The one buffer of this process: `before` bytes carried over, then a chunk."""
    buffer = bytearray(before + CHUNK_BYTES)
    return buffer, memoryview(buffer)


def scan(source: Source, matcher: Matcher) -> ScanResult:
    """Search one listed source. One scan at a time per process: the buffer is shared."""
    overlap = max(0, matcher.longest - 1)
    carry_max = max(TAIL_BYTES, overlap)
    buffer, view = _buffer(carry_max)
    fresh = view[carry_max:]
    tally = _Tally(matcher)
    head, carry, end = b"", 0, 0
    stream = open_stream(source)
    try:
        while count := stream.readinto(fresh):
            start = stream.position - count
            if start != end or end == 0:  # the first chunk, or a hole lies between
                carry, head = 0, head or bytes(fresh[: min(count, HEAD_BYTES)])
            end = stream.position
            low = carry_max - min(carry, overlap)
            found = tally.active.scan(buffer, low, carry_max + count)
            if found or tally.muted:
                left = (source.size - stream.consumed) * end // (stream.consumed or 1)
                tally.chunk(found, buffer, low, carry_max, carry_max + count, start - carry_max, left)
            keep = min(carry_max, carry + count)
            view[carry_max - keep : carry_max] = view[carry_max + count - keep : carry_max + count]
            carry = keep
    finally:
        stream.close()
    tail = bytes(view[carry_max - min(carry, TAIL_BYTES) : carry_max])
    return ScanResult(tally.hits(), tally.counts, stream.position, stream.consumed, head, tail, stream.truncated)


class _Tally:
    """The hits of one file: counts, the first and last few offsets, and which literals are muted."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = self.active = matcher
        self.muted: dict[int, bytes] = {}
        self.counts: dict[int, int] = {}
        self._first: dict[int, list[int]] = {}
        self._last: dict[int, deque[int]] = {}

    def chunk(self, found: dict[int, list[int]], buffer: bytearray, low: int, fresh: int, high: int, base: int, left: int) -> None:
        """Take the hits of one chunk.

        `buffer[low:high]` was searched, of which `[low:fresh]` for the second time; buffer position 0 is file offset
        `base`. `found` is what the matcher gave. `left` bytes are yet to come.
        """
        for index, ends in found.items():
            length = len(self._matcher.literals[index])
            if index in self._matcher.once:  # only the first of a search is reported, be it in the part seen before
                if index in self._last and self._last[index][-1] >= base + low + ends[0] - length:
                    continue
            elif ends[0] <= fresh - low:
                ends = [e for e in ends if e > fresh - low]
                if not ends:
                    continue
            self._add(index, ends, len(ends), base + low - length)
            if (len(ends) - MUTE_HITS) * (left // CHUNK_BYTES) > MUTE_SAVES_HITS:
                first = low + ends[0] - length
                self._mute(index, bytes(buffer[first : first + length]), buffer, first, high, len(ends))
        for index, spelling in self.muted.items():
            if index not in found:
                begin = max(low, fresh - len(spelling) + 1)
                if count := buffer.count(spelling, begin, high):
                    self._add(index, _last_starts(buffer, spelling, begin, high), count, base)

    def _add(self, index: int, places: list[int], count: int, base: int) -> None:
        """Note `count` matches at `base` plus `places`; of a muted literal only the last places are given."""
        if index not in self.counts:
            self.counts[index], self._first[index], self._last[index] = 0, [], deque(maxlen=KEEP_HITS)
        self.counts[index] += count
        if (room := KEEP_HITS - len(self._first[index])) > 0:
            self._first[index].extend([base + p for p in places[:room]])
        self._last[index].extend([base + p for p in places[-KEEP_HITS:]])

    def _mute(self, index: int, spelling: bytes, buffer: bytearray, first: int, high: int, count: int) -> None:
        """Mute a literal, unless it is spelled in several ways or overlaps itself and `bytes.count` would differ."""
        if buffer.count(spelling, first, high) == count:
            self.muted[index] = spelling
            self.active = self._matcher.without(frozenset(self.muted))

    def hits(self) -> list[tuple[int, int]]:
        """`(index, offset)` of all hits kept, by offset."""
        return sorted(((i, s) for i in self.counts for s in {*self._first[i], *self._last[i]}), key=lambda h: (h[1], h[0]))


def _last_starts(buffer: bytearray, spelling: bytes, low: int, high: int) -> list[int]:
    """The last few places of `spelling` in a part of the buffer, ascending."""
    starts: list[int] = []
    while len(starts) < KEEP_HITS and (at := buffer.rfind(spelling, low, high)) >= 0:
        starts.append(at)
        high = at
    return starts[::-1]


def line_numbers(source: Source, offsets: Sequence[int]) -> list[int]:
    """The line, from 1 by newlines, of each of the ascending decoded `offsets`; reads no further than the last.

    Newlines are counted from one offset to the next: counting from the start of a chunk at each hit is quadratic.
    """
    numbers: list[int] = []
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    line = 1
    stream = open_stream(source)
    try:
        while len(numbers) < len(offsets) and (count := stream.readinto(view)):
            start, at = stream.position - count, 0
            while len(numbers) < len(offsets) and offsets[len(numbers)] < start + count:
                stop = max(at, offsets[len(numbers)] - start)
                line += buffer.count(b"\n", at, stop)
                numbers.append(line)
                at = stop
            if len(numbers) < len(offsets):
                line += buffer.count(b"\n", at, count)
    finally:
        stream.close()
    return numbers + [line] * (len(offsets) - len(numbers))
