"""The files below the given paths, each read by content or skipped with a reason, and reading parts of them.

The walk opens nothing but regular files and leaves the given folders by no link. Every regular file is listed once, so
that the sizes add up to what lies on disk; a link adds an entry only if what it names is not read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from rca.ingest.decoders import BLOCK_BYTES, utf16_encoding
from rca.ingest.disk import open_regular, why
from rca.ingest.streams import open_stream

if TYPE_CHECKING:
    from rca.ingest.inside import Inside

HEAD_BYTES = 4096  # a page: enough for every magic number (tar's lies at 257) and for a fair sample of text
MAGIC = {b"\x1f\x8b\x08": "gz", b"\x28\xb5\x2f\xfd": "zst", b"\xfd7zXZ\0": "xz"} | {b"BZh%d1AY&SY" % level: "bz2" for level in range(1, 10)}
MAGIC_HEADS = tuple(MAGIC)
REQUESTS, RECORDING = ".requests.jsonl", "recording of requests"  # what `rca train` leaves in RUN/recording
ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # `zstd --seekable` and pzstd begin with a frame of metadata
# Formats whose head may hold few NULs: zip (and .pt, .npz), pickle, ELF, parquet, HDF5, PNG, sqlite, bzip2.
BINARY_MAGIC = (b"PK\3\4", b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5", b"\x7fELF", b"PAR1", b"\x89HDF", b"\x89PNG", b"SQLite format 3\0", b"BZh9", b"\x93NUMPY")  # fmt: skip
TEXT = bytes(range(32, 256)) + b"\a\b\t\n\v\f\r\x1b"  # what a log may hold, terminal colours and progress bars included
CONTROL_SHARE_MAX = 0.05  # of the head; text has none, compressed or packed data about 0.1, tensors up to 0.9
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
NUL_RUN = bytes(16)  # zeros that a crash left in a text file come in runs; those of a binary format are spread out


class Source(NamedTuple):
    """One file, as it was when it was listed. Decoded offsets and lines count in the text it decodes to."""

    path: str  # where to open it
    name: str  # as reported: relative to the given folder, with `/`
    size: int  # bytes on disk; 0 for what is no regular file
    compression: str | None = None  # "gz", "zst", "xz", "bz2", "utf16" or "deflate", by content
    reason: str | None = None  # why it is skipped; None if it is to be read
    lines: tuple[tuple[int, int], ...] = ()  # (offset, newlines before it) as far as scanning has counted them, ascending
    inside: Inside | None = None  # where a member of the archive at `path` lies; `size` is then its share of the archive's bytes

    @property
    def extent(self) -> int:
        """Bytes that its content, as far as it is compressed, takes where it lies."""
        return self.inside.length if self.inside else self.size


def list_sources(paths: Iterable[str | os.PathLike[str]]) -> list[Source]:
    """List every file below `paths`, sorted by name, once per file however many names lead to it.

    Names are relative to the given folder, to the parent of a given file, or to the common parent of several paths.
    Raises RcaError for a path that does not exist.
    """
    given = list(dict.fromkeys(os.path.abspath(os.fspath(p)) for p in paths))
    for path in given:
        if not os.path.lexists(path):
            from rca.errors import RcaError

            raise RcaError(f"no such file or folder: `{path}`", hint="give the folder that holds the logs of the run, or one of its files")
    if not given:
        return []
    base = os.path.commonpath(given)
    if not os.path.isdir(base):
        base = os.path.dirname(base)
    roots = [os.path.realpath(p) for p in given]
    walk = _Walk(base, roots)
    for path, root in zip(given, roots, strict=True):
        walk.enter(path, root)
    for path, real in sorted(walk.files):  # sorted: which of two hard links is read must not depend on the disk
        walk.look_at(path, real)
    return sorted(walk.found, key=lambda s: (s.name, s.path))


class _Walk:
    """One walk over all given paths. Links are never entered, so it cannot go round in circles."""

    def __init__(self, base: str, roots: list[str]) -> None:
        self._prefix = len(os.path.join(base, ""))
        self._roots = roots
        self._seen: set[str] = set()  # given paths may lie within each other, or name the same folder by a link
        self._inodes: dict[tuple[int, int], str] = {}
        self.files: list[tuple[str, str]] = []
        self.found: list[Source] = []

    def enter(self, path: str, root: str) -> None:
        """List what lies below a path that the user gave; it may itself be a link to anywhere."""
        try:
            mode = os.stat(root).st_mode
        except OSError as error:
            self._skip(path, f"unreadable: {why(error)}")
            return
        if stat.S_ISDIR(mode):
            self._folder(path, root)
        elif not stat.S_ISREG(mode):
            self._skip(path, "not a regular file")
        elif root not in self._seen:
            self._seen.add(root)
            self.files.append((path, root))

    def _folder(self, path: str, real: str) -> None:
        """Walk a folder. `path` is the name it has for the user, `real` holds no links."""
        waiting = [(path, real)]
        several, seen, files = len(self._roots) > 1, self._seen, self.files
        while waiting:
            path, real = waiting.pop()
            if several:
                if real in seen:
                    continue
                seen.add(real)
            try:
                with os.scandir(real) as entries:
                    listed = list(entries)
            except OSError as error:
                self._skip(path, f"unreadable: {why(error)}")
                continue
            path, real = path.rstrip("/") + "/", real.rstrip("/") + "/"
            if any(entry.name.endswith(REQUESTS) for entry in listed):
                listed = [entry for entry in listed if not self._recorded(path + entry.name, entry)]
            for entry in listed:
                name = entry.name
                if entry.is_file(follow_symlinks=False):
                    if not several or real + name not in seen:
                        files.append((path + name, real + name))
                        if several:
                            seen.add(real + name)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((path + name, real + name))
                elif entry.is_symlink():
                    self._link(path + name, real + name)
                else:
                    self._skip(path + name, "not a regular file")

    def _recorded(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Whether it is of a recording of requests: thousands of files that `rca replay` reads, and no log."""
        if entry.name.endswith(REQUESTS) or entry.name == "blobs":
            self._skip(path, RECORDING)
            return True
        return False

    def _link(self, path: str, real: str) -> None:
        """Note a link that leads nowhere readable; what it names inside the given paths is listed there."""
        try:
            target = os.path.realpath(real, strict=True)
        except OSError as error:
            # A link to itself is ELOOP; a missing target is ENOENT.
            self._skip(path, "broken link" if isinstance(error, FileNotFoundError) else "link loop")
            return
        if real.startswith(os.path.join(target, "")):
            self._skip(path, "link loop")
        elif not any(target == root or target.startswith(os.path.join(root, "")) for root in self._roots):
            self._skip(path, "link out of the given folder")

    def look_at(self, path: str, real: str) -> None:
        """List a regular file by its head."""
        try:
            fd, status = open_regular(real)
        except OSError as error:
            self._skip(path, f"unreadable: {why(error)}", _size(real))
            return
        try:
            if status.st_nlink > 1:
                first = self._inodes.setdefault((status.st_dev, status.st_ino), path)
                if first != path:
                    self._skip(path, f"same file as {self._name(first)}", status.st_size)
                    return
            compression, reason = _look(fd, status)
        except OSError as error:
            self._skip(path, f"unreadable: {why(error)}", status.st_size)
            return
        finally:
            os.close(fd)
        source = Source(real, self._name(path), status.st_size, compression, reason)
        if compression and compression != "utf16" and reason is None:
            source = source._replace(reason=look_inside(source))
        self.found.append(source)

    def _skip(self, path: str, reason: str, size: int = 0) -> None:
        self.found.append(Source(path, self._name(path), size, None, reason))

    def _name(self, path: str) -> str:
        name = path[self._prefix :]
        # A file name is bytes; one that is no UTF-8 must not break the report that cites it.
        return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _look(fd: int, status: os.stat_result) -> tuple[str | None, str | None]:
    """`(compression, reason)` of an open file."""
    size, start = status.st_size, 0
    if size == 0:
        return None, None
    if status.st_blocks * 512 < size and hasattr(os, "SEEK_DATA"):
        try:
            start = os.lseek(fd, 0, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None, "sparse"
    head = os.pread(fd, HEAD_BYTES, start)
    if compression := compressed(head):
        return compression, needs(compression)
    if head[:1] == b"\0" and not head.strip(b"\0"):  # zeros that a crash or a log rotation left: the end tells
        head = os.pread(fd, HEAD_BYTES, max(0, size - HEAD_BYTES))
    kind = content(head)
    return ("utf16", None) if kind == "utf16" else (None, kind)


def compressed(head: bytes) -> str | None:
    """The compression that the first bytes of a file speak of."""
    if head.startswith(MAGIC_HEADS):
        return next(c for magic, c in MAGIC.items() if head.startswith(magic))
    return "zst" if head[1:4] == ZSTD_SKIPPABLE and 0x50 <= head[0] <= 0x5F else None


@cache
def needs(compression: str) -> str | None:
    """What is not installed that decoding needs."""
    return "needs zstandard" if compression == "zst" and find_spec("zstandard") is None else None


def look_inside(source: Source) -> str | None:
    """Why the content of a compressed file is skipped, or None."""
    head = bytearray(HEAD_BYTES)
    count = open_stream(source).readinto(memoryview(head))
    kind = content(bytes(head[:count]))
    return "utf-16 inside compression" if kind == "utf16" else kind


def content(head: bytes) -> str | None:
    """What the first bytes of a file hold: None (text), "binary", "archive" (tar) or "utf16".

    >>> content(b"step 1 loss 2.0"), content(b"PK\\x03\\x04"), content("step".encode("utf-16-le"))
    (None, 'binary', 'utf16')
    """
    if b"\0" not in head and not head.startswith(UTF16_MARKS):
        return "binary" if head.startswith(BINARY_MAGIC) else None
    if head[257:262] == b"ustar":
        return "archive"
    if utf16_encoding(head):
        return "utf16"
    if head.startswith(BINARY_MAGIC) or head[5:9] == b"\0\0\0{":  # safetensors: a length, then JSON
        return "binary"
    body = head.replace(NUL_RUN, b"")
    return "binary" if not body or len(body.translate(None, TEXT)) > CONTROL_SHARE_MAX * len(body) else None


@contextmanager
def ranges(source: Source) -> Iterator[Callable[[int, int], bytes]]:
    """`read_range` of one source for who reads many: `(offset, length)` to bytes. A plain file is opened once."""
    fd = -1
    if not (source.reason or source.compression or source.inside):
        try:
            fd, _ = open_regular(source.path)
        except OSError:
            fd = -1

    def read(offset: int, length: int) -> bytes:
        try:
            return os.pread(fd, max(0, min(length, source.size - offset)), offset)
        except OSError:
            return b""

    try:
        yield read if fd >= 0 else partial(read_range, source)
    finally:
        if fd >= 0:
            os.close(fd)


def read_range(source: Source, offset: int, length: int) -> bytes:
    """Up to `length` decoded bytes from `offset`; fewer where the file ends or cannot be read, zeros where it has a hole."""
    if source.reason or length <= 0:
        return b""
    if source.compression or source.inside:
        view = memoryview(bytearray(length))  # callers ask for excerpts
        stream = open_stream(source)
        stream.position = offset
        try:
            return bytes(view[: stream.readinto(view)])
        finally:
            stream.close()
    try:
        fd, _ = open_regular(source.path)
    except OSError:
        return b""
    try:
        return os.pread(fd, max(0, min(length, source.size - offset)), offset)
    except OSError:
        return b""
    finally:
        os.close(fd)


def read_all(source: Source, limit: int) -> tuple[bytes, str | None]:
    """The decoded content up to `limit` bytes, and why that is not all of it (None if it is)."""
    if source.reason:
        return b"", source.reason
    stream = open_stream(source)
    try:
        data = bytearray()
        chunk = memoryview(bytearray(min(BLOCK_BYTES, limit + 1)))
        while len(data) <= limit and (count := stream.readinto(chunk)):
            data += chunk[:count]
        if len(data) > limit:
            return bytes(data[:limit]), "cut at the limit"
        return bytes(data), stream.truncated
    finally:
        stream.close()
