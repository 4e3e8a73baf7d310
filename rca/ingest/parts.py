"""Work on one huge file by several workers: which ranges, and where what they found meets.

A range is searched by whichever worker is free and what it holds is posted on a *board*, a file in memory that only ever grows.
The worker whose posting makes the board complete joins the parts and does the rest of that file's work, which needs all of
them and goes down the file in order; no other worker waits for it.
"""

from __future__ import annotations

import marshal
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rca.ingest.disk import open_regular
from rca.ingest.engines import Matcher
from rca.ingest.scan import CHUNK_BYTES
from rca.ingest.sources import Source

PART_BYTES = 64 * CHUNK_BYTES  # 16 MiB, about 6 ms of scanning: less is not worth a task of its own
PARTS_PER_WORKER = 16  # the last part, when others are idle, is at most 1/16 of a worker's share
RECORD = struct.Struct("<II")

Range = tuple[int, int]


class InParts(NamedTuple):
    """How to work on a file by ranges: the results of all ranges, in their order, are joined to that of the file.

    Both give plain values. A range whose worker died gives `("died", reason)`, and is joined as such.
    """

    part: Callable[[Source, Matcher, int, int], Any]
    join: Callable[[Source, Matcher, list[Any]], Any]


def plan(sources: Sequence[Source], todo: Sequence[int], workers: int) -> dict[int, list[Range]]:
    """The ranges of each source that is worth splitting: plain, without holes, and large beside all there is to do."""
    if not hasattr(os, "memfd_create"):
        return {}
    share = sum(sources[i].extent for i in todo) // (workers * PARTS_PER_WORKER)
    step = -(-max(PART_BYTES, share) // CHUNK_BYTES) * CHUNK_BYTES
    large = [i for i in todo if sources[i].extent > 2 * step and not sources[i].compression and _unbroken(sources[i])]
    return {i: [(start, min(start + step, sources[i].extent)) for start in range(0, sources[i].extent, step)] for i in large}


def _unbroken(source: Source) -> bool:
    """Whether a file has no hole; what lies between holes is found by reading it from its beginning."""
    if source.inside:
        return True
    try:
        fd, _ = open_regular(source.path)
    except OSError:
        return False
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE) >= source.size
    except (OSError, AttributeError):
        return True
    finally:
        os.close(fd)


class Board:
    """What the parts of one file hold, as far as they are done. Made before the workers are forked. Raises OSError."""

    def __init__(self, ranges: list[Range]) -> None:
        import fcntl

        self.ranges = ranges
        self._fd = os.memfd_create("parts")
        fcntl.fcntl(self._fd, fcntl.F_SETFL, os.O_APPEND)  # what two workers write at once comes to lie one behind the other

    def post(self, number: int, value: Any) -> bool:
        """Post the result of a part. True for the one that makes the board complete.

        Posted again for a worker that died behind its posting, a part is not read a second time, and the answer is the same.
        """
        data = marshal.dumps(value)
        record = RECORD.pack(number, len(data)) + data
        if os.write(self._fd, record) != len(record):
            raise OSError("no memory for the result of a part")
        return self._completing() == number

    def _completing(self) -> int | None:
        """The number of the part that made the board complete; None while some are missing."""
        seen: set[int] = set()
        for number, _, _ in self._records():
            seen.add(number)
            if len(seen) == len(self.ranges):
                return number
        return None

    def _records(self) -> list[tuple[int, int, int]]:
        """`(number, place, length)` of all that was posted, in that order."""
        found, at = [], 0
        while len(head := os.pread(self._fd, RECORD.size, at)) == RECORD.size:
            number, length = RECORD.unpack(head)
            found.append((number, at + RECORD.size, length))
            at += RECORD.size + length
        return found

    def read(self) -> list[Any]:
        """The results of all parts in the order of the file."""
        first = {number: (place, length) for number, place, length in reversed(self._records())}
        return [marshal.loads(os.pread(self._fd, length, place)) for _, (place, length) in sorted(first.items())]

    def close(self) -> None:
        """Give the memory back."""
        os.close(self._fd)
