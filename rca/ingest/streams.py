"""The decoded bytes of one file, whatever it is stored as: plain, gzip, zstd, xz, bzip2, UTF-16, or a member of an archive.

Every stream has `readinto(view)` (bytes written, 0 at the end; it fills `view` unless the file ends or a hole begins),
`position` (decoded offset of the next byte), `consumed` (bytes on disk that were used so far), `truncated` (why the
file was not used to its end, or None) and `close()`. Nothing here raises on what a file holds or on how reading fails:
whatever could be read is delivered, and `truncated` says what was wrong.

Input is hostile or still being written: files are never mapped into memory (a file cut while mapped kills the process),
never read beyond the size they had at the start, and never decoded without a bound.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from rca.ingest.decoders import DECODERS, Cut, Raw
from rca.ingest.disk import Nothing, open_regular, why
from rca.ingest.inside import Inside, open_member

if TYPE_CHECKING:
    from rca.ingest.sources import Source

WINDOW_BYTES = 8 << 20  # decoded bytes kept per compressed file
WINDOWS = 2  # compressed files so kept; a worker reads one file at a time
RATIO_MAX = 200  # decoded : raw; text reaches about 30, a bomb 1000 and more
RATIO_FROM_BYTES = 64 << 20  # the ratio is not judged before so much was decoded


class Plain:
    """A file as it lies on disk. Holes are jumped over, not read: a sparse terabyte costs nothing."""

    def __init__(self, fd: int, status: os.stat_result, size: int, start: int = 0) -> None:
        self._fd, self._size = fd, size
        self.position, self.consumed = start, 0
        self.truncated: str | None = None
        sparse = status.st_blocks * 512 < min(size, status.st_size) and hasattr(os, "SEEK_DATA")
        self._data_end = 0 if sparse else size
        self._holes = False

    def readinto(self, view: memoryview) -> int:
        """Read up to the end of the file or of its present data segment."""
        filled = 0
        try:
            while filled < len(view):
                if self.position >= self._data_end and (filled or not self._next_segment()):
                    break
                want = min(len(view) - filled, self._data_end - self.position)
                count = os.preadv(self._fd, [view[filled : filled + want]], self.position)
                if count == 0:
                    self.truncated, self._size = "shrank while it was read", self.position
                    break
                filled += count
                self.position += count
        except OSError as error:
            self.truncated, self._size = why(error), self.position
        self.consumed += filled
        return filled

    def _next_segment(self) -> bool:
        """Move on to the next data behind a hole; False at the end of the file."""
        if self.position >= self._size:
            return False
        try:
            start = os.lseek(self._fd, self.position, os.SEEK_DATA)
            end = os.lseek(self._fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                start = end = self._size
            else:  # a file system that does not know its holes
                start, end = self.position, self._size
        start, end = min(start, self._size), min(end, self._size)
        if start > self.position:
            self.truncated = "sparse"
        self.position, self._data_end = start, end
        return start < self._size

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class Window:
    """What a file decodes to, block by block, of which the latest 8 MiB are kept.

    A small compressed file is thus decoded once, however often it is read; excerpts near the end of a large one come
    from memory; anything else decodes it anew.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._file: Any = None
        self._restart()

    def _restart(self) -> None:
        self.close()
        self.end, self.consumed, self.truncated, self.done = 0, 0, None, False
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        try:
            self._file = (self._source.inside or Inside(None, 0, self._source.size)).reader(self._source.path)
        except OSError as error:
            self.truncated, self.done = f"unreadable: {why(error)}", True
            return
        whole = self._source.inside[3:5] if self._source.inside else (None, None)
        self._raw = Raw(self._file.pread, self._source.extent, whole)
        self._blocks = DECODERS[self._source.compression or ""](self._raw)

    def _advance(self) -> None:
        """Decode one more block, or find the end."""
        try:
            block = next(self._blocks)
            if self.end > RATIO_FROM_BYTES and self.end > RATIO_MAX * max(1, self._raw.used):
                raise Cut("ratio limit")
        except StopIteration:
            self.done = True
        except Cut as cut:
            self.truncated, self.done = str(cut), True
        except (MemoryError, OSError) as error:
            self.truncated, self.done = why(error) if isinstance(error, OSError) else "out of memory", True
        except Exception as error:  # zlib, isal, lzma and zstandard have no error in common
            if type(error).__module__.partition(".")[0] not in ("zlib", "igzip_lib", "isal", "_lzma", "lzma", "bz2", "_bz2", "zstandard"):
                raise
            self.truncated, self.done = "damaged", True
        else:
            if block:
                self._kept.append((self.end, block))
                self.end += len(block)
                self._kept_bytes += len(block)
                while self._kept_bytes > WINDOW_BYTES and len(self._kept) > 1:
                    self._kept_bytes -= len(self._kept.popleft()[1])
        self.consumed = self._raw.used
        if self.done:
            self.close()

    def at(self, offset: int) -> memoryview:
        """The decoded bytes from `offset` to the end of its block; empty behind the end."""
        if self._kept and offset < self._kept[0][0]:
            self._restart()
        while offset >= self.end and not self.done:
            self._advance()
        for start, block in reversed(self._kept):
            if start <= offset < start + len(block):
                return memoryview(block)[offset - start :]
        return memoryview(b"")

    def close(self) -> None:
        """Close the file; what is kept stays readable."""
        if self._file:
            self._file.close()
            self._file = None

    __del__ = close


class Decoded:
    """A compressed or re-encoded file, read through its `Window`."""

    def __init__(self, window: Window) -> None:
        self._window, self.position = window, 0

    @property
    def consumed(self) -> int:
        """Bytes on disk that were decoded."""
        return self._window.consumed

    @property
    def truncated(self) -> str | None:
        """Why decoding ended early, or None."""
        return self._window.truncated

    def readinto(self, view: memoryview) -> int:
        """Fill `view` with decoded bytes."""
        filled = 0
        while filled < len(view) and (block := self._window.at(self.position)):
            count = min(len(block), len(view) - filled)
            view[filled : filled + count] = block[:count]
            filled += count
            self.position += count
        return filled

    def close(self) -> None:
        """Do nothing: the window closes its file at its end, or when other files took its place."""


Stream = Nothing | Plain | Decoded
_windows: OrderedDict[tuple[str, str, int], Window] = OrderedDict()


def window(source: Source) -> Window:
    """The kept window of a compressed file; a few are kept per process."""
    key = (source.path, source.name, source.size)
    found = _windows.pop(key, None) or Window(source)
    _windows[key] = found
    if len(_windows) > WINDOWS:
        _windows.popitem(last=False)
    return found


def open_stream(source: Source) -> Stream:
    """Open a listed source for decoded reading from its beginning."""
    if source.compression:
        return Decoded(window(source))
    if source.inside:
        return open_member(source)
    try:
        return Plain(*open_regular(source.path), source.size)
    except OSError as error:
        return Nothing(f"unreadable: {why(error)}")


def open_range(source: Source, start: int, end: int) -> Stream:
    """Open a part of a plain source; positions remain those of the file."""
    if source.inside:
        return open_member(source, start, end)
    try:
        return Plain(*open_regular(source.path), min(end, source.size), start)
    except OSError as error:
        return Nothing(f"unreadable: {why(error)}")
