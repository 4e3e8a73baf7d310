"""The members of a tar file, whatever wrote it: ustar, GNU, pax; read once, from its beginning, whatever is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from rca.ingest.archives.names import text

BLOCK = 512
ENDED = 2  # empty blocks end an archive
PADDING_MAX = 256  # empty blocks that are looked through for another archive behind it; tapes are padded to 20
NAMES_MAX = 64 << 10  # bytes of a long name or of pax records; longer ones are jumped over
PAX = re.compile(rb"(\d{1,6}) ([^=\n]{1,64})=")
REGULAR, LINKS, SPECIAL = b"0\x007", b"12", b"346"
SPARSE, DIRECTORY = b"S", b"5"


class Flow(Protocol):
    """Bytes that come once."""

    def take(self, length: int) -> bytes:
        """The next `length` bytes, fewer at the end."""
        ...

    def skip(self, length: int) -> int:
        """Jump over bytes; tells how many there were."""
        ...


class Entry(NamedTuple):
    """One header. The content of a regular member comes next in the flow, `size` bytes and the padding to a whole block."""

    name: str
    kind: str  # "file", "link", "special" or "sparse"
    size: int
    target: str = ""  # of a link


def entries(flow: Flow) -> Iterator[Entry | None]:
    """Every entry but folders; None where something is damaged and reading goes on behind it.

    Who takes an entry must take or skip its padded content before asking for the next.
    """
    named: dict[str, str | int] = {}
    lost = False
    zeros = 0
    while len(head := flow.take(BLOCK)) == BLOCK:
        if not head.strip(b"\0"):
            zeros += 1
            if zeros > PADDING_MAX:
                return
            continue
        ended, zeros = zeros >= ENDED, 0
        size = _size(head[124:136])
        if size is None or not _sound(head):
            if ended:
                return  # behind the end stands what no program reads; another archive, joined to this one, would have a header
            if not lost:
                yield None
            lost, named = True, {}  # the next block that is a header ends the loss
            continue
        lost, kind = False, head[156:157]
        if kind in (b"x", b"g", b"L", b"K", b"X"):
            data = flow.take(padded(size)) if size <= NAMES_MAX else b"" * flow.skip(padded(size))
            if kind == b"L":
                named["path"] = text(data[:size].rstrip(b"\0"))
            elif kind == b"K":
                named["linkpath"] = text(data[:size].rstrip(b"\0"))
            elif kind != b"g":
                named |= _pax(data[:size])
            continue
        size = int(named.get("size", size))
        name = str(named.get("GNU.sparse.name") or named.get("path") or _name(head))
        if kind == SPARSE or "GNU.sparse.major" in named or "GNU.sparse.map" in named:
            more = head[482:483] == b"\1" and kind == SPARSE
            while more and len(extra := flow.take(BLOCK)) == BLOCK:
                more = extra[504:505] == b"\1"
            yield Entry(name, "sparse", size)
        elif kind in LINKS:
            yield Entry(name, "link", 0, str(named.get("linkpath") or text(head[157:257].split(b"\0")[0])))
        elif kind in SPECIAL:
            yield Entry(name, "special", 0)
        elif kind == DIRECTORY or (kind in REGULAR and name.endswith("/")):
            flow.skip(padded(size) if kind != DIRECTORY else 0)
        elif kind in REGULAR:
            yield Entry(name, "file", size)
        else:  # a volume's label, a list of names, what is yet to be invented
            flow.skip(padded(size))
        named = {}


def padded(size: int) -> int:
    """A size in whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _name(head: bytes) -> str:
    name, prefix = head[:100].split(b"\0")[0], head[345:500].split(b"\0")[0]
    return text(prefix + b"/" + name if prefix and head[257:263] == b"ustar\0" else name)


def _sound(head: bytes) -> bool:
    """Whether the checksum of a header is right; old programs summed signed bytes."""
    try:
        said = int(head[148:156].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    blank = head[:148] + b" " * 8 + head[156:]
    return said in (total := sum(blank), total - 256 * sum(b > 127 for b in blank))


def _size(field: bytes) -> int | None:
    """A size in octal digits or, from 8 GiB on, as a binary number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return None


def _pax(data: bytes) -> dict[str, str | int]:
    """The records of an extended header: `length key=value`, each ended by a newline.

    >>> _pax(b"16 path=a/b.txt\\n"), _pax(b"99 path=a/b.txt\\n")
    ({'path': 'a/b.txt'}, {})
    """
    found: dict[str, str | int] = {}
    at = 0
    while match := PAX.match(data, at):
        length = int(match[1])
        value = data[match.end() : at + length - 1]
        if length <= match.end() - at or data[at + length - 1 : at + length] != b"\n":
            break
        key = text(match[2])
        if key == "size" and value.isdigit() and len(value) < 20:
            found["size"] = int(value)
        elif key != "size":
            found[key] = text(value)
        at += length
    return found
