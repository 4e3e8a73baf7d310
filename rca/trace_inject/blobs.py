"""The store of one process: files that are named by their content, bounded by steps and bytes.

    <folder>/<process>/<digest>.safetensors, <digest>.bin; what is small lies in packs, see `packs`

What another process of the recording has stored already gets a further name here, a hard link; where that cannot be, it is written again. Each process takes away its own
names, those that were used longest ago first, and the file system counts. A file is written aside and renamed: one that has its name is whole, also after SIGKILL. No
lock is waited for; what cannot be written (full disk, read-only) is not kept, and its caller says so.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rca.trace_inject import guard, identity, packs

FOLDER_MODE, FILE_MODE = 0o755, 0o644
RETRY_NS = 1_000_000_000  # after a write that failed
LOOK_NS = 1_000_000_000  # between two looks at who else is there
TRIES, PAUSE_S = 50, 0.0002
VECTOR_MAX = 512  # pieces of one call; the system takes 1,024
LEFT_MOST, LEFT_SHARE = 1 << 30, 2  # so many bytes of a disk, or half of it, are the trainer's: a recording must not be what fills it
ROOM_NS = 200_000_000  # between two looks at how full the disk is
SIBLINGS_MAX = 64  # whose stores are looked into


class Blobs:
    """What this process keeps. `size_max` bounds the bytes of all its files, also of those that it shares; a quarter is for packs."""

    def __init__(self, folder: str, process: str, steps: int, size_max: int) -> None:
        self.folder, self.own = folder, os.path.join(folder, process)
        self.steps = steps
        self.packs = packs.Packs(self.own, steps, size_max // 4)
        self.size_max = size_max - size_max // 4  # of files
        self.open: dict[object, list[str]] = {}  # names of requests without an end: these are taken away last
        self.files: dict[str, int] = {}  # name -> bytes, the longest unused first
        self.size = 0
        self._used: dict[str, int] = {}  # name -> newest step that needed it
        self._step = 0  # the newest
        self._writing: dict[str, None] = {}  # at this moment, by any thread
        self._busy = threading.Lock()  # tried, never waited for without end
        self._siblings: list[str] = []
        self._look_ns = self._retry_ns = 0
        self._there = False
        self._number = 0
        self._room, self._room_ns = 0, 0  # bytes that may still be written, until it is looked at again

    def _fits(self, size: int) -> bool:
        """Whether the disk has room for it, beside what is left to the trainer. Raises OSError."""
        now = time.monotonic_ns()
        if size > self._room or now > self._room_ns:
            disk = os.statvfs(self.own)
            self._room = (disk.f_bavail - min(LEFT_MOST // disk.f_frsize, disk.f_blocks // LEFT_SHARE)) * disk.f_frsize
            self._room_ns = now + ROOM_NS
        self._room -= size
        return self._room >= 0

    def keep(self, name: str, pieces: Callable[[], Sequence[Any]], size: int, step: int | None) -> bool:
        """Keep `size` bytes for a step; False where they cannot be kept. `pieces` gives them, if they are needed."""
        if self.has(name, step):
            return True
        if size > self.size_max or time.monotonic_ns() < self._retry_ns:
            return False
        try:
            try:
                return self._keep(name, pieces, size, step)
            except FileNotFoundError:  # somebody has taken the folder away
                self._forget()
                return self._keep(name, pieces, size, step)
        except OSError as error:
            if guard.passes(error):
                raise
            self._there, self._retry_ns = False, time.monotonic_ns() + RETRY_NS
            return False

    def _keep(self, name: str, pieces: Callable[[], Sequence[Any]], size: int, step: int | None) -> bool:
        if not self._there:
            os.makedirs(self.own, FOLDER_MODE, exist_ok=True)
            self._adopt()
            self._there = True
        if not self._fits(size):
            return False
        if size <= self.packs.most and self._packed(name, pieces, step):
            return True
        if name in self._writing:
            return True
        if not self._reserve(name, size, step):
            return False
        path = f"{self.own}/{name}"
        try:
            if not self._link(name, path):
                self._write(path, pieces())
            return True
        except BaseException:
            self._take_away(name)
            raise
        finally:
            self._writing.pop(name, None)

    def _forget(self) -> None:
        """Begin anew in a folder that has nothing."""
        self.packs.leave()
        self.packs = packs.Packs(self.own, self.steps, self.packs.size_max)
        self.files, self._used, self.size, self._there = {}, {}, 0, False

    def has(self, name: str, step: int | None) -> bool:
        """Whether it is kept; then it is needed by this step too."""
        if self.packs.has(name, step):
            self.packs.used(step)
            return True
        size = self.files.pop(name, None)
        if size is None:
            return False
        self.files[name] = size  # behind all others
        if step is not None and step > self._used.get(name, 0):
            self._used[name] = step
        return True

    def _packed(self, name: str, pieces: Callable[[], Sequence[Any]], step: int | None) -> bool:
        """Put it into the newest pack. False while another thread begins one, or where that cannot be. Raises OSError."""
        if self.packs.full(step):
            if not self._alone():
                return False
            try:
                self._step = max(self._step, step or 0)
                if self.packs.full(step):
                    self.packs.begin(step)
                self.packs.prune(self._step, self._needed())
            finally:
                self._busy.release()
        given = pieces()
        self.packs.used(step)
        return self.packs.put(name, given, sum(map(len, given)))

    # -- what is taken away -------------------------------------------------------------------------------------------------

    def _needed(self) -> set[str]:
        return {name for names in list(self.open.values()) for name in list(names)} | set(self._writing)

    def _reserve(self, name: str, size: int, step: int | None) -> bool:
        """Make room for a file. False where all that is there belongs to requests without an end, or is being written."""
        if not self._alone():
            return False
        try:
            if step is not None and step > self._step:
                self._step = step
            self._prune(size)
            if self.size + size > self.size_max:
                return False
            if name not in self.files:
                self.size += size
            self.files[name] = size
            self._writing[name] = None
            self._used[name] = max(self._step if step is None else step, self._used.get(name, 0))
            return True
        finally:
            self._busy.release()

    def _alone(self) -> bool:
        """Have the accounts for oneself: those who do have them need microseconds, unless a signal handler has interrupted them."""
        for _ in range(TRIES):
            if self._busy.acquire(blocking=False):
                return True
            time.sleep(PAUSE_S)
        return False

    def _prune(self, more: int) -> None:
        """Take away what is too old, or too much with so many bytes more."""
        oldest = self._step - self.steps
        needed: set[str] | None = None
        for name in list(self.files):
            if self.size + more <= self.size_max and self._used.get(name, 0) > oldest:
                return  # those behind it were used later
            if needed is None:
                needed = self._needed()
            if name not in needed:
                self._take_away(name)

    def _take_away(self, name: str) -> None:
        size = self.files.pop(name, None)
        if size is not None:
            self.size -= size
            self._used.pop(name, None)
            with contextlib.suppress(OSError):
                os.unlink(f"{self.own}/{name}")

    def _adopt(self) -> None:
        """What a process of the same name and number has left, as in a container that was started again."""
        with os.scandir(self.own) as entries:
            for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime_ns):
                if entry.name.startswith("."):
                    if entry.stat().st_mtime_ns < identity.born():
                        os.unlink(entry.path)
                elif entry.name.endswith(packs.ENDING):
                    self.packs.adopt(entry.name, entry.stat().st_size)
                elif entry.name not in self.files:
                    self.files[entry.name] = entry.stat().st_size
                    self.size += self.files[entry.name]

    # -- files --------------------------------------------------------------------------------------------------------------

    def _link(self, name: str, path: str) -> bool:
        """Take it from another process."""
        now = time.monotonic_ns()
        if now > self._look_ns:
            self._look_ns = now + LOOK_NS
            with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
                found = [entry.path for entry in entries if entry.path != self.own]
                if len(found) > SIBLINGS_MAX:
                    found = sorted(found, key=_changed)[-SIBLINGS_MAX:]
                known = [sibling for sibling in self._siblings if sibling in found]
                self._siblings = known + [sibling for sibling in found if sibling not in known]
        for number, sibling in enumerate(self._siblings):
            try:
                os.link(f"{sibling}/{name}", path)
            except FileNotFoundError:
                continue
            except FileExistsError:
                return True
            except OSError:
                return False  # a file system without links, or a file with too many
            if number:
                self._siblings = [sibling, *(other for other in self._siblings if other != sibling)]
            return True
        return False

    def _write(self, path: str, pieces: Sequence[Any]) -> None:
        """Raises OSError; nothing is left then."""
        self._number += 1
        aside = f"{self.own}/.{threading.get_ident()}-{self._number}"
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            try:
                for start in range(0, len(pieces), VECTOR_MAX):
                    some = [piece for piece in pieces[start : start + VECTOR_MAX] if len(piece)]
                    left = sum(map(len, some)) - os.writev(fd, some)
                    if left:  # a disk that is nearly full, or more than one call takes
                        rest = memoryview(b"".join(some))[-left:]
                        while rest:
                            rest = rest[os.write(fd, rest) :]
            finally:
                os.close(fd)
            os.rename(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
