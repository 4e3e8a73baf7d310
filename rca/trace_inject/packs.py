"""Small blobs of one process, one behind the other: to make a file for each would cost twenty times as much as to append it.

    <folder>/000001.pack: "<digest>.safetensors <bytes>\\n", its bytes, "\\n", and so on

Each record is one `writev` of its own. A pack serves a part of the steps that are kept and is taken away whole; what is needed again later is written again into the newest. A record that was
cut ends its pack. The descriptor is a high number, and its file is looked at before each write: a program may close what it did not open.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import Any

from rca.trace_inject.journal import high

ENDING = ".pack"
PARTS = 4  # of the steps, and of the bytes, that are kept


class Packs:
    """The packs of one process. What changes them is called by one thread at a time; `put` and `has` by any."""

    def __init__(self, own: str, steps: int, size_max: int) -> None:
        self.own, self.steps, self.size_max = own, steps, size_max
        self.most = min(1 << 16, size_max // PARTS)  # bytes of what is small
        self.there: dict[int, list[int]] = {}  # number of a pack -> bytes, newest step
        self._of: dict[str, int] = {}  # name -> pack
        self._number = 0
        self._first_step: int | None = None  # that the newest pack serves
        self._fd = self._last_fd = -1
        self._inode = (0, 0)

    def has(self, name: str, step: int | None) -> bool:
        """Whether the newest pack has it."""
        return self._of.get(name) == self._number > 0 and not self.full(step)

    def put(self, name: str, pieces: Sequence[Any], size: int) -> bool:
        """Write one record. False where that cannot be; raises OSError."""
        number, head = self._number, f"{name} {size}\n".encode()
        data = b"".join((head, *pieces, b"\n"))
        status = os.fstat(self._fd)
        if not status.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the pack was taken away")
        if (status.st_dev, status.st_ino) != self._inode or os.write(self._fd, data) != len(data):
            self._number = -abs(self._number)  # nothing more goes into this one
            return False
        self.there[number][0] += len(data)
        self._of[name] = number
        return True

    def used(self, step: int | None) -> None:
        """The newest pack serves this step too."""
        found = self.there.get(self._number)
        if step is not None and found is not None:
            found[1] = max(found[1], step)
            if self._first_step is None:
                self._first_step = step

    def full(self, step: int | None) -> bool:
        """Whether another pack has to begin."""
        found = self.there.get(self._number)
        if found is None or found[0] > self.size_max // PARTS:
            return True
        return step is not None and self._first_step is not None and step >= self._first_step + max(1, self.steps // PARTS)

    def begin(self, step: int | None) -> None:
        """Begin another pack. Raises OSError."""
        number = abs(self._number) + 1
        fd = os.open(os.path.join(self.own, f"{number:06d}{ENDING}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            own, status = high(fd), os.fstat(fd)
        finally:
            os.close(fd)
        self.close(self._last_fd)  # not the last one: another thread may be writing
        self._last_fd, self._fd, self._inode = self._fd, own, (status.st_dev, status.st_ino)
        self.there[number] = [status.st_size, step or 0]
        self._first_step, self._number = step, number

    def prune(self, step: int, needed: set[str]) -> None:
        """Take away what only older steps needed, and the oldest of what is too much; of requests without an end only then, and last."""
        size = sum(found[0] for found in self.there.values())
        kept = {number for name in needed if (number := self._of.get(name)) is not None}
        for spared in (kept, set()):
            for number in sorted(self.there):
                old, much = self.there[number][1] <= step - self.steps and spared is kept, size > self.size_max
                if number != self._number and number not in spared and (old or much):
                    size -= self.there.pop(number)[0]
                    self._of = {name: of for name, of in self._of.items() if of != number}
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self.own, f"{number:06d}{ENDING}"))

    def adopt(self, name: str, size: int) -> None:
        """A pack that a process of the same name has left."""
        stem = name.removesuffix(ENDING)
        if stem.isdecimal() and len(stem) < 10:
            self.there.setdefault(int(stem), [size, 0])
            if self._number <= 0:
                self._number = min(self._number, -int(stem))

    def close(self, fd: int) -> None:
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def leave(self) -> None:
        """In a child: nothing more is written by what was the parent's."""
        with contextlib.suppress(OSError):
            status = os.fstat(self._fd)
            if (status.st_dev, status.st_ino) == self._inode:
                self.close(self._fd)
        self._fd = -1
