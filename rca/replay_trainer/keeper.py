"""The process that holds a cluster's mount namespace and, when the owner is gone however it went, ends all that is left in it.

Standard input is a pipe that only the owner can write to; its end is the sign. Lines before that tell what to do then: `thaw PATH` for a file system that
may be frozen (a frozen one cannot be unmounted, and its writers cannot be killed), `net INODE` for a network namespace whose processes are to be killed.
Nothing of rca is imported: the folder that this file lies in may be hidden by a mount.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time

FITHAW = 0xC0045878  # _IOWR('X', 120, int), linux/fs.h
ROUNDS, PAUSE_S = 200, 0.05  # a killed process may need a moment to let go of a device


def thaw(path: str) -> None:
    with contextlib.suppress(OSError):  # not frozen, or not there any more
        folder = os.open(path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, FITHAW, 0)
        finally:
            os.close(folder)


def inside(namespaces: set[str]) -> list[int]:
    """The processes whose network namespace is one of these; a zombie has none."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/net") in namespaces:
                    found.append(int(name))
    return found


def clean_up(frozen: set[str], namespaces: set[str]) -> None:
    for path in frozen:
        thaw(path)
    for _ in range(ROUNDS):
        left = inside(namespaces)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # sent to a whole group; the end of the pipe tells all there is to know
        signal.signal(number, signal.SIG_IGN)
    frozen: set[str] = set()
    namespaces: set[str] = set()
    print("ready", flush=True)
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word == "net":
            namespaces.add(f"net:[{value}]")
        elif word == "thaw":
            frozen.add(value)
    clean_up(frozen, namespaces)


if __name__ == "__main__":
    main()
