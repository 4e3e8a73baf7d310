"""One archive to its members: what each is called, where its bytes lie, and why one is not read.

Members of a zip or an uncompressed tar file are read where they lie; what can only be read from its beginning is held in memory. Nothing is
written to a disk, no link is followed, and everything is bounded, for an archive may be a bomb.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rca.ingest.archives import tar_file, zip_file
from rca.ingest.archives.held import Filling, Full, Held, Index, Store
from rca.ingest.archives.names import SEPARATOR, safe
from rca.ingest.decoders import BLOCK_BYTES, DECODERS, Cut, Raw
from rca.ingest.inside import HeldReader, Reader
from rca.ingest.sources import HEAD_BYTES, compressed, content, needs
from rca.ingest.streams import RATIO_FROM_BYTES, RATIO_MAX

MEMBERS_MAX = 50_000  # of one file, those of archives inside it included
NESTED_MAX = 1  # archives inside an archive are read, those inside of these are not
DECODED_MAX = 64 << 30  # bytes of one archive: a minute of decoding
HARMLESS = ("binary", "empty")
ARCHIVE = "archive"
DISK, HELD = "disk", "held"
TOO_MANY, TOO_LARGE, OUTSIDE = "too many members", "too large to hold", "link out of the archive"


class Row(NamedTuple):
    """A member, or the archive itself (`name` empty). Plain values: it travels between processes."""

    name: str
    size: int  # its share of the archive's bytes on disk
    where: tuple[str, int, int, int | None, int | None, str | None] | None = None  # ("disk" or "held", and the other fields of `Inside`)
    compression: str | None = None
    reason: str | None = None


class Flow:
    """Decoded bytes that come once, bounded by what they may unpack to."""

    def __init__(self, reader: Reader, size: int, compression: str | None) -> None:
        self._raw, self._direct = Raw(reader.pread, size), compression is None
        self._blocks: Iterator[bytes] = iter(()) if compression is None else DECODERS[compression](self._raw)
        self._left = memoryview(b"")
        self.at = 0  # bytes that were taken
        self.wrong: str | None = None

    @property
    def used(self) -> int:
        """Bytes of the archive that were used."""
        return self._raw.position if self._direct else self._raw.used

    def take(self, length: int) -> bytes:
        """The next `length` bytes, fewer at the end."""
        found = bytearray()
        while len(found) < length and (part := self.some(length - len(found))):
            found += part
        return bytes(found)

    def some(self, length: int) -> bytes | memoryview:
        """Between 1 and `length` bytes, none at the end."""
        if self._direct:
            try:
                part: bytes | memoryview = self._raw.read(min(length, BLOCK_BYTES))
            except OSError:
                self.wrong, part = "unreadable", b""
        else:
            while not self._left and (block := self._next()) is not None:
                self._left = memoryview(block)
            part, self._left = self._left[:length], self._left[length:]
        self.at += len(part)
        return part

    def skip(self, length: int) -> int:
        """Jump over bytes; tells how many there were."""
        if self._direct:
            count = max(0, min(length, self._raw.size - self._raw.position))
            self._raw.position += count
            self.at += count
            return count
        before = self.at
        while self.at - before < length and self.some(length - (self.at - before)):
            pass
        return self.at - before

    def _next(self) -> bytes | None:
        if self.wrong:
            return None
        try:
            block = next(self._blocks, None)
            if self.at > RATIO_FROM_BYTES and self.at > RATIO_MAX * max(1, self._raw.used):
                raise Cut("ratio limit")
            if self.at > DECODED_MAX:
                raise Cut("unpacks to too much")
            return block
        except Cut as cut:
            self.wrong = str(cut)
        except (MemoryError, OSError):
            self.wrong = "unreadable"
        except Exception as error:  # zlib, isal, lzma, bz2 and zstandard have no error in common
            if type(error).__module__.partition(".")[0] not in ("zlib", "igzip_lib", "isal", "_lzma", "lzma", "bz2", "_bz2", "zstandard"):
                raise
            self.wrong = "damaged"
        return None


class Unpacker:
    """The members of one file, and of the archives inside it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._filling = Filling(store)
        self._rows = 0

    def unpack(self, reader: Reader, size: int, compression: str | None) -> tuple[list[Row], Index, int]:
        """Rows of all members and, last, of the file itself; then the index of what is held of them, and its size. Raises OSError."""
        rows = self._archive(_Place(reader, size, DISK, 0), size, compression, "", 0)
        try:
            self._filling.finish()
        except Full:
            end = self._filling.size
            rows = [r._replace(where=None, reason=TOO_LARGE) if r.where and r.where[0] == HELD and r.where[1] + r.where[2] > end else r for r in rows]
        return rows, self._filling.index, self._filling.size

    def _archive(self, place: _Place, disk: int, compression: str | None, name: str, depth: int) -> list[Row]:
        """Rows of an archive that takes `disk` bytes of the file; the last is its own."""
        if compression is None and place.reader.pread(2, 0) == b"PK":
            return self._zip(place, disk, name, depth)
        return self._tar(place, disk, compression, name, depth)

    def _tar(self, place: _Place, disk: int, compression: str | None, name: str, depth: int) -> list[Row]:
        flow = Flow(place.reader, place.length, compression)
        found: list[tuple[int, list[Row]]] = []  # bytes in the flow, and what became of them
        links: list[tuple[str, str]] = []
        known = _Known()
        wrong = None
        for entry in tar_file.entries(flow):
            if entry is None:
                wrong = "damaged"
                continue
            if self._rows >= MEMBERS_MAX:
                wrong = TOO_MANY
                break
            self._rows += 1
            member = f"{name}{SEPARATOR}{safe(entry.name)}"
            if entry.kind == "link":
                links.append((entry.name, entry.target))
                continue
            known.add(entry.name)
            begin = flow.at
            if entry.kind != "file":
                rows = [Row(member, 0, reason="sparse member" if entry.kind == "sparse" else "not a regular file")]
            elif compression is None:
                length = max(0, min(entry.size, place.length - begin))
                part = place.part(begin, length)
                rows = self._told(part.reader.pread(HEAD_BYTES, 0), part, "truncated" if length < entry.size else None, member, depth)
            else:
                rows = self._coming(flow, entry.size, member, depth)
            flow.skip(entry.size - (flow.at - begin))
            found.append((flow.at - begin, rows))
            flow.skip(tar_file.padded(entry.size) - (flow.at - begin))
        found += [(0, [Row(f"{name}{SEPARATOR}{safe(a)}", 0, reason=OUTSIDE)]) for a, b in links if not known.leads(a, b)]
        wrong = flow.wrong or wrong or ("truncated" if place.length and not found else None)
        used = disk * min(flow.used, place.length) // max(1, place.length) if flow.wrong else disk
        return _shared(found, flow.at if compression else place.length, used, disk, name, wrong)

    def _zip(self, place: _Place, disk: int, name: str, depth: int) -> list[Row]:
        try:
            listed = zip_file.entries(place.reader, place.length)
        except zip_file.Damaged:
            return [Row(name, disk, reason="damaged")]
        if zip_file.no_logs(listed):
            return [Row(name, disk, reason="binary")]
        found: list[tuple[int, list[Row]]] = []
        known = _Known()
        for entry in listed:
            known.add("" if entry.link else entry.name)
        wrong = None
        for entry in listed:
            if self._rows >= MEMBERS_MAX:
                wrong = TOO_MANY
                break
            self._rows += 1
            member = f"{name}{SEPARATOR}{safe(entry.name)}"
            if entry.reason:
                rows = [Row(member, 0, reason=entry.reason)]
            elif entry.link:
                target = Flow(place.part(entry.start, entry.length).reader, entry.length, entry.compression).take(HEAD_BYTES)
                rows = [] if known.leads(entry.name, target.decode("utf-8", "replace")) else [Row(member, 0, reason=OUTSIDE)]
            else:
                rows = self._zipped(place.part(entry.start, entry.length), entry, member, depth)
            found.append((entry.length, rows))
        return _shared(found, place.length, disk, disk, name, wrong)

    def _zipped(self, part: _Place, entry: zip_file.Entry, name: str, depth: int) -> list[Row]:
        """A member of a zip file: read where it lies if it is text or not packed, else unpacked into memory."""
        if entry.compression is None:
            return self._told(part.reader.pread(HEAD_BYTES, 0), part, None, name, depth)
        if lacking := needs(entry.compression):
            return [Row(name, 0, reason=lacking)]
        head = Flow(part.reader, part.length, entry.compression).take(HEAD_BYTES)
        if _kind(head) is None:
            return [Row(name, 0, (part.kind, part.at, part.length, entry.crc, entry.size, None), entry.compression)]
        return self._coming(Flow(part.reader, part.length, entry.compression), None, name, depth)

    def _coming(self, flow: Flow, size: int | None, name: str, depth: int) -> list[Row]:
        """A member that comes by once, of a known size or to the end: held, unless its beginning says that it is no text."""
        left = DECODED_MAX if size is None else size
        part: bytes | memoryview = flow.take(min(left, HEAD_BYTES))
        head = bytes(part)
        if _kind(head) in HARMLESS:
            return [Row(name, 0, reason=_kind(head))]
        start = self._filling.size
        try:
            while part:
                self._filling.add(part)
                left -= len(part)
                part = flow.some(min(left, BLOCK_BYTES)) if left else b""
            self._filling.settle() if _kind(head) else None
        except Full:
            return [Row(name, 0, reason=TOO_LARGE)]
        length = self._filling.size - start
        reader = HeldReader(Held(self._store, self._filling.index, self._filling.size), start, length)
        short = flow.wrong if size is None else flow.wrong or "truncated" if left else None
        return self._told(head, _Place(reader, length, HELD, start), short, name, depth)

    def _told(self, head: bytes, part: _Place, short: str | None, name: str, depth: int) -> list[Row]:
        """What the first bytes of a member make of it: a log, a compressed one, an archive, or nothing to read."""
        kind = _kind(head)
        compression = kind if kind in DECODERS else None
        if compression:
            if lacking := needs(compression):
                return [Row(name, 0, reason=lacking)]
            kind = None if compression == "utf16" else _kind(Flow(part.reader, part.length, compression).take(HEAD_BYTES))
            kind = "utf-16 inside compression" if kind == "utf16" else kind if kind in (*HARMLESS, ARCHIVE) else None
        if kind == ARCHIVE and depth < NESTED_MAX:
            return self._archive(part, part.length, compression, name, depth + 1)
        if kind:
            return [Row(name, 0, reason="an archive too deep inside archives" if kind == ARCHIVE else kind)]
        return [Row(name, 0, (part.kind, part.at, part.length, None, None, short), compression)]


