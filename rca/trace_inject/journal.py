"""The journal of one process: a file to which every record goes by one `write`, so that what was recorded survives SIGKILL.

No lock is held and nothing is buffered, so a fork, a signal handler or a crash finds nothing half done. A child that was forked gets a file of its own at
its first record. The file descriptor is a high number that no ordinary `open` reuses, and it never changes while the process lives (another thread may be
writing): another segment, or a folder that was deleted, is put beneath the same number by `dup2`, once header and open spans stand in it.

What cannot be written (full disk, read-only, quota, closed descriptor) is dropped and counted, and tried again a second later; the count stands in
the next `rca.dropped` record, and what is open then is told again behind it: other spans without an end have lost theirs. Nothing here raises.

Format `rca.trace/1`: JSON lines; the first is a header. Source: docs/tracing.md.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import threading
import time
from collections import deque
from typing import Any

from rca.trace_inject import guard, identity

SCHEMA = "rca.trace/1"
RECORD_MAX = 3500  # bytes; longer writes were seen torn when the process was killed
SIZE_MAX = 64 << 20  # bytes of all segments of one process
SHARES = (2, 4, 4)  # of that: the first segment half, kept for good; two more take turns
ENDING = ".rca.jsonl"
AGAIN = b',"again":1}\n'
COMPLETE = b'{"t":%d,"e":"event","n":"rca.complete"}\n'  # a new segment has told all that was open
LOOK_NS = 50_000_000  # between two looks at the file itself
SLACK = 256 << 10  # bytes that other threads may write while one opens the next segment
LOOK_LEAST_NS = 100_000
NS_PER_BYTE = 10  # nobody writes records faster
RETRY_NS = 1_000_000_000
FD_LEAST = 900  # far above what `open` gives in nearly every program, and below what `select` and the usual limit allow
WAITING_MAX = 1000  # records of other threads and signal handlers while one thread opens a file
FOLDER_MODE, FILE_MODE = 0o755, 0o644

write = os.write


class Journal:
    """Where one process's records go."""

    is_ring = False
    ending = ENDING

    def __init__(self, folder: str, about: dict[str, Any] | None = None, size_max: int = SIZE_MAX, at_once: bool = True) -> None:
        self.folder, self.size_max = folder, max(size_max, 16 << 10)
        self.asked = about or {}
        self.role, self.rank, self.run = self.asked.get("role"), self.asked.get("rank"), self.asked.get("run")
        self.fd = -1  # what writers use; a write to -1 fails, and failing writes are where files are opened
        self._file = -1  # the descriptor, also while nothing is written to it
        self._inode: tuple[int, int] = (0, 0)  # device and number
        self.open: dict[str, bytes] = {}  # records of spans without an end, for the next segment
        self.dropped = 0
        self._renew()
        if at_once:  # while no other thread writes; what fails is tried again at the first record
            with contextlib.suppress(OSError):
                self._reopen()

    def _renew(self) -> None:
        """State of a process that has written nothing yet."""
        self.pid = os.getpid()
        self.from_ns, self.look_ns = 0, 0  # wall times before and after which the file is looked at: clocks are set back, too
        self.segment, self._limit = 0, 0
        self._retry_ns = 0
        self._newline = False
        self._busy = threading.Lock()  # only ever tried, never waited for
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MAX)  # records that found it taken
        self.about = identity.describe(self.role, self.rank, self.run)

    def put(self, data: bytes) -> None:
        """Write one record, a line with its newline."""
        try:
            count = write(self.fd, data)
        except OSError as error:
            self.failed(data, error)
            return
        if count != len(data) or not self.from_ns < time.time_ns() < self.look_ns:
            self.look(data, count)

    @property
    def begun(self) -> bool:
        """Whether this process has a file."""
        return self._file >= 0

    # -- the slow ways ------------------------------------------------------------------------------------------------------

    def failed(self, data: bytes, error: OSError) -> None:
        """A write failed: open the file, or let the record go. Raises only what a signal handler of the trainer raised meanwhile."""
        if guard.passes(error):
            raise error
        now = time.monotonic_ns()
        if now < self._retry_ns:
            self.dropped += 1
            return
        if not self._busy.acquire(blocking=False):  # another thread, or the one that this signal handler interrupted, opens it at this moment
            self.dropped += len(self._waiting) == WAITING_MAX
            self._waiting.append(data)
            if not self._busy.acquire(blocking=False):
                return
            data = b""  # it has just been released: what waits is ours to write
        try:
            if not self._usable():
                self._reopen(but=data)
            self.fd = self._file
            try:
                done = self._put_all(data)
            except OSError as fault:
                if fault.errno != errno.EFBIG:
                    raise
                self._next_segment(but=data)  # the system limits the size of each file
                done = self._put_all(data)
            if done:
                return
        except OSError as fault:
            if guard.passes(fault):
                raise
            self._newline = True
        finally:
            self._busy.release()
        self.dropped += bool(data) + len(self._waiting)
        self._waiting.clear()
        self._cut_off()

    def _put_all(self, data: bytes) -> bool:
        """Write a record, and those that waited meanwhile. False for a short write. Raises OSError."""
        while True:
            if data:
                if self._newline:  # what stands there may be half a record
                    data = b"\n" + data
                self._newline = write(self.fd, data) != len(data)
                if self._newline:
                    return False
            self._tell_dropped()
            try:
                data = self._waiting.popleft()
            except IndexError:
                return True

    def _usable(self) -> bool:
        """Whether the descriptor is ours and its file has a name: a write may have failed only for want of room."""
        try:
            status = os.fstat(self._file)
            return (status.st_dev, status.st_ino) == self._inode and status.st_nlink > 0
        except OSError:
            return False

    def _ours(self) -> bool:
        """Whether the descriptor still stands for the file that was opened: somebody may have closed all of them, and opened others."""
        try:
            status = os.fstat(self._file)
            return (status.st_dev, status.st_ino) == self._inode
        except OSError:
            return False

    def look(self, data: bytes, count: int) -> None:
        """After some time, or a short write: is the file still there, and is it full?"""
        if count != len(data):
            self.dropped += 1
            self._newline, self.fd = True, -1  # the next record finds out why
            return
        if not self._busy.acquire(blocking=False):
            return
        try:
            status = os.fstat(self._file)
            self._seen(status.st_size)
            if (status.st_dev, status.st_ino) != self._inode or status.st_nlink == 0:
                self._reopen()
            elif status.st_size > self._limit:
                self._next_segment()
            self._tell_dropped()
        except OSError as error:
            if guard.passes(error):
                raise
            self._cut_off()
        finally:
            self._busy.release()

    def _seen(self, size: int) -> None:
        """Look again after a while, and before what is left can be full."""
        self.from_ns = time.time_ns()
        self.look_ns = self.from_ns + min(LOOK_NS, max(LOOK_LEAST_NS, (self._limit - size) * NS_PER_BYTE))

    def _cut_off(self) -> None:
        """Let every write fail until it is time to try again."""
        self.fd, self._retry_ns = -1, time.monotonic_ns() + RETRY_NS

    def _tell_dropped(self) -> None:
        """Say how many records are missing, and then what is open all the same. Raises OSError."""
        if self.dropped:
            count, self.dropped = self.dropped, 0
            told = b'{"t":%d,"e":"event","n":"rca.dropped","a":{"count":%d}}\n' % (time.time_ns(), count)
            try:
                self._newline = write(self.fd, told) != len(told) or self._tell_open() is False
            except OSError:
                self.dropped += count
                raise
            if self._newline:
                self.dropped += count
                self._cut_off()

    def _tell_open(self, but: bytes = b"", end: bytes = b"") -> bool:
        """Tell the spans without an end again; `but` is one that its own thread is about to write. False for a short write. Raises OSError."""
        told = b"".join(data[:-2] + AGAIN for data in list(self.open.values()) if data is not but) + end
        return write(self.fd, told) == len(told)

    def _reopen(self, anew: bool = False, but: bytes = b"") -> None:
        """Put the file of the current segment beneath the descriptor, with its header in it, and what is open; with `anew` in place of the file that is there.

        That one stays until the new one is complete: whoever is killed meanwhile leaves both. Raises OSError.
        """
        os.makedirs(self.folder, FOLDER_MODE, exist_ok=True)
        path = os.path.join(self.folder, identity.file_name(self.about, self.segment, self.ending))
        fresh = path.removesuffix(self.ending) + ".new" + self.ending if anew else path
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_TRUNC if anew else 0), FILE_MODE)
        try:
            status = os.fstat(fd)
            head = (b"\n" if status.st_size else b"") + self._header()
            self._newline = write(fd, head) != len(head)
            try:
                if not self._ours():
                    raise OSError(errno.EBADF, "closed by somebody")
                os.dup2(fd, self._file, inheritable=False)
            except OSError:  # or a limit forbids the number by now
                self._file = high(fd)
        finally:
            os.close(fd)
        self.fd = self._file
        self._inode = (status.st_dev, status.st_ino)
        share = self.size_max // SHARES[min(self.segment, 2)]
        self._limit = share - min(share // 4, SLACK)
        self._seen(status.st_size)
        if anew or self.open:
            self._newline = not self._tell_open(but, COMPLETE % time.time_ns() if anew else b"")
        if anew:
            os.rename(fresh, path)

    def _header(self) -> bytes:
        head = {"schema": SCHEMA, **self.about, "start": identity.born(), "clock": {"wall": time.time_ns(), "monotonic": time.monotonic_ns()}}
        if self.segment:
            head["segment"] = self.segment
        return json.dumps(head, separators=(",", ":")).encode()[: RECORD_MAX - 1] + b"\n"

    def _next_segment(self, but: bytes = b"") -> None:
        """The first segment is kept; of the two others the older one begins anew, with what is still open. Raises OSError."""
        self.segment = 1 if self.segment in (0, 2) else 2
        self._reopen(anew=True, but=but)

    def forked(self) -> None:
        """In a child: a file of its own at its first record. What was open belongs to the parent."""
        if self._ours():
            with contextlib.suppress(OSError):
                os.close(self._file)
        self.fd = self._file = -1
        self.open = {}
        self.dropped = 0
        self._renew()

    def for_child(self) -> Journal:
        """What a child made by fork records to."""
        return self

    def leave(self) -> None:
        """Another journal takes over; spans that began here end here."""

    def close(self) -> None:
        """Write no more."""
        self.fd, self._retry_ns = -1, 1 << 62


def high(fd: int) -> int:
    """A copy of a descriptor with a number that no ordinary `open` gives."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    least = min(FD_LEAST, max(3, soft - 24)) if soft != resource.RLIM_INFINITY else FD_LEAST
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
