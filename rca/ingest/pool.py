"""Do one piece of work per file in forked workers, and give the results in the order of the files.

Workers are forked, not spawned (an interpreter costs more than scanning 50 MB), before the parent imports anything that
starts threads: that is what `meanwhile` is for. They take batches of files, largest first, from one pipe filled
beforehand. Results travel by `marshal`, which cannot run code, unlike pickle. A shared word per worker says what
it is at, so that a worker that dies (out of memory, a crash in native code) costs one file and is replaced.

A file that is large beside the whole is worked on in parts, see `rca.ingest.parts`; a worker that dies then costs one part.
"""

from __future__ import annotations

import gc
import marshal
import mmap
import os
import select
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from rca.ingest import parts
from rca.ingest.engines import Matcher
from rca.ingest.parts import Board, InParts, Range
from rca.ingest.sources import Source

Work = Callable[[Source, Matcher], Any]
WHOLE = -1  # in the place of the number of a part
INLINE_BYTES = 8 << 20  # below this, forking and collecting costs more than a second core gains
WORKERS_MAX = 8
FILE_COST_BYTES = 64 << 10  # opening a file costs what scanning so many bytes does
UNPACKS = 8  # decoded bytes per byte on disk of a compressed file, for sharing out the work
BATCHES_PER_WORKER = 32  # the last batch, when others are idle, is at most 1/32 of a worker's share
BATCHES_MAX = 512  # of 8 bytes: all of them fit any pipe at once
FLUSH_BYTES = 256 << 10
PIPE_BYTES = 1 << 20  # results that may wait while the parent imports; Linux allows as much to anyone
BARREN_DEATHS_MAX = 3  # of workers that died before they took a file: then they die of something else
BATCH = struct.Struct("<II")
WORD = struct.Struct("<I")


def scan_all(
    sources: Sequence[Source],
    work: Work,
    matcher: Matcher | Callable[[], Matcher],
    *,
    in_parts: InParts | None = None,
    workers: int | None = None,
    meanwhile: Callable[[], object] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Any]:
    """`work(source, matcher)` for every source that has no reason to be skipped; None for the others.

    `work` returns what `marshal` takes. Where it raises, or its process dies, the result is `("died", reason)`. `matcher` may
    be a function that makes it. `in_parts` says how to work on a file by parts; without it none is split. `meanwhile()` runs once in
    this process while workers scan, and not at all where this process does the work itself; `progress(done, total)` is told bytes
    on disk. The results do not depend on the number of workers.
    """
    results: list[Any] = [None] * len(sources)
    todo = [i for i, s in enumerate(sources) if s.reason is None]
    engine: Matcher = matcher if hasattr(matcher, "scan") else matcher()  # type: ignore[assignment,operator]
    told = _Told(sources, todo, progress)
    count = workers or _cores()
    small = workers == 1 or (workers is None and sum(_cost(sources[i]) for i in todo) < INLINE_BYTES)
    if not todo or small or not hasattr(os, "fork"):
        for i in todo:
            results[i] = _one(work, sources[i], engine)
            told(i)
        return results
    while todo:
        crew = _Crew(sources, todo, work, in_parts, engine, count, told)
        try:
            if meanwhile:
                meanwhile()
                meanwhile = None
            crew.collect()
        finally:
            crew.stop()
        for i, value in crew.results.items():
            results[i] = value
        left = [i for i in todo if i not in crew.results]  # a worker died with finished files in hand
        if len(left) == len(todo):
            for i in left:
                results[i] = ("died", "no worker lived long enough to read it")
            break
        todo = left
    return results


class _Told:
    """Counts the bytes of finished files and passes them on."""

    def __init__(self, sources: Sequence[Source], todo: list[int], progress: Callable[[int, int], object] | None) -> None:
        self._sources, self._progress = sources, progress
        self._done, self._total = 0, sum(sources[i].size for i in todo)

    def __call__(self, index: int) -> None:
        self._done += self._sources[index].size
        if self._progress:
            self._progress(self._done, self._total)


