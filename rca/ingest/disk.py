"""Opening what a user points at: regular files only, and never by waiting."""

from __future__ import annotations

import os
import stat

# O_NONBLOCK: opening a FIFO must not wait for a writer. O_NOFOLLOW: a path was resolved once, when it was listed.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading without ever blocking. Raises OSError for anything else."""
    fd = os.open(path, OPEN_FLAGS)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise OSError("not a regular file")
    return fd, status


def why(error: OSError) -> str:
    """The words of an I/O error, without path or number."""
    return (error.strerror or str(error)).lower()


class Nothing:
    """The stream of a file that cannot be opened."""

    position = consumed = 0

    def __init__(self, truncated: str | None) -> None:
        self.truncated = truncated

    def readinto(self, view: memoryview) -> int:
        """Deliver nothing."""
        return 0

    def close(self) -> None:
        """Do nothing."""
