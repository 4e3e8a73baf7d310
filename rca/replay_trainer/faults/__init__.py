"""Ways to break a running job from outside: one file each, found by listing this folder.

A fault says in its docstring what it really does, in `KIND` whether that is "real" or "synthetic" (hardware that cannot be broken here: its lines and counters
are written in their real formats), and in `NEEDS` which mechanisms of `hosts.lacking` it takes. `make(scene, role=…, rank=…, …)` breaks it and gives what
mends it again, or None where nothing can.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import pkgutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from rca.errors import RcaError, did_you_mean
from rca.replay_trainer.control_groups import ControlGroup
from rca.replay_trainer.hosts import Host, Inside
from rca.replay_trainer.storage import Storage

Undo = Callable[[], None]


class Scene(Protocol):
    """The running job, as a fault sees it."""

    run: Path
    logs: Path
    storage: Storage | None

    def host(self, role: str, rank: int) -> Host: ...

    def pid(self, role: str, rank: int) -> int: ...

    def group(self, role: str, rank: int) -> ControlGroup: ...

    def device(self, role: str, rank: int) -> Path:
        """The folder of the stand-in device that this process uses."""

    def remember(self, **facts: Any) -> None:
        """Add facts to truth.json."""


def names() -> list[str]:
    """All faults."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))


def load(name: str) -> ModuleType:
    """A fault by name. Raises RcaError for one that does not exist."""
    if name not in names():
        raise RcaError(f"no such fault: `{name}`", hint=did_you_mean(name, names()))
    return importlib.import_module(f"{__name__}.{name}")


def noted(scene: Scene, **facts: Any) -> None:
    """Remember when the fault was made, beside what else is said of it."""
    scene.remember(fault_time_utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"), **facts)


def for_a_while(undo: Undo, seconds: float | None) -> Undo:
    """`undo` that also happens by itself after `seconds`, and only once."""
    lock, done = threading.Lock(), False

    def once() -> None:
        nonlocal done
        with lock:
            if not done:
                done = True
                undo()

    if seconds is None:
        return once

    def by_itself() -> None:
        with contextlib.suppress(RcaError, OSError):  # the cluster has ended before: there is nothing left to mend
            once()

    timer = threading.Timer(seconds, by_itself)
    timer.daemon = True  # the end of the program does not wait for it: what it would mend has ended as well
    timer.start()

    def now() -> None:
        timer.cancel()
        once()

    return now


def in_namespaces(scene: Scene, role: str, rank: int) -> Inside:
    """The host of a process whose links can be broken. Raises RcaError for this machine itself, whose links belong to others as well."""
    host = scene.host(role, rank)
    if not isinstance(host, Inside):
        raise RcaError(f"{role} {rank} runs on this machine itself, whose links are not ours to break", hint="run it on a cluster of network namespaces")
    return host


def storage_of(scene: Scene) -> Storage:
    """Raises RcaError where the job has none of its own."""
    if scene.storage is None:
        raise RcaError("this job has no storage of its own to break", hint="run it on a cluster with a storage")
    return scene.storage
