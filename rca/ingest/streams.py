"""The decoded bytes of one file, whatever it is stored as: plain, gzip, zstd, xz or UTF-16.

Every stream has `readinto(view)` (bytes written, 0 at the end; it fills `view` unless the file ends or a hole begins),
`position` (decoded offset of the next byte), `consumed` (bytes on disk that were used so far), `truncated` (why the
file was not used to its end, or None) and `close()`. Nothing here raises on what a file holds or on how reading fails:
whatever could be read is delivered, and `truncated` says what was wrong.

Input is hostile or still being written: files are never mapped into memory (a file cut while mapped kills the process),
never read beyond the size they had at the start, and never decoded without a bound.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rca.ingest.sources import Source

# O_NONBLOCK: opening a FIFO must not wait for a writer. O_NOFOLLOW: a path was resolved once, when it was listed.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
RAW_BYTES = 64 << 10  # read from disk at once for decoding
BLOCK_BYTES = 256 << 10  # decoded at once at most: bounds memory however well a bomb is packed
WINDOW_BYTES = 8 << 20  # decoded bytes kept per compressed file
WINDOWS = 2  # compressed files so kept; a worker reads one file at a time
RATIO_MAX = 200  # decoded : raw; text reaches about 30, a bomb 1000 and more
RATIO_FROM_BYTES = 64 << 20  # the ratio is not judged before so much was decoded
ZSTD_WINDOW_MAX = 1 << 27  # bytes; `zstd --long` needs no more
ZSTD_BLOCKS_MAX = 200_000  # looked at for completeness: 25 GB of text, one second of looking
XZ_MEMORY_MAX = 256 << 20  # bytes; `xz -9` needs 65 MiB


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading without ever blocking. Raises OSError for anything else."""
    fd = os.open(path, OPEN_FLAGS)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OSError("not a regular file")
    return fd, status


def why(error: OSError) -> str:
    """The words of an I/O error, without path or number."""
    return (error.strerror or str(error)).lower()


class Nothing:
    """The stream of a file that cannot be opened."""

    position = consumed = 0

    def __init__(self, truncated: str | None) -> None:
        self.truncated = truncated

    def readinto(self, view: memoryview) -> int:
        """Deliver nothing."""
        return 0

    def close(self) -> None:
        """Do nothing."""


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


class Raw:
    """Positioned reading from a compressed file up to the size it had at the start; `used` is what a decoder has taken."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size, self.position, self.used = fd, size, 0, 0

    def read(self, length: int = RAW_BYTES) -> bytes:
        """The next bytes, empty at the end."""
        data = os.pread(self.fd, min(length, self.size - self.position), self.position)
        self.position += len(data)
        return data


class Cut(Exception):
    """Decoding ended early; the message says why."""


def _members(raw: Raw, new: Callable[[], Any]) -> Iterator[bytes]:
    """Decode concatenated gzip or xz members with decompressor objects of the standard library's shape."""
    data = b""
    while True:
        data = (data or raw.read()).lstrip(b"\0")  # tapes and xz pad with zeros between members
        raw.used = raw.position - len(data)
        if not data:
            if raw.position >= raw.size:
                return
            continue
        decoder = new()
        while not decoder.eof:
            if not data and getattr(decoder, "needs_input", True):
                data = raw.read()
                if not data:
                    if hasattr(decoder, "flush"):
                        yield decoder.flush()
                    raise Cut("truncated")
            block = decoder.decompress(data, BLOCK_BYTES)
            data = getattr(decoder, "unconsumed_tail", b"")
            raw.used = raw.position - len(data)
            yield block
        data = decoder.unused_data


def _gzip(raw: Raw) -> Iterator[bytes]:
    try:
        from isal import isal_zlib as zlib
    except ImportError:
        import zlib
    return _members(raw, lambda: zlib.decompressobj(31))


def _xz(raw: Raw) -> Iterator[bytes]:
    import lzma

    return _members(raw, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_MAX))


def _zstd(raw: Raw) -> Iterator[bytes]:
    import zstandard

    # Not `decompressobj`: one call of it may return gigabytes. The reader is bounded, but ends silently when cut.
    reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX).stream_reader(raw, read_size=RAW_BYTES, read_across_frames=True, closefd=False)
    while block := reader.read1(BLOCK_BYTES):  # `read` would lose all of a block in whose midst an error is found
        raw.used = raw.position
        yield block
    raw.used = raw.position
    if not _zstd_complete(raw, zstandard):
        raise Cut("truncated")


