"""What archives hold that can only be read from their beginning, kept in memory: compressed blocks, read in any order.

A log inside a `.tar.gz` is read several times - searched, its excerpts decoded, its lines counted - and by another process than the one that
unpacked it. Nothing is ever written to a disk. Logs shrink to a tenth; what may be held is bounded all the same.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable

BLOCK_BYTES = 512 << 10  # of content: large enough to pack well, small enough to unpack for one excerpt
HELD_MAX = 512 << 20  # bytes in memory for all archives of a run, packed
LEVEL = 1  # of zstd: packs as fast as gzip unpacks
KEPT = 4  # unpacked blocks per process


class Full(Exception):
    """No more may be held."""


class Store:
    """The memory that all processes of a run share: anonymous, and only ever appended to.

    Where the system has no such memory, a list of blocks serves, and archives are unpacked by the process that made the store.
    """

    def __init__(self, limit: int = HELD_MAX) -> None:
        self._limit = limit
        self._blocks: dict[int, bytes] = {}
        self._size = 0
        self._fd = -1
        if not hasattr(os, "memfd_create"):
            return
        fd = os.memfd_create("members")
        try:
            os.close(self._own(fd))
            self._fd = fd
        except OSError:
            os.close(fd)

    @property
    def shared(self) -> bool:
        """Whether other processes can put blocks into it."""
        return self._fd >= 0

    @staticmethod
    def _own(fd: int) -> int:
        """A description of its own, whose position no other process moves."""
        return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    def put(self, data: bytes) -> int:
        """Append a block and tell its place. Raises Full."""
        if not self.shared:
            place, self._size = self._size, self._size + len(data)
            if self._size > self._limit:
                raise Full
            self._blocks[place] = data
            return place
        if os.fstat(self._fd).st_size + len(data) > self._limit:
            raise Full
        own = self._own(self._fd)
        try:
            if os.write(own, data) != len(data):
                raise Full
            return os.lseek(own, 0, os.SEEK_CUR) - len(data)
        except OSError as error:
            raise Full from error
        finally:
            os.close(own)

    def get(self, place: int, length: int) -> bytes:
        """A block."""
        return os.pread(self._fd, length, place) if self.shared else self._blocks[place]

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # bound here: at the end of the interpreter there is no `os`
        if self._fd >= 0:
            close(self._fd)


Index = list[tuple[int, int, int]]  # per block: content bytes before it, and its place and length in the store


class Filling:
    """Content on its way into a store, in blocks that small members share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending = bytearray()
        self.index: Index = []
        self.size = 0  # bytes of content so far

    def add(self, data: bytes | memoryview) -> None:
        """Append content. Raises Full, and then holds what it held before."""
        if len(self._pending) + len(data) > BLOCK_BYTES:
            self.settle()
        self._pending += data
        self.size += len(data)

    def settle(self) -> None:
        """Put what is pending into the store, so that all can be read. Raises Full."""
        if self._pending:
            data = _pack(bytes(self._pending))
            self.index.append((self.size - len(self._pending), self._store.put(data), len(data)))
            self._pending = bytearray()

    def finish(self) -> None:
        """Settle for good; raises Full where the last block does not fit any more, and is cut off."""
        try:
            self.settle()
        except Full:
            self.size -= len(self._pending)
            self._pending = bytearray()
            raise


class Held:
    """The content of one archive's members, in one piece."""

    def __init__(self, store: Store, index: Index, size: int) -> None:
        self._store, self._index, self.size = store, index, size
        self._starts = [start for start, _, _ in index]
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def pread(self, length: int, at: int) -> bytes:
        """Up to `length` bytes from `at`."""
        found = bytearray()
        while len(found) < length and at < self.size:
            number = bisect_right(self._starts, at) - 1
            begin = at - self._starts[number]
            part = self._block(number)[begin : begin + length - len(found)]
            if not part:
                break
            found += part
            at += len(part)
        return bytes(found)

    def _block(self, number: int) -> bytes:
        block = self._kept.pop(number, None)
        if block is None:
            _, place, length = self._index[number]
            block = _unpack(self._store.get(place, length))
        self._kept[number] = block
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return block


def _pack(data: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        import zlib

        return zlib.compress(data, LEVEL)
    return zstandard.ZstdCompressor(level=LEVEL).compress(data)


def _unpack(data: bytes) -> bytes:
    if data[:4] == b"\x28\xb5\x2f\xfd":
        import zstandard

        return zstandard.ZstdDecompressor().decompress(data, max_output_size=2 * BLOCK_BYTES)
    import zlib

    return zlib.decompress(data)
