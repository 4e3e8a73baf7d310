"""Where the bytes of a member of an archive lie - in the archive on disk or held in memory - and a stream over them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rca.ingest.disk import Nothing, open_regular, why

if TYPE_CHECKING:
    from rca.ingest.archives.held import Held
    from rca.ingest.sources import Source


class Reader(Protocol):
    """Positioned reading; `close` gives the file back."""

    def pread(self, length: int, at: int) -> bytes:
        """Up to `length` bytes from `at`, fewer only at the end. Raises OSError."""
        ...

    def close(self) -> None:
        """End of reading."""
        ...


class FileReader:
    """A range of a regular file. Raises OSError where it cannot be opened."""

    def __init__(self, path: str, start: int, length: int) -> None:
        self._start, self._length, self._fd = start, length, -1
        self._fd, _ = open_regular(path)

    def pread(self, length: int, at: int) -> bytes:
        """Bytes of the range."""
        return os.pread(self._fd, max(0, min(length, self._length - at)), self._start + at)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    __del__ = close


class HeldReader:
    """A range of what is held of an archive."""

    def __init__(self, held: Held, start: int, length: int) -> None:
        self._held, self._start, self._length = held, start, length

    def pread(self, length: int, at: int) -> bytes:
        """Bytes of the range."""
        return self._held.pread(max(0, min(length, self._length - at)), self._start + at)

    def close(self) -> None:
        """Nothing to give back: what is held is held to the end."""


class Inside(NamedTuple):
    """Where a member lies: in its archive as it is there, or in what is held of an archive that can only be read from its beginning."""

    held: Held | None
    start: int
    length: int
    crc: int | None = None  # what a zip file says of the content
    decoded: int | None = None  # its size
    short: str | None = None  # why this is not all of it

    def reader(self, path: str) -> Reader:
        """Open the member. Raises OSError."""
        return HeldReader(self.held, self.start, self.length) if self.held else FileReader(path, self.start, self.length)


class Member:
    """The stream of an uncompressed member, or of a part of it."""

    def __init__(self, reader: Reader, end: int, start: int = 0, short: str | None = None) -> None:
        self._reader, self._end, self._short = reader, end, short
        self.position, self.consumed = start, 0
        self.truncated: str | None = None

    def readinto(self, view: memoryview) -> int:
        """Fill `view` unless the member ends."""
        filled = 0
        try:
            while filled < len(view) and self.position < self._end:
                data = self._reader.pread(min(len(view) - filled, self._end - self.position), self.position)
                if not data:
                    self.truncated, self._end = "shrank while it was read", self.position
                    break
                view[filled : filled + len(data)] = data
                filled += len(data)
                self.position += len(data)
        except OSError as error:
            self.truncated, self._end = why(error), self.position
        self.consumed += filled
        if filled < len(view):
            self.truncated = self.truncated or self._short
        return filled

    def close(self) -> None:
        """Give the archive back."""
        self._reader.close()


def open_member(source: Source, start: int = 0, end: int | None = None) -> Member | Nothing:
    """Open an uncompressed member, or a part of it; positions remain those of the member."""
    assert source.inside
    at = source.inside
    try:
        whole = end is None or end >= at.length
        return Member(at.reader(source.path), at.length if whole else end or 0, start, at.short if whole else None)
    except OSError as error:
        return Nothing(f"unreadable: {why(error)}")
