"""Counters of the host and its devices beside the job: GPUs, RDMA ports, disks, NFS, memory, control groups, TCP, as records `sample` of the journal.

    rca sample --interval 1 &                     # one process a host, next to the launcher
    sample_in_background(1.0)                      # or a daemon thread of this process, asked for by name

A file of this folder is a source: its `read(place)` gives values under the names of `rca/ingest/samples/names.toml`, by what they speak of. What cannot be read
(another kernel, no GPU, no right to) is left out. Written is what changed enough to matter, and everything once a minute; when something begins to
move after a calm, its last calm value is written too, so that a reader knows when it began.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from rca.trace_inject import guard, recorder
from rca.trace_inject.sampler._changes import matters
from rca.trace_inject.sampler._place import Key, Place, Values

WHOLE_NS = 60 * 10**9
FRAME = 120  # bytes of a record beside its values
LEAST_S = 0.05


def sources() -> list[ModuleType]:
    """The files of this folder that read something, by name."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]


class Sampler:
    """Reads all sources and writes what matters. `root` is where the files of the kernel are found, `folder` where the job's journals lie."""

    def __init__(self, root: str = "/", folder: str | None = None) -> None:
        self._sources = [(module.read, Place(root, folder)) for module in sources()]
        self._before: Values = {}
        self._before_ns = 0
        self._written: dict[Key, tuple[int, float]] = {}  # time and value
        self._whole_ns = 0

    def read(self) -> Values:
        """What all sources say now. A source that fails is left out of this sample."""
        found: Values = {}
        for read, place in self._sources:
            try:
                found.update(read(place))
            except Exception:  # files of the kernel vanish while they are read, drivers answer with errors of their own
                continue
        return found

    def sample(self) -> int:
        """Read once and write what matters; gives the number of records."""
        now, values = time.time_ns(), self.read()
        whole = now - self._whole_ns >= WHOLE_NS
        told = values if whole else {k: v for k, v in values.items() if k not in self._written or matters(k[1], self._written[k][1], v)}
        calm = {k: self._before[k] for k in told if k in self._before and self._written.get(k, (now, 0))[0] < self._before_ns and self._before[k] != told[k]}
        count, to = 0, recorder.current()
        for ns, name, some in ((self._before_ns, "before", calm), (now, "all" if whole else "changes", told)):
            for data in records(ns, name, some, getattr(to, "room", recorder.RECORD_MAX)):
                if to is not None:
                    to.put(data)
                    count += 1
        self._written.update({k: (now, v) for k, v in told.items()})
        for gone in self._written.keys() - values.keys():
            del self._written[gone]
        self._before, self._before_ns = values, now
        self._whole_ns = now if whole else self._whole_ns
        return count


def records(ns: int, name: str, values: Values, most: int = recorder.RECORD_MAX) -> Iterator[bytes]:
    """Lines of at most so many bytes that hold some values, by what they speak of; as many as their length asks for."""
    by_subject: dict[str, dict[str, float]] = {}
    length = 0
    for (subject, quantity), value in values.items():
        value = round(value, 6) if isinstance(value, float) else value
        more = len(quantity) + len(str(value)) + 6 + (0 if subject in by_subject else len(json.dumps(subject)) + 6)
        if length + more > most - FRAME and by_subject:
            yield _line(ns, name, by_subject)
            by_subject, length = {}, 0
            more = len(quantity) + len(str(value)) + len(json.dumps(subject)) + 12
        by_subject.setdefault(subject, {})[quantity] = value
        length += more
    if by_subject:
        yield _line(ns, name, by_subject)


def _line(ns: int, name: str, by_subject: dict[str, dict[str, float]]) -> bytes:
    return json.dumps({"t": ns, "e": "sample", "n": name, "a": by_subject}, separators=(",", ":")).encode() + b"\n"


# -- in the trainer's own process ----------------------------------------------------------------------------------------

_running: tuple[int, threading.Event] | None = None  # the process, and what ends its thread


@guard.quiet(False)
def sample_in_background(interval_s: float = 1.0) -> bool:
    """Sample from a daemon thread of this process until `stop_sampling`; gives whether it runs. A forked child has no such thread, and may ask for its own.

    The thread holds no lock of this package. What it holds inside the interpreter or NVML at the moment of a fork is as with any other thread: where processes are
    forked all the time, `rca sample` beside the job is the better choice.
    """
    global _running
    to = recorder.current()
    if to is None:
        return False
    if _running is not None and _running[0] == os.getpid():
        return True
    ended = threading.Event()
    _running = os.getpid(), ended
    threading.Thread(target=_loop, args=(Sampler(folder=to.folder), max(LEAST_S, interval_s), ended), name="rca-sampler", daemon=True).start()
    return True


def stop_sampling() -> None:
    """End the thread, if there is one."""
    global _running
    found, _running = _running, None
    if found is not None and found[0] == os.getpid():
        found[1].set()


def _loop(sampler: Sampler, interval_s: float, ended: threading.Event) -> None:
    try:
        run(sampler, interval_s, ended)
    except Exception as error:
        guard.fault("sampler", error)


def run(sampler: Sampler, interval_s: float, ended: Any) -> None:
    """Sample until `ended` is set. What is late by more than an interval is left out, not made up for."""
    due = time.monotonic()
    while True:
        sampler.sample()
        due = max(due + interval_s, time.monotonic())
        if ended.wait(due - time.monotonic()):
            return
