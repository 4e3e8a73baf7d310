"""Compressed or re-encoded bytes to plain ones, block by bounded block.

A decoder yields what could be decoded and ends with `Cut` where that is not all. Nothing here trusts the data: memory, blocks and windows are bounded.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Any

RAW_BYTES = 64 << 10  # read from disk at once for decoding
BLOCK_BYTES = 256 << 10  # decoded at once at most: bounds memory however well a bomb is packed
ZSTD_WINDOW_MAX = 1 << 27  # bytes; `zstd --long` needs no more
ZSTD_BLOCKS_MAX = 200_000  # looked at for completeness: 25 GB of text, one second of looking
XZ_MEMORY_MAX = 256 << 20  # bytes; `xz -9` needs 65 MiB


class Raw:
    """Positioned reading from a compressed file up to the size it had at the start; `used` is what a decoder has taken.

    `whole` is what the content is said to be: its CRC-32 and its size.
    """

    def __init__(self, pread: Callable[[int, int], bytes], size: int, whole: tuple[int | None, int | None] = (None, None)) -> None:
        self.pread, self.size, self.position, self.used, self.whole = pread, size, 0, 0, whole

    def read(self, length: int = RAW_BYTES) -> bytes:
        """The next bytes, empty at the end."""
        data = self.pread(min(length, self.size - self.position), self.position)
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
        head = raw.pread(18, at)
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
            block = int.from_bytes(header := raw.pread(3, at), "little")
            if len(header) < 3:
                return False
            last = bool(block & 1)
            at += 3 + (1 if (block >> 1) & 3 == 1 else block >> 3)  # type 1 repeats one byte
        at += checksum
    return at == raw.size or blocks >= ZSTD_BLOCKS_MAX


def _bzip2(raw: Raw) -> Iterator[bytes]:
    import bz2

    return _members(raw, bz2.BZ2Decompressor)


def _deflate(raw: Raw) -> Iterator[bytes]:
    """One member of a zip file."""
    import zlib

    decoder, data, crc, size = zlib.decompressobj(-15), b"", 0, 0
    while not decoder.eof:
        data = data or raw.read()
        block = decoder.decompress(data, BLOCK_BYTES)
        if not data and not block:
            raise Cut("truncated")
        data = decoder.unconsumed_tail
        raw.used = raw.position - len(data)
        crc, size = zlib.crc32(block, crc), size + len(block)
        yield block
    raw.used = raw.size
    if any(said is not None and said != found for said, found in zip(raw.whole, (crc, size), strict=True)):
        raise Cut("damaged")


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


DECODERS = {"gz": _gzip, "xz": _xz, "zst": _zstd, "bz2": _bzip2, "deflate": _deflate, "utf16": _utf16}
