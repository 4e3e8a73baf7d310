"""The store of one process: files that are named by their content, bounded by steps and bytes.

    <folder>/<process>/<digest>.safetensors, <digest>.bin

What another process of the recording has stored already gets a further name here, a hard link; where that cannot be, it is written again. Each process takes away its own
names, those that were used longest ago first, and the file system counts. A file is written aside and renamed: one that has its name is whole, also after SIGKILL. No
lock is waited for; what cannot be written (full disk, read-only) is not kept, and its caller says so.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterable

from rca.trace_inject import guard

FOLDER_MODE, FILE_MODE = 0o755, 0o644
RETRY_NS = 1_000_000_000  # after a write that failed
LOOK_NS = 1_000_000_000  # between two looks at who else is there
SIBLINGS_MAX = 64  # whose stores are looked into


class Blobs:
    """What this process keeps. `size_max` bounds the bytes of all its files, also of those that it shares."""

    def __init__(self, folder: str, process: str, steps: int, size_max: int) -> None:
        self.folder, self.own = folder, os.path.join(folder, process)
        self.steps, self.size_max = steps, size_max
        self.open: dict[object, list[str]] = {}  # files of requests without an end: these are never taken away
        self.files: dict[str, int] = {}  # name -> bytes, the longest unused first
        self.size = 0
        self._used: dict[str, int] = {}  # name -> newest step that needed it
        self._step = 0  # the newest
        self._stored: deque[tuple[str, int]] = deque()  # what came in and is not accounted for yet
        self._busy = threading.Lock()  # only ever tried
        self._siblings: list[str] = []
        self._look_ns = 0
        self._retry_ns = 0
        self._there = False
        self._number = 0

    def keep(self, name: str, pieces: Iterable[bytes], size: int, step: int | None) -> bool:
        """Keep a file of `size` bytes for a step; False where it cannot be kept."""
        if self.has(name, step):
            return True
        if size > self.size_max or time.monotonic_ns() < self._retry_ns:
            return False
        try:
            if not self._there:
                os.makedirs(self.own, FOLDER_MODE, exist_ok=True)
                self._adopt()
                self._there = True
            path = os.path.join(self.own, name)
            if not self._link(name, path):
                self._write(path, pieces)
        except OSError as error:
            if guard.passes(error):
                raise
            self._there, self._retry_ns = False, time.monotonic_ns() + RETRY_NS
            return False
        self._stored.append((name, size))
        self._account(step)
        return name in self.files or self._busy.locked()

    def has(self, name: str, step: int | None) -> bool:
        """Whether it is kept; then it is needed by this step too."""
        size = self.files.pop(name, None)
        if size is None:
            return False
        self.files[name] = size  # behind all others
        if step is not None and step > self._used.get(name, 0):
            self._used[name] = step
        return True

    def _account(self, step: int | None) -> None:
        if not self._busy.acquire(blocking=False):
            return  # whoever has it, or comes next, does it
        try:
            if step is not None and step > self._step:
                self._step = step
            while self._stored:
                name, size = self._stored.popleft()
                if name not in self.files:
                    self.files[name] = size
                    self.size += size
                self._used[name] = max(self._step if step is None else step, self._used.get(name, 0))
            self._prune()
        finally:
            self._busy.release()

    def _prune(self) -> None:
        """Take away what is too old or too much; where all that is left belongs to requests without an end, the newest of it."""
        oldest = self._step - self.steps
        needed: set[str] | None = None
        for name in list(self.files):
            if self.size <= self.size_max and self._used.get(name, 0) > oldest:
                return  # those behind it were used later
            if needed is None:
                needed = {name for names in list(self.open.values()) for name in list(names)}
            if name not in needed:
                self._take_away(name)
        while self.size > self.size_max and self.files:
            self._take_away(next(reversed(self.files)))

    def _take_away(self, name: str) -> None:
        size = self.files.pop(name, None)
        if size is not None:
            self.size -= size
            self._used.pop(name, None)
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.own, name))

    def _adopt(self) -> None:
        """What a process of the same name and number has left, as in a container that was started again."""
        with os.scandir(self.own) as entries:
            for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime_ns):
                if entry.name.startswith("."):
                    os.unlink(entry.path)
                elif entry.name not in self.files:
                    self.files[entry.name] = entry.stat().st_size
                    self.size += self.files[entry.name]

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
                os.link(os.path.join(sibling, name), path)
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

    def _write(self, path: str, pieces: Iterable[bytes]) -> None:
        """Raises OSError; nothing is left then."""
        self._number += 1
        aside = os.path.join(self.own, f".{threading.get_ident()}-{self._number}")
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            try:
                for piece in pieces:
                    rest = memoryview(piece)
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
