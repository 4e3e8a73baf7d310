"""Find the literals of all signatures in one file, at the price of reading it.

One buffer per process is filled again and again; lines are never cut out and newlines never counted on the way. A match
at the edge of two chunks is found because each search begins within the last bytes of the chunk before.

A literal that repeats without end (80,000 warnings in one file) must not cost more than the rest of the scan: of each
literal the first and the last 64 hits are kept besides the count. One that fills whole chunks is *muted*: taken out of
the search for the rest of the file and counted by `bytes.count` in lower case, which costs the same however often it occurs.

A huge file may be searched in parts by several processes; the result is that of searching it as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import NamedTuple

from rca.ingest.engines import Matcher
from rca.ingest.sources import Source
from rca.ingest.streams import open_range, open_stream

CHUNK_BYTES = 256 << 10  # fits the L2 cache; larger chunks measured no faster, smaller ones slower
KEEP_HITS = 64  # per literal at each end of a file: more never make a report
SAMPLE_BYTES, SHORT_LINE = 4096, 40  # lines shorter than this are better counted byte by byte
# Measured with Hyperscan: a hit costs about 0.4 us; counting a chunk by `bytes.count` and finding its last 64, 150 us; compiling
# a matcher without the literal, 30 ms. A literal is muted where that pays within the file; or once its hits in all files together have cost
# as much as compiling does, because the files of a run are alike: then at most twice of what was needed is spent, whatever comes.
MUTE_HITS = 400  # in one chunk, at which counting is as cheap as being called
MUTE_SAVES_HITS = 60_000  # calls that muting must save

Lost = tuple[str, str]  # ("died", reason): see `rca.ingest.pool`


class ScanResult(NamedTuple):
    """What one file holds. Offsets count decoded bytes; see `Source.compression`."""

    hits: list[tuple[int, int]]  # (index of the literal, offset of its first byte), by offset; at most 128 per literal
    counts: dict[int, int]  # occurrences per literal found, all of them; for `once` literals, chunks that hold them
    decoded_size: int
    consumed: int  # bytes on disk that were used; the rest of `Source.size` was skipped because of `truncated`
    truncated: str | None  # why the file was not used to its end
    lines: tuple[tuple[int, int], ...] = ()  # (offset, newlines before it) where a part of a split file begins


class Part(NamedTuple):
    """What a range of a file holds, in plain values: it travels between processes."""

    start: int
    position: int  # behind the last byte that was searched
    consumed: int
    truncated: str | None
    newlines: int | None  # in the range; None where they were not counted
    counts: dict[int, int]
    first: dict[int, list[int]]  # per literal the offsets of its first few hits
    last: dict[int, list[int]]


@cache
def _buffer(before: int) -> tuple[bytearray, memoryview]:
    """The one buffer of this process: `before` bytes carried over, then a chunk."""
    buffer = bytearray(before + CHUNK_BYTES)
    return buffer, memoryview(buffer)


def scan(source: Source, matcher: Matcher) -> ScanResult:
    """Search one listed source. One scan at a time per process: the buffer is shared."""
    return merged([search(source, matcher)])


def search(source: Source, matcher: Matcher, start: int = 0, end: int | None = None) -> Part:
    """Search a whole source, or what begins at `start` of a plain one, and count its newlines, for whoever is to merge the parts.

    A literal belongs to the range that holds its last byte. With `start` and `end` on the grid of chunks, the parts of a file
    search the very chunks that a scan of the whole does.
    """
    overlap = max(0, matcher.longest - 1)
    buffer, view = _buffer(overlap)
    fresh = view[overlap:]
    tally = _Tally(matcher)
    stream = open_stream(source) if end is None else open_range(source, max(0, start - overlap), end)
    newlines = None if end is None else 0
    carry = before = 0
    try:
        if start:  # the end of the range before, for a literal that lies across
            wanted = min(overlap, start)
            before = stream.readinto(view[overlap - wanted : overlap])
            carry = before if before == wanted else 0
        at = start
        while count := stream.readinto(fresh):
            begin = stream.position - count
            if begin != at:  # a hole lies between
                carry = 0
            at = stream.position
            found = tally.active.scan(buffer, overlap - carry, overlap + count)
            if found or tally.muted:
                used = stream.consumed or 1
                left = (source.size - used) * at // used if end is None else end - at
                tally.chunk(found, buffer, overlap - carry, overlap, overlap + count, begin - overlap, left)
            if newlines is not None:
                newlines += newlines_in(bytes(fresh[:count]))
            keep = min(overlap, carry + count)
            view[overlap - keep : overlap] = view[overlap + count - keep : overlap + count]
            carry = keep
    finally:
        stream.close()
    last = {index: list(offsets) for index, offsets in tally.last.items()}
    return Part(start, stream.position, stream.consumed - before, stream.truncated, newlines, tally.counts, tally.first, last)


def merged(parts: Sequence[Part | Lost]) -> ScanResult:
    """The result for a file from its parts, in the order of the file. A part that was lost leaves a gap, and a reason."""
    counts: dict[int, int] = {}
    first: dict[int, list[int]] = {}
    last: dict[int, list[int]] = {}
    lines: list[tuple[int, int]] = []
    size = consumed = 0
    truncated = None
    newlines: int | None = 0  # before the part; unknown behind a gap
    for part in parts:
        if not isinstance(part, Part):
            truncated, newlines = truncated or f"a part of it was not searched: {part[1]}", None
            continue
        for index, count in part.counts.items():
            counts[index] = counts.get(index, 0) + count
            first[index] = (first.get(index, []) + part.first[index])[:KEEP_HITS]
            last[index] = (last.get(index, []) + part.last[index])[-KEEP_HITS:]
        if newlines is not None and part.start:
            lines.append((part.start, newlines))
        newlines = None if newlines is None or part.newlines is None else newlines + part.newlines
        if part.consumed or not part.start:  # nothing is left for the later parts of a file that was cut meanwhile
            size = part.position
        consumed += part.consumed
        truncated = truncated or part.truncated
    hits = sorted({(s, i) for i in counts for s in (*first[i], *last[i])})
    return ScanResult([(i, s) for s, i in hits], counts, size, consumed, truncated, tuple(lines))


class _Tally:
    """The hits of one file: counts, the first and last few offsets, and which literals are muted."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = self.active = matcher
        self.muted: dict[int, bytes] = {}
        self.counts: dict[int, int] = {}
        self.first: dict[int, list[int]] = {}
        self.last: dict[int, deque[int]] = {}

    def chunk(self, found: dict[int, list[int]], buffer: bytearray, low: int, fresh: int, high: int, base: int, left: int) -> None:
        """Take the hits of one chunk.

        `buffer[low:high]` was searched, of which `[low:fresh]` for the second time; buffer position 0 is file offset
        `base`. `found` is what the matcher gave. `left` bytes are yet to come.
        """
        for index, ends in found.items():
            length = len(self._matcher.literals[index])
            # Of a `once` literal only the first of a search is reported, be it in the part seen before.
            if ends[0] <= fresh - low and index not in self._matcher.once:
                ends = [e for e in ends if e > fresh - low]
                if not ends:
                    continue
            self._add(index, ends, len(ends), base + low - length)
            if len(ends) > MUTE_HITS:
                self._consider(index, len(ends), left // CHUNK_BYTES)
        if self.muted:
            begin = max(0, fresh - self._matcher.longest + 1)
            lowered = buffer[begin:high].lower()
            for index, spelling in self.muted.items():
                if index not in found:
                    start = max(low, fresh - len(spelling) + 1) - begin
                    if count := lowered.count(spelling, start):
                        self._add(index, _last_starts(lowered, spelling, start), count, base + begin)

    def _add(self, index: int, places: list[int], count: int, base: int) -> None:
        """Note `count` matches at `base` plus `places`; of a muted literal only the last places are given."""
        if index not in self.counts:
            self.counts[index], self.first[index], self.last[index] = 0, [], deque(maxlen=KEEP_HITS)
        self.counts[index] += count
        if (room := KEEP_HITS - len(self.first[index])) > 0:
            self.first[index].extend([base + p for p in places[:room]])
        self.last[index].extend([base + p for p in places[-KEEP_HITS:]])

    def _consider(self, index: int, count: int, chunks: int) -> None:
        """Mute a literal with `count` hits in a chunk if that pays, unless it could overlap itself and `bytes.count` would differ."""
        known, spent = self._matcher.narrower, self._matcher.spent
        spent[index] = spent.get(index, 0) + count
        muted = frozenset({*self.muted, index})
        pays = (count - MUTE_HITS) * chunks > MUTE_SAVES_HITS or spent[index] > MUTE_SAVES_HITS * (1 + len(known))
        spelling = self._matcher.literals[index].lower()
        if (pays or muted in known) and not any(spelling.startswith(spelling[i:]) for i in range(1, len(spelling))):
            self.muted[index] = spelling
            self.active = self._matcher.without(muted)


def _last_starts(data: bytearray, spelling: bytes, low: int) -> list[int]:
    """The last few places of `spelling` behind `low`, ascending."""
    starts: list[int] = []
    high = len(data)
    while len(starts) < KEEP_HITS and (at := data.rfind(spelling, low, high)) >= 0:
        starts.append(at)
        high = at
    return starts[::-1]


def newlines_in(data: bytes) -> int:
    """How many newlines there are. `bytes.count` looks at every byte, `replace` jumps from one newline to the next.

    Measured with CPython 3.11: 3.0 and 7.5 GB/s for lines of 140 bytes; equal at about 40.
    """
    if data.count(b"\n", 0, SAMPLE_BYTES) * SHORT_LINE > SAMPLE_BYTES:
        return data.count(b"\n")
    return len(data) - len(data.replace(b"\n", b""))


def line_numbers(source: Source, offsets: Sequence[int]) -> list[int]:
    """The line, from 1 by newlines, of each of the ascending decoded `offsets`; reads no further than the last.

    Newlines are counted from one offset to the next: counting from the start of a chunk at each hit is quadratic. Where the scan
    has counted them up to some place, see `Source.lines`, counting begins there.
    """
    numbers: list[int] = []
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    line = 1
    stream = open_stream(source)
    try:
        while len(numbers) < len(offsets):
            known = bisect_right(source.lines, offsets[len(numbers)], key=itemgetter(0))
            if known and source.lines[known - 1][0] > stream.position:
                stream.position, line = source.lines[known - 1][0], 1 + source.lines[known - 1][1]
            if not (count := stream.readinto(view)):
                break
            start, at = stream.position - count, 0
            while len(numbers) < len(offsets) and offsets[len(numbers)] < start + count:
                stop = max(at, offsets[len(numbers)] - start)
                line += newlines_in(bytes(view[at:stop]))
                numbers.append(line)
                at = stop
            if len(numbers) < len(offsets):
                line += newlines_in(bytes(view[at:count]))
    finally:
        stream.close()
    return numbers + [line] * (len(offsets) - len(numbers))