def _cores() -> int:
    """Cores this process may use (a container or a Slurm step often has fewer than the machine)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, WORKERS_MAX)


def _cost(source: Source) -> int:
    """About how many bytes of plain text scanning this file is worth."""
    return FILE_COST_BYTES + source.extent * (UNPACKS if source.compression else 1)


def _one(work: Callable[..., Any], source: Source, engine: Matcher, *more: Any) -> Any:
    """The result for one file or part; a fault in reading it is its result, not the end of the run."""
    try:
        return work(source, engine, *more)
    except Exception as error:
        return ("died", f"{type(error).__name__}: {error}"[:300])


def _batches(sources: Sequence[Source], todo: list[int], count: int, split: Mapping[int, list[Range]] | None = None) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Tasks by falling cost, and where to cut them into batches of about equal cost: `(start, stop)` each. A part is a batch of its own."""
    split = split or {}
    tasks = [(-_cost(sources[i]), i, WHOLE) for i in todo if i not in split]
    tasks += [(start - stop, i, number) for i, ranges in split.items() for number, (start, stop) in enumerate(ranges)]
    tasks.sort()
    share = sum(_cost(sources[i]) for i in todo) // min(BATCHES_MAX, count * BATCHES_PER_WORKER) + 1
    cuts, cost = [0], 0
    for position, (negative, _, number) in enumerate(tasks, 1):
        if number != WHOLE and cuts[-1] < position - 1:
            cuts.append(position - 1)
        cost -= negative
        if cost >= share or number != WHOLE or position == len(tasks):
            cuts.append(position)
            cost = 0
    return [(index, number) for _, index, number in tasks], list(pairwise(cuts))