def _shared(found: list[tuple[int, list[Row]]], total: int, used: int, disk: int, name: str, wrong: str | None) -> list[Row]:
    """The rows with their shares of the bytes on disk, and the archive's own row, which has the rest.

    `used` of `disk` bytes were read; to the members goes what their weights are of `total`.
    """
    rows: list[Row] = []
    left = disk
    for weight, members in found:
        share = min(left, weight * used // max(1, total))
        left -= share
        whole = sum(r.size for r in members)  # of an archive inside, whose rows have shares of all its bytes
        parts = [r.size * share // whole if whole else 0 for r in members]
        if parts:
            parts[-1] += share - sum(parts)
        else:
            left += share
        rows += [r._replace(size=part) for r, part in zip(members, parts, strict=True)]
    return [*rows, Row(name, left, reason=wrong or ARCHIVE)]


class _Place:
    """A range of the file, or of what is held of it: bytes, and where a source finds them again."""

    def __init__(self, reader: Reader, length: int, kind: str, at: int) -> None:
        self.reader, self.length, self.kind, self.at = reader, length, kind, at

    def part(self, start: int, length: int) -> _Place:
        """A range of the range."""
        return _Place(_Part(self.reader, start, length), length, self.kind, self.at + start)


class _Part:
    """Reading in a range of a reader."""

    def __init__(self, reader: Reader, start: int, length: int) -> None:
        self._reader, self._start, self._length = reader, start, length

    def pread(self, length: int, at: int) -> bytes:
        """Bytes of the range."""
        return self._reader.pread(max(0, min(length, self._length - at)), self._start + at)

    def close(self) -> None:
        """The reader is closed by who opened it."""


class _Known:
    """The members that an archive has by name, for its links: a link to one of them adds nothing, for it is read by its own name."""

    def __init__(self) -> None:
        self._names: set[str] = {""}

    def add(self, name: str) -> None:
        """Know a member and the folders above it."""
        place = "/".join(_parts(name))
        while place not in self._names:
            self._names.add(place)
            place = place.rpartition("/")[0]

    def leads(self, name: str, target: str) -> bool:
        """Whether the link `name` leads to a member: seen from the root of the archive, or from where the link stands."""
        place = _parts(name)[:-1]
        for part in target.split("/"):
            if part == ".." and place:
                place.pop()
            elif part == ".." or (target.startswith("/") and part):
                return False
            elif part not in ("", "."):
                place.append(part)
        return "/".join(place) in self._names or "/".join(_parts(target)) in self._names


def _kind(head: bytes) -> str | None:
    """None for text, a compression, "archive", or why it is not read."""
    if found := compressed(head):
        return found
    return ARCHIVE if head.startswith((b"PK\3\4", b"PK\5\6")) else content(head)


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]