def _zstd_complete(raw: Raw, zstandard: Any) -> bool:
    """Whether the last zstd frame is whole, told from block headers alone (RFC 8878, section 3.1.1)."""
    at = blocks = 0
    while at < raw.size and blocks < ZSTD_BLOCKS_MAX:
        blocks += 1
        head = os.pread(raw.fd, 18, at)
        if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:  # skippable frame
            at += 8 + int.from_bytes(head[4:8], "little")
            continue
        try:
            at += zstandard.frame_header_size(head)
            checksum = 4 * zstandard.get_frame_parameters(head).has_checksum
        except zstandard.ZstdError:
            return False
        last = False
        while not last:
            blocks += 1
            block = int.from_bytes(header := os.pread(raw.fd, 3, at), "little")
            if len(header) < 3:
                return False
            last = bool(block & 1)
            at += 3 + (1 if (block >> 1) & 3 == 1 else block >> 3)  # type 1 repeats one byte
        at += checksum
    return at == raw.size or blocks >= ZSTD_BLOCKS_MAX


def _utf16(raw: Raw) -> Iterator[bytes]:
    encoding = utf16_encoding(head := raw.read()) or "utf-16-le"
    decode = codecs.getincrementaldecoder(encoding)("replace").decode
    mark = 2 if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else 0
    data = head[mark:]
    while data:
        raw.used = raw.position
        yield decode(data).encode("utf-8", "replace")
        data = raw.read()
    yield decode(b"", True).encode("utf-8", "replace")
    if raw.size % 2:
        raise Cut("truncated")


def utf16_encoding(head: bytes) -> str | None:
    """The encoding by byte order mark, or by NULs in one half of the byte pairs only; None if it is not UTF-16."""
    if head[:4] in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        return None
    if head[:2] == codecs.BOM_UTF16_LE:
        return "utf-16-le"
    if head[:2] == codecs.BOM_UTF16_BE:
        return "utf-16-be"
    pairs = len(head) // 2
    first, second = head[0 : 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    # Mostly Latin text: nearly every pair has its NUL in the same half, and the other half has none.
    if pairs < 4 or max(first, second) < 0.7 * pairs or min(first, second) > 0.05 * pairs:
        return None
    return "utf-16-le" if second > first else "utf-16-be"


DECODERS = {"gz": _gzip, "xz": _xz, "zst": _zstd, "utf16": _utf16}


class Window:
    """What a file decodes to, block by block, of which the latest 8 MiB are kept.

    A small compressed file is thus decoded once, however often it is read; excerpts near the end of a large one come
    from memory; anything else decodes it anew.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._fd = -1
        self._restart()

    def _restart(self) -> None:
        self.close()
        self.end, self.consumed, self.truncated, self.done = 0, 0, None, False
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        try:
            self._fd, _ = open_regular(self._source.path)
        except OSError as error:
            self.truncated, self.done = f"unreadable: {why(error)}", True
            return
        self._raw = Raw(self._fd, self._source.size)
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
            if type(error).__module__.partition(".")[0] not in ("zlib", "igzip_lib", "isal", "_lzma", "lzma", "zstandard"):
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
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

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
_windows: OrderedDict[tuple[str, int], Window] = OrderedDict()


def window(source: Source) -> Window:
    """The kept window of a compressed file; a few are kept per process."""
    key = (source.path, source.size)
    found = _windows.pop(key, None) or Window(source)
    _windows[key] = found
    if len(_windows) > WINDOWS:
        _windows.popitem(last=False)
    return found


def open_stream(source: Source) -> Stream:
    """Open a listed source for decoded reading from its beginning."""
    if source.compression:
        return Decoded(window(source))
    try:
        return Plain(*open_regular(source.path), source.size)
    except OSError as error:
        return Nothing(f"unreadable: {why(error)}")


def open_range(source: Source, start: int, end: int) -> Stream:
    """Open a part of a plain source; positions remain those of the file."""
    try:
        return Plain(*open_regular(source.path), min(end, source.size), start)
    except OSError as error:
        return Nothing(f"unreadable: {why(error)}")
