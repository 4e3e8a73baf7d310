"""The members of a zip file by its directory, which stands at its end; nothing is unpacked for it."""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

from rca.ingest.inside import Reader

END, END64_AT, END64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
ENTRY, LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
COMMENT_MAX = 65_535
DIRECTORY_MAX = 64 << 20  # bytes: half a million members
METHODS = {0: None, 8: "deflate", 12: "bz2", 93: "zst", 95: "xz"}
AES = 99
# What is a program or a model and no bundle of logs, whatever its name: PyTorch, NumPy, Java and Python packages, office documents.
NOT_LOGS = ("/data.pkl", "data.pkl", ".npy", "META-INF/MANIFEST.MF", "[Content_Types].xml", "mimetype")


class Damaged(Exception):
    """There is no directory that could be read."""


class Entry(NamedTuple):
    """A member: where its bytes lie and how they are stored. `reason` says why they cannot be read."""

    name: str
    start: int
    length: int
    size: int
    crc: int
    compression: str | None
    reason: str | None = None
    link: bool = False


def entries(reader: Reader, size: int) -> list[Entry]:
    """The members in the order of the directory. Raises Damaged, and OSError."""
    at, length, shift = _directory(reader, size)
    data = reader.pread(length, at)
    if len(data) < length:
        raise Damaged
    found = list(_entries(data, reader, shift, size))
    taken = sorted((e.start, e.start + e.length, i) for i, e in enumerate(found) if e.length)
    end = 0
    for start, stop, i in taken:  # members that share their bytes are a bomb's
        if start < end:
            found[i] = found[i]._replace(reason="overlaps another member")
        end = max(end, stop)
    return found


def no_logs(found: list[Entry]) -> bool:
    """Whether this is a model or a program."""
    return any(entry.name.endswith(NOT_LOGS) for entry in found)


def _directory(reader: Reader, size: int) -> tuple[int, int, int]:
    """Place and length of the directory, and how many bytes stand before the first member that should not."""
    tail_at = max(0, size - END.size - COMMENT_MAX)
    tail = reader.pread(size - tail_at, tail_at)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < END.size:
        raise Damaged
    _, _, _, _, _, length, place, _ = END.unpack_from(tail, at)
    end = tail_at + at
    if place == 0xFFFFFFFF or length == 0xFFFFFFFF:
        locator = reader.pread(END64_AT.size, end - END64_AT.size)
        if len(locator) < END64_AT.size or locator[:4] != b"PK\6\7":
            raise Damaged
        end = END64_AT.unpack(locator)[2]
        record = reader.pread(END64.size, end)
        if len(record) < END64.size or record[:4] != b"PK\6\6":
            raise Damaged
        *_, length, place = END64.unpack(record)
    shift = end - length - place
    if length > DIRECTORY_MAX or shift < 0 or place + shift < 0:
        raise Damaged
    return place + shift, length, shift


def _entries(data: bytes, reader: Reader, shift: int, end: int) -> Iterator[Entry]:
    at = 0
    while at + ENTRY.size <= len(data) and data[at : at + 4] == b"PK\1\2":
        _, made, _, flags, method, _, _, crc, length, size, names, extras, comments, _, _, attributes, place = ENTRY.unpack_from(data, at)
        at += ENTRY.size
        name = _name(data[at : at + names], flags)
        length, size, place = _large(data[at + names : at + names + extras], length, size, place)
        at += names + extras + comments
        if name.endswith("/"):
            continue
        mode = attributes >> 16 if made >> 8 == 3 else 0
        link = stat.S_ISLNK(mode)
        reason = None
        if flags & 0x41 or method == AES:
            reason = "encrypted"
        elif method not in METHODS:
            reason = f"compression method {method} is not known"
        elif mode and not link and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            reason = "not a regular file"
        head = reader.pread(LOCAL.size, place + shift)
        start = place + shift + LOCAL.size
        if len(head) == LOCAL.size and head[:4] == b"PK\3\4":
            start += sum(LOCAL.unpack(head)[-2:])
        else:
            reason = reason or "damaged"
        if start + length > end:
            reason, start, length = reason or "damaged", min(start, end), max(0, min(length, end - start))
        yield Entry(name, start, length, size, crc, METHODS.get(method), reason, link)


def _name(raw: bytes, flags: int) -> str:
    """UTF-8 where it is, flagged or not; else the code page of old."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "backslashreplace") if flags & 0x800 else raw.decode("cp437")


def _large(extra: bytes, length: int, size: int, place: int) -> tuple[int, int, int]:
    """Sizes and place of a member beyond 4 GiB."""
    at = 0
    while at + 4 <= len(extra):
        kind, count = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            numbers = [int.from_bytes(extra[i : i + 8], "little") for i in range(at + 4, min(at + 4 + count, len(extra)) - 7, 8)]
            values = [numbers.pop(0) if said == 0xFFFFFFFF and numbers else said for said in (size, length, place)]
            return values[1], values[0], values[2]
        at += 4 + count
    return length, size, place