class _Crew:
    """The workers of one round: forked at once, replaced when they die, gone at the end."""

    def __init__(self, sources: Sequence[Source], todo: list[int], work: Work, in_parts: InParts | None, engine: Matcher, count: int, told: _Told) -> None:
        self.results: dict[int, Any] = {}
        self._sources, self._work, self._in_parts, self._engine, self._told = sources, work, in_parts, engine, told
        self._boards: dict[int, Board] = {}
        split = parts.plan(sources, todo, count) if in_parts and count > 1 else {}
        for index, ranges in list(split.items()):
            try:
                self._boards[index] = Board(ranges)
            except OSError:  # a system that forbids it: the file is worked on as a whole
                del split[index]
        self._tasks, batches = _batches(sources, todo, count, split)
        count = min(count, len(batches))
        self._at = mmap.mmap(-1, WORD.size * count)  # anonymous and shared: 1 + the task each worker is at, or 0
        self._queue, feed = os.pipe()
        os.write(feed, b"".join(BATCH.pack(*b) for b in batches))
        os.close(feed)
        self._running: dict[int, tuple[int, int, bytearray]] = {}  # pipe: (pid, slot, bytes received)
        self._poll = select.poll()
        self._barren = 0
        for slot in range(count):
            self._start(slot)

    def _start(self, slot: int, join: int | None = None) -> None:
        """Fork one worker. It begins with joining the parts of the file `join`, if one is given."""
        inlet, outlet = os.pipe()
        _widen(outlet)
        WORD.pack_into(self._at, WORD.size * slot, 0)
        pid = os.fork()
        if pid == 0:
            for other in (inlet, *self._running):  # or a sibling would keep a pipe alive whose reader is gone
                os.close(other)
            self._serve(slot, outlet, join)
        os.close(outlet)
        self._running[inlet] = (pid, slot, bytearray())
        self._poll.register(inlet, select.POLLIN)

    def _serve(self, slot: int, outlet: int, join: int | None) -> NoReturn:
        """The life of a worker: take batches until there are none."""
        status = 1
        try:
            gc.freeze()  # the parent's objects are not this process's garbage
            message = bytearray()
            if join is not None:
                self._finish(slot, join, message)
                _send(outlet, message)
            while len(batch := os.read(self._queue, BATCH.size)) == BATCH.size:
                for position in range(*BATCH.unpack(batch)):
                    WORD.pack_into(self._at, WORD.size * slot, position + 1)
                    index, number = self._tasks[position]
                    if number == WHOLE:
                        _pack(message, index, _one(self._work, self._sources[index], self._engine))
                    elif self._post(index, number):
                        self._finish(slot, index, message)
                    if len(message) > FLUSH_BYTES:
                        _send(outlet, message)
                WORD.pack_into(self._at, WORD.size * slot, 0)
                _send(outlet, message)
            status = 0
        finally:  # never return into the parent's code, whatever happened, and never flush its buffers
            os._exit(status)

    def _post(self, index: int, number: int) -> bool:
        """Work on one part of a file; True if it was the last."""
        assert self._in_parts
        board = self._boards[index]
        return board.post(number, _one(self._in_parts.part, self._sources[index], self._engine, *board.ranges[number]))

    def _finish(self, slot: int, index: int, message: bytearray) -> None:
        """Join the parts of a file."""
        assert self._in_parts
        WORD.pack_into(self._at, WORD.size * slot, len(self._tasks) + index + 1)
        _pack(message, index, _one(self._in_parts.join, self._sources[index], self._engine, self._boards[index].read()))

    def collect(self) -> None:
        """Receive results until the last worker has gone."""
        while self._running:
            for inlet, _ in self._poll.poll():
                pid, slot, received = self._running[inlet]
                if data := os.read(inlet, PIPE_BYTES):
                    received += data
                    self._take(received)
                else:
                    self._bury(inlet, pid, slot)

    def _take(self, received: bytearray) -> None:
        """Unpack all whole messages."""
        at = 0
        while len(received) - at >= WORD.size:
            (length,) = WORD.unpack_from(received, at)
            if len(received) - at - WORD.size < length:
                break
            index, value = marshal.loads(memoryview(received)[at + WORD.size : at + WORD.size + length])
            self.results[index] = value
            self._told(index)
            at += WORD.size + length
        del received[:at]

    def _bury(self, inlet: int, pid: int, slot: int) -> None:
        """A worker has gone. If it died, blame the file or the part it was at, and replace it."""
        self._poll.unregister(inlet)  # first: the replacement's pipe may get the same number
        os.close(inlet)
        del self._running[inlet]
        _, status = os.waitpid(pid, 0)
        if status == 0:
            return
        (at,) = WORD.unpack_from(self._at, WORD.size * slot)
        join = None
        if not at:
            self._barren += 1
        else:
            index, number = self._tasks[at - 1] if at <= len(self._tasks) else (at - 1 - len(self._tasks), WHOLE)
            if number == WHOLE:
                self.results[index] = ("died", _reason(status))
                self._told(index)
            elif self._boards[index].post(number, ("died", _reason(status))):
                join = index  # the others had gone on to other work
        if self._barren <= BARREN_DEATHS_MAX:
            self._start(slot, join)

    def stop(self) -> None:
        """End what still runs (after an error or an interrupt) and give everything back."""
        for inlet, (pid, _, _) in self._running.items():
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(inlet)
        self._running.clear()
        for board in self._boards.values():
            board.close()
        os.close(self._queue)
        self._at.close()


def _widen(pipe: int) -> None:
    """Let a pipe hold more, where the system can."""
    import fcntl

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:  # the user's share of pipe memory is used up: slower, not wrong
            return


def _pack(message: bytearray, index: int, result: Any) -> None:
    """Append a result to a message."""
    try:
        packed = marshal.dumps((index, result))
    except ValueError as error:
        packed = marshal.dumps((index, ("died", f"result does not travel: {error}")))
    message += WORD.pack(len(packed)) + packed


def _send(pipe: int, message: bytearray) -> None:
    """Write all of `message` and empty it."""
    view = memoryview(message)
    while view:
        view = view[os.write(pipe, view) :]
    view.release()
    message.clear()


def _reason(status: int) -> str:
    """How a worker died, in words."""
    import signal

    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the reader exited with code {code}"
    try:
        return f"the reader was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"the reader was killed by signal {-code}"
