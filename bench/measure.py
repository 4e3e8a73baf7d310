"""Commands side by side: wall, CPU and memory of each in every round, and their ratios within a round.

Absolute times drift two- to fourfold with the neighbours of a shared machine; two commands that run one after the other see the
same machine. CPU ratios move less than wall ratios, and stand beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple


class Cost(NamedTuple):
    """What one run of a command took."""

    wall: float  # seconds
    cpu: float  # seconds, of all its processes
    rss: float  # MB, of its largest process (wait4 gives the peak of the command and of all children it waited for)


class Ratio(NamedTuple):
    """One command against another: medians of same-round ratios, and the extremes of the wall ratios."""

    wall: float
    cpu: float
    low: float
    high: float


def run(command: list[str], out: str) -> Cost:
    """Run a command with its output going to a file. Ends the program if it fails."""
    # As installed: with compiled modules, which some containers forbid to write. They go beside the output.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": os.path.join(os.path.dirname(out), "pycache")}
    with open(out, "wb") as file:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=file, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 3):  # rg: 1 without a match; rca: 1 for a failed run, 3 for what it could not read
        sys.exit(f"failed with {process.returncode}: {' '.join(command)}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def rounds(commands: dict[str, list[str]], count: int, out: str, before: Callable[[], object] | None = None, warm: bool = True) -> dict[str, list[Cost]]:
    """Run all commands in each of `count` rounds; the outputs of the last are left in `out.NAME`.

    With `warm` one more round goes before, for the page cache and the compiled modules. `before` is called ahead of every run.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(0 if warm else 1, count + 1):
        for name, command in commands.items():
            if before:
                before()
            cost = run(command, f"{out}.{name}")
            if number:
                costs[name].append(cost)
    return costs


def ratio(costs: list[Cost], base: list[Cost]) -> Ratio:
    """The ratios of one command to another over the same rounds."""
    walls = [a.wall / b.wall for a, b in zip(costs, base, strict=True)]
    cpu = median(a.cpu / max(b.cpu, 1e-3) for a, b in zip(costs, base, strict=True))
    return Ratio(median(walls), cpu, min(walls), max(walls))


def evict(folder: str) -> None:
    """Drop the files below a folder from the page cache, as far as the system lets us."""
    for path, _, names in os.walk(folder):
        for name in names:
            fd = os.open(os.path.join(path, name), os.O_RDONLY)
            try:
                os.fsync(fd)  # dirty pages cannot be dropped
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
