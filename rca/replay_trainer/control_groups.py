"""Control groups of version 1 or 2: limits of memory and CPU time for a set of processes, which can be changed while they run."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import time
from pathlib import Path

from rca.errors import RcaError

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000  # the kernel's own default
UNLIMITED = -1  # version 1
TRIES, PAUSE_S = 100, 0.05  # a group can be removed once its last process has been reaped
OF_RUN = re.compile(r"rca-(\d+)-.+")
_numbers = itertools.count()


@functools.cache
def parents() -> dict[str, Path]:
    """Where groups can be made: controller -> folder. Empty, or without one of them, where the machine does not let us."""
    found: dict[str, Path] = {}
    for controller, file in (("memory", "memory.limit_in_bytes"), ("cpu", "cpu.cfs_quota_us")):
        for folder in (ROOT / controller, ROOT / "cpu,cpuacct"):
            if (folder / "cgroup.procs").exists() and _makes(folder, file):
                found.setdefault(controller, folder)
    for folder in _own_ancestors():  # version 2: one tree, each level of which hands controllers on
        for controller, file in (("memory", "memory.max"), ("cpu", "cpu.max")):
            if controller not in found and _makes(folder, file):
                found[controller] = folder
    return found


def _own_ancestors() -> list[Path]:
    """The groups of version 2 above this process, the nearest first."""
    try:
        own = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), "/")
    except OSError:
        return []
    folder = ROOT / own.strip("/")
    return [level for level in (folder, *folder.parents) if level.is_relative_to(ROOT) and (level / "cgroup.subtree_control").exists()]


def _makes(parent: Path, file: str) -> bool:
    """Whether a group made here has this file, and it can be written."""
    probe = parent / f"rca-{os.getpid()}-probe{next(_numbers)}"
    try:
        probe.mkdir()
    except OSError:
        return False
    try:
        return os.access(probe / file, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)
    finally:
        probe.rmdir()


def _sweep(parent: Path) -> None:
    """Remove the empty groups of runs that were killed before they could."""
    for folder in parent.glob("rca-*"):
        made_by = OF_RUN.fullmatch(folder.name)
        if made_by and not Path(f"/proc/{made_by[1]}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()


class ControlGroup:
    """One group, in every hierarchy that has one of the controllers. Raises RcaError where neither can be had.

    Its name is `rca-<our pid>-<label>`: it stands in the kernel's report of an out-of-memory kill.
    """

    def __init__(self, label: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", label):
            raise RcaError(f"the label of a control group may have letters, digits, `-` and `_`: `{label}`")
        if not parents():
            raise RcaError("this machine does not let us make control groups", hint="it takes root, or a delegated group of version 2")
        self.name = f"rca-{os.getpid()}-{label}"
        self.folders = {controller: parent / self.name for controller, parent in parents().items()}
        for parent in set(parents().values()):
            _sweep(parent)
        try:
            for folder in set(self.folders.values()):
                folder.mkdir()
        except OSError as error:
            self.remove()
            raise RcaError(f"cannot make the control group `{self.name}`: {error.strerror}") from error

    @property
    def entrances(self) -> list[Path]:
        """The files that a process writes its pid to."""
        return sorted({folder / "cgroup.procs" for folder in self.folders.values()})

    @property
    def pids(self) -> list[int]:
        return sorted({int(pid) for file in self.entrances for pid in file.read_text().split()})

    @property
    def memory_bytes(self) -> int:
        """What the group uses now, page cache included."""
        folder = self._folder("memory")
        current = folder / "memory.current"
        return int((current if current.exists() else folder / "memory.usage_in_bytes").read_text())

    @property
    def cache_bytes(self) -> int:
        """Page cache of files among that which nobody has mapped: what the kernel takes back before it kills. Shared memory stands in the same sum and is not taken back."""
        lines = (line.split() for line in (self._folder("memory") / "memory.stat").read_text().splitlines())
        said = {name: int(value) for name, value in lines}
        cache, mapped = (said["file"], said["file_mapped"]) if "file" in said else (said["cache"], said["mapped_file"])
        return max(0, cache - mapped - said.get("shmem", 0))

    def add(self, pid: int) -> None:
        """Move a process here; what it has allocated before stays where it was counted. Raises RcaError."""
        try:
            for file in self.entrances:
                file.write_text(str(pid))
        except OSError as error:
            raise RcaError(f"process {pid} cannot enter the control group `{self.name}`: {error.strerror}") from error

    def limit(self, memory_bytes: int | None = None, cpus: float | None = None) -> None:
        """Set limits; None leaves one as it is, `memory_bytes` of -1 and `cpus` of 0 lift it.

        Version 1 refuses a limit below what is used and cannot be reclaimed, version 2 kills instead. Raises RcaError.
        """
        try:
            if memory_bytes is not None:
                folder = self._folder("memory")
                if (folder / "memory.max").exists():
                    (folder / "memory.max").write_text("max" if memory_bytes == UNLIMITED else str(memory_bytes))
                else:
                    (folder / "memory.limit_in_bytes").write_text(str(memory_bytes))
            if cpus is not None:
                folder = self._folder("cpu")
                quota_us = max(int(cpus * PERIOD_US), 1000) if cpus > 0 else UNLIMITED  # the kernel takes no quota below 1 ms
                if (folder / "cpu.max").exists():
                    (folder / "cpu.max").write_text(f"{'max' if quota_us == UNLIMITED else quota_us} {PERIOD_US}")
                else:
                    (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        except OSError as error:
            raise RcaError(f"the control group `{self.name}` refuses the limit: {error.strerror}") from error

    def counters(self, controller: str) -> dict[str, int]:
        """What the kernel has counted: `nr_throttled`, `throttled_time` (ns, version 1) or `throttled_usec`; `oom_kill`, …"""
        folder, found = self._folder(controller), {}
        for file in ("cpu.stat",) if controller == "cpu" else ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                found.update({name: int(value) for name, value in (line.split() for line in (folder / file).read_text().splitlines())})
        return found

    def remove(self) -> None:
        """Remove the group; waits a little for its last processes to be gone, and leaves it where they are not."""
        for folder in set(self.folders.values()):
            for _ in range(TRIES):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(PAUSE_S)

    def __enter__(self) -> ControlGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _folder(self, controller: str) -> Path:
        if controller not in self.folders:
            raise RcaError(f"this machine has no {controller} controller for us", hint="`rca.replay_trainer.hosts.lacking` tells what it allows")
        return self.folders[controller]
