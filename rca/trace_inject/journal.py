"""The journal of one process: a file to which every record goes by one `write`, so that what was recorded survives SIGKILL.

No lock is held and nothing is buffered, so a fork, a signal handler or a crash finds nothing half done. A child that was forked gets a file of its own at
its first record. The file descriptor is a high number that no ordinary `open` reuses, and it never changes while the process lives (another thread may be
writing): another segment, or a folder that was deleted, is put beneath the same number by `dup2`.

What cannot be written (full disk, read-only, quota, closed descriptor) is dropped and counted, and tried again a second later; the count stands in
the next `dropped` record. Nothing here raises.

Format `rca.trace/1`: JSON lines; the first is a header. Source: docs/tracing.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import threading
import time
from typing import Any

from rca.trace_inject import identity

SCHEMA = "rca.trace/1"
RECORD_MAX = 3500  # bytes; longer writes were seen torn when the process was killed
SIZE_MAX = 64 << 20  # bytes of all segments of one process
SHARES = (2, 4, 4)  # of that: the first segment half, kept for good; two more take turns
LOOK_NS = 50_000_000  # between two looks at the file itself
RETRY_NS = 1_000_000_000
FD_LEAST = 200  # far above what `open` gives in nearly every program
FOLDER_MODE, FILE_MODE = 0o755, 0o644

write = os.write


class Journal:
    """Where one process's records go."""

    def __init__(self, folder: str, about: dict[str, Any] | None = None, size_max: int = SIZE_MAX) -> None:
        self.folder, self.size_max = folder, max(size_max, 16 << 10)
        self.role, self.rank, self.run = (about or {}).get("role"), (about or {}).get("rank"), (about or {}).get("run")
        self.fd = -1  # what writers use; a write to -1 fails, and failing writes are where files are opened
        self._file = -1  # the descriptor, also while nothing is written to it
        self._inode = 0
        self.open: dict[str, bytes] = {}  # records of spans without an end, for the next segment
        self.dropped = 0
        self._renew()

    def _renew(self) -> None:
        """State of a process that has written nothing yet."""
        self.pid = os.getpid()
        self.look_ns = 0  # wall time after which the file is looked at
        self.segment, self._limit = 0, 0
        self._retry_ns = 0
        self._newline = False
        self._busy = threading.Lock()  # only ever tried, never waited for
        self.about = identity.describe(self.role, self.rank, self.run)

    def put(self, data: bytes) -> None:
        """Write one record, a line with its newline."""
        try:
            count = write(self.fd, data)
        except OSError:
            self.failed(data)
            return
        if count != len(data) or time.time_ns() > self.look_ns:
            self.look(data, count)

    # -- the slow ways ------------------------------------------------------------------------------------------------------

    def failed(self, data: bytes) -> None:
        """A write failed: open the file, or let the record go."""
        now = time.monotonic_ns()
        if now < self._retry_ns or not self._busy.acquire(blocking=False):
            self.dropped += 1
            return
        try:
            if not self._usable():
                self._reopen()
            self.fd = self._file
            if self._newline:  # what stands there may be half a record
                data = b"\n" + data
            count = write(self.fd, data)
            self._newline = count != len(data)
            if not self._newline:
                self._tell_dropped()
                return
            self.fd = -1
        except OSError:
            self.fd, self._newline = -1, True
        finally:
            self._busy.release()
        self.dropped += 1
        self._retry_ns = now + RETRY_NS

    def _usable(self) -> bool:
        """Whether the descriptor is ours and its file has a name: a write may have failed only for want of room."""
        try:
            status = os.fstat(self._file)
            return status.st_ino == self._inode and status.st_nlink > 0
        except OSError:
            return False

    def _ours(self) -> bool:
        """Whether the descriptor still stands for the file that was opened: somebody may have closed all of them, and opened others."""
        try:
            return self._file >= 0 and os.fstat(self._file).st_ino == self._inode
        except OSError:
            return False

    def look(self, data: bytes, count: int) -> None:
        """After some bytes, or a short write: is the file still there, and is it full?"""
        if count != len(data):
            self.dropped += 1
            self._newline = True
            self._cut_off()
            return
        if not self._busy.acquire(blocking=False):
            return
        try:
            self.look_ns = time.time_ns() + LOOK_NS
            status = os.fstat(self._file)
            if status.st_ino != self._inode or status.st_nlink == 0:
                self._reopen()
            elif status.st_size > self._limit:
                self._next_segment()
            self._tell_dropped()
        except OSError:
            self._cut_off()
        finally:
            self._busy.release()

    def _cut_off(self) -> None:
        """Let every write fail until it is time to try again."""
        self.fd, self._retry_ns = -1, time.monotonic_ns() + RETRY_NS

    def _tell_dropped(self) -> None:
        if self.dropped:
            count, self.dropped = self.dropped, 0
            with contextlib.suppress(OSError):
                write(self.fd, b'{"t":%d,"e":"event","n":"rca.dropped","a":{"count":%d}}\n' % (time.time_ns(), count))

    def _reopen(self, truncate: bool = False) -> None:
        """Open the file of the current segment beneath the descriptor."""
        os.makedirs(self.folder, FOLDER_MODE, exist_ok=True)
        path = os.path.join(self.folder, identity.file_name(self.about, self.segment))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if truncate else 0)
        fd = os.open(path, flags, FILE_MODE)
        try:
            if self._ours():
                os.dup2(fd, self._file, inheritable=False)
            else:
                self._file = _high(fd)
        finally:
            os.close(fd)
        self.fd = self._file
        status = os.fstat(self.fd)
        self._inode, self.look_ns = status.st_ino, time.time_ns() + LOOK_NS
        self._limit = self.size_max // SHARES[min(self.segment, 2)]
        head = self._header()
        if write(self.fd, b"\n" + head if status.st_size else head) != len(head) + bool(status.st_size):
            self._newline = True

    def _header(self) -> bytes:
        head = {"schema": SCHEMA, **self.about, "start": time.time_ns(), "clock": {"wall": time.time_ns(), "monotonic": time.monotonic_ns()}}
        if self.segment:
            head["segment"] = self.segment
        return json.dumps(head, separators=(",", ":")).encode()[: RECORD_MAX - 1] + b"\n"

    def _next_segment(self) -> None:
        """The first segment is kept; of the two others the older one begins anew, with what is still open."""
        self.segment = 1 if self.segment in (0, 2) else 2
        self._reopen(truncate=True)
        for data in list(self.open.values()):
            write(self.fd, data)

    def forked(self) -> None:
        """In a child: a file of its own at its first record. What was open belongs to the parent."""
        if self._ours():
            with contextlib.suppress(OSError):
                os.close(self._file)
        self.fd = self._file = -1
        self.open = {}
        self.dropped = 0
        self._renew()

    def close(self) -> None:
        """Write no more."""
        self.fd, self._retry_ns = -1, 1 << 62


def _high(fd: int) -> int:
    """A copy of a descriptor with a number that no ordinary `open` gives."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    least = min(FD_LEAST, max(3, soft - 24)) if soft != resource.RLIM_INFINITY else FD_LEAST
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
