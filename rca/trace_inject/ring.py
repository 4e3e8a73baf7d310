"""The journal as a flight recorder: a file of fixed size in shared memory, in which the newest record overwrites the oldest.

A record is a copy into one slot: no system call, no growth; in Python about the cost of a write. It survives SIGKILL all the same, because the pages belong to the
file, which is JSON lines like any other journal: the header in the first slot, then one line a slot, padded with blanks, each with the number `q` of its round: the higher round
is the newer one, and within it the later slot. A line whose first byte is no brace was being copied when the process died. Twice a round the spans that are
open are told again, so that the one that hangs is always there.

    install(ring=True)        # or RCA_TRACE_RING=1, or its size in bytes

The file is written in full before it is mapped: a page that cannot be had would kill the process. Children made by fork write plain files.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from rca.trace_inject import guard, identity, spans
from rca.trace_inject.journal import AGAIN, ENDING, FILE_MODE, FOLDER_MODE, RETRY_NS, Journal

SLOT = 1024
RING_BYTES = 8 << 20
USUAL = 254  # bytes, with the brace before them four lines of a processor's cache
SLOTS_LEAST = 64
NEVER = 1 << 63
BLANK, BRACE = ord(" "), ord("{")
OPEN = b'{"t":%d,"e":"event","n":"rca.open"}\n'  # what is open is told again behind it
_EMPTY = b" " * (SLOT - 1) + b"\n"


class Ring(Journal):
    """Where the records of a process with a ring go. While it is there, `spans.write` is the copy into it, so that nothing has to ask which of the two it is."""

    is_ring = True
    room = SLOT - 2  # bytes of a record

    def __init__(self, folder: str, about: dict[str, Any] | None = None, size: int = RING_BYTES) -> None:
        self.slots = SLOTS_LEAST
        while self.slots * 2 * SLOT <= size:
            self.slots *= 2
        super().__init__(folder, about, size)

    @property
    def begun(self) -> bool:
        return bool(self._path)

    def _renew(self) -> None:
        super()._renew()
        self.from_ns, self.look_ns = 0, NEVER
        self._path = ""

    def put(self, data: bytes) -> None:
        try:
            spans.write(self.fd, data)
        except OSError as error:
            self.failed(data, error)

    def failed(self, data: bytes, error: OSError) -> None:
        """There is no ring (yet): make one, or let the record go."""
        if guard.passes(error):
            raise error
        from rca.trace_inject import recorder

        if recorder.journal not in (None, self):  # a span that began here ends in the one that took over
            recorder.journal.put(data)
            return
        if time.monotonic_ns() < self._retry_ns or not self._busy.acquire(blocking=False):
            self.dropped += 1
            return
        try:
            self._reopen(but=data)
            spans.write(self.fd, data)
            if self.dropped:
                missing, self.dropped = self.dropped, 0
                spans.write(self.fd, b'{"t":%d,"e":"event","n":"rca.dropped","a":{"count":%d}}\n' % (time.time_ns(), missing))
                self._tell_open()
        except OSError as fault:
            if guard.passes(fault):
                raise
            self.dropped += 1
            self._retry_ns = time.monotonic_ns() + RETRY_NS
        finally:
            self._busy.release()

    def look(self, data: bytes, count: int) -> None:
        """There is nothing to look at."""

    def _reopen(self, anew: bool = False, but: bytes = b"") -> None:
        """Make the file, with room for all slots, and map it. Raises OSError."""
        os.makedirs(self.folder, FOLDER_MODE, exist_ok=True)
        name = identity.file_name(self.about).removesuffix(ENDING)
        path = os.path.join(self.folder, f"{name}.ring-{time.time_ns():x}{ENDING}")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            head = json.loads(self._header()) | {"ring": {"slot": SLOT, "slots": self.slots}}
            self._fill(fd, json.dumps(head, separators=(",", ":")).encode()[: SLOT - 1].ljust(SLOT - 1) + b"\n", 1)
            self._fill(fd, _EMPTY, self.slots)
            found = mmap.mmap(fd, (self.slots + 1) * SLOT, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0), mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            os.unlink(path)
            raise error if isinstance(error, OSError) else OSError(errno.EINVAL, str(error)) from error
        finally:
            os.close(fd)
        # Taking a map apart closes the number of its descriptor, whosever that is by then: so it is kept until everything else is gone.
        sys.__dict__.setdefault("_rca_rings", []).append(found)
        self._path = path
        spans.write = self._copier(found)
        if self.open:
            self._tell_open(but)

    @staticmethod
    def _fill(fd: int, line: bytes, times: int) -> None:
        data = memoryview(line * times)
        while data:
            data = data[os.write(fd, data) :]

    def _copier(self, slots: mmap.mmap) -> Callable[[int, bytes], int]:
        """The function that puts one record into the next slot; its first byte last, so that half a record is never taken for one."""
        numbers, shift, within, half, room, usual = count(), self.slots.bit_length() - 1, self.slots - 1, self.slots // 2 - 1, SLOT - 2, USUAL
        rounds: dict[int, bytes] = {}
        long: set[int] = set()  # where more than the usual part of a slot is in use
        known = rounds.get

        def copy(_: int, data: bytes) -> int:
            number = next(numbers)
            line = (known(number >> shift) or begin(number >> shift)) + data[1:-1]
            start = ((number & within) + 1) * SLOT
            size = usual
            if len(line) > usual or start in long:
                line, size = whole(line, start), room
            slots[start] = BLANK
            slots[start + 1 : start + 1 + size] = line.ljust(size)
            slots[start] = BRACE
            if not number & half and number:
                self._look_around()
            return len(data)

        def begin(round_: int) -> bytes:
            found = rounds[round_] = b'"q":%d,' % round_
            rounds.pop(round_ - 2, None)
            return found

        def whole(line: bytes, start: int) -> bytes:
            if len(line) <= usual:
                long.discard(start)
                return line
            long.add(start)
            if len(line) <= room:
                return line
            from rca.trace_inject import recorder

            return recorder.encode(json.loads(b"{" + line), room)[1:-1]

        return copy

    def _look_around(self) -> None:
        """Half a round has been written: tell again what is open, unless the file is gone."""
        if os.path.exists(self._path):
            self._tell_open()
        else:
            self.leave()  # the next record makes another

    def _tell_open(self, but: bytes = b"", end: bytes = b"") -> bool:
        spans.write(self.fd, OPEN % time.time_ns())
        for data in list(self.open.values())[-self.slots // 4 :]:
            if data is not but:
                spans.write(self.fd, data[:-2] + AGAIN)
        return True

    def forked(self) -> None:
        """In a child: the parent's ring is not ours."""
        self.leave()
        self.open, self.dropped = {}, 0
        self._renew()

    def leave(self) -> None:
        """Records go to files, or nowhere, from here on."""
        spans.write = os.write

    def close(self) -> None:
        super().close()
        self.leave()

    def for_child(self) -> Journal:
        """What a child made by fork records to: a small file, for there may be many of them."""
        return Journal(self.folder, self.asked, self.size_max, at_once=False)
