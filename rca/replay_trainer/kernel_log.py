"""The kernel's own log: what it said since a mark, and which of that concerns given processes, control groups or devices."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rca.errors import RcaError

DEVICE = "/dev/kmsg"
RECORD_BYTES = 1 << 16  # more than the longest record: a read of too few is an error
STYLES = ("iso", "ctime", "boot")  # as `dmesg --time-format iso`, `dmesg -T`, `dmesg`
ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


def _records() -> list[tuple[int, int, str]]:
    """Every record that is still there: (number, µs since boot, text). Source: Documentation/ABI/testing/dev-kmsg. Raises RcaError."""
    found: list[tuple[int, int, str]] = []
    try:
        ring = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RcaError(f"the kernel log cannot be read: {error.strerror}", where=DEVICE, hint="it takes root, or the right CAP_SYSLOG") from error
    try:
        while True:
            try:
                raw = os.read(ring, RECORD_BYTES)
            except BlockingIOError:
                return found
            except BrokenPipeError:  # what we were about to read has just been overwritten; the next read goes on with the oldest
                continue
            head, _, text = raw.decode("utf-8", "replace").partition(";")
            _, number, ts_us = head.split(",")[:3]
            found.append((int(number), int(ts_us), ESCAPED.sub(lambda code: chr(int(code[1], 16)), text.split("\n", 1)[0])))
    except OSError as error:
        raise RcaError(f"the kernel log cannot be read: {error.strerror}", where=DEVICE) from error
    finally:
        os.close(ring)


def mark() -> int:
    """The number that the next record will have at the earliest. Raises RcaError where the log cannot be read."""
    return max((number for number, _, _ in _records()), default=-1) + 1


def since(number: int, style: str = "iso") -> list[str]:
    """The lines from a mark on, with times in one of `STYLES`. Raises RcaError."""
    return [written(line, _booted_us() + ts_us, style, ts_us) for n, ts_us, text in _records() if n >= number for line in text.split("\n")]


@functools.cache
def _booted_us() -> int:
    """When this machine was started, UTC; asked once, so that a line has the same time whenever it is read."""
    return (time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1000


def written(text: str, ts_us: int, style: str = "iso", since_boot_us: int | None = None) -> str:
    """One line as `dmesg` prints it. `ts_us` is UTC since 1970.

    >>> written("EXT4-fs (loop0): Remounting filesystem read-only", 1795310375775230)
    '2026-11-22T01:19:35,775230+00:00 EXT4-fs (loop0): Remounting filesystem read-only'
    """
    if style == "boot":
        seconds, part = divmod(since_boot_us if since_boot_us is not None else ts_us, 1_000_000)
        return f"[{seconds:5d}.{part:06d}] {text}"
    when = datetime.datetime.fromtimestamp(ts_us // 1_000_000, datetime.UTC)
    if style == "ctime":
        return f"[{when:%a %b} {when.day:2d} {when:%H:%M:%S %Y}] {text}"
    return f"{when:%Y-%m-%dT%H:%M:%S},{ts_us % 1_000_000:06d}+00:00 {text}"


TIME = re.compile(r"\[ {0,5}\d{1,12}\.\d{6}\] |\[\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\] |\d{4}-\d\d-\d\dT[\d:]{8},\d{6}[+-]\d\d:\d\d ")
#: A report of several lines: its first line, what its later lines look like, and its last one where it has a certain end.
OOM = re.compile(r" invoked oom-killer: ")
OOM_END = re.compile(r"(?:Memory cgroup out|Out) of memory: Kill")
HUNG = re.compile(r"INFO: task .{1,64} blocked (?:in I/O wait )?for more than \d+ seconds")
TRAP = re.compile(r"\S{1,64}\[\d+\]:? (?:segfault at|trap |general protection)|traps: ")
CUT = re.compile(r"-{8,}\[ cut here \]-+")
CUT_END = re.compile(r"---\[ end ")
MORE_OF_HUNG = re.compile(r'\s|"echo 0 > /proc|task:|Call Trace:|Future hung task|R\w\w: |Showing all locks')
MORE_OF_TRAP = re.compile(r"Code: | in ")
#: Subsystems whose lines stand alone, whatever report they were printed into.
ALONE = re.compile(r"EXT4-fs|JBD2:|XFS|loop\d+:|I/O error|Buffer I/O|buffer_io_error|Aborting journal|blk_update|NVRM|mlx5_core|\S+: (?:port \d+\(|entered |left |renamed )|sch_\w+:|audit:|oom_reaper:")


def about(lines: Iterable[str], words: Iterable[str | int]) -> list[str]:
    """The lines that name one of these pids (numbers), control groups or devices; a report of several lines comes whole or not at all.

    Other people's processes cause kernel lines at the same time, and a host's capture must not hold them.
    """
    wanted = [_naming(word) for word in words]
    return [line for block in _blocks(lines) if any(pattern.search(line, _start(line)) for line in block for pattern in wanted) for line in block]


def _start(line: str) -> int:
    """Where the text after the time begins."""
    found = TIME.match(line)
    return found.end() if found else 0


def _naming(word: str | int) -> re.Pattern[str]:
    if isinstance(word, int) or word.isdigit():  # a bare number may be anything: a pid is one that the text says is one
        return re.compile(rf"(?i:pid|tgid|process)[=: ] ?{word}(?!\d)|task \S{{1,64}}:{word} |\w\[{word}\]|\(pid {word}\)")
    journal = r"(?:-\d+)?" if word.isalnum() else ""  # the journal of ext4 on loop0 is loop0-8
    return re.compile(rf"(?<![\w-]){re.escape(word)}{journal}(?![\w-])")


def _blocks(lines: Iterable[str]) -> list[list[str]]:
    """Lines that were printed as one report, in the order of their first ones."""
    blocks: list[list[str]] = []
    open_block: list[str] | None = None
    end: re.Pattern[str] | None = None
    more: re.Pattern[str] | None = None
    for line in lines:
        text = line[_start(line) :]
        if open_block is not None and not ALONE.match(text) and not OOM.search(text) and not HUNG.match(text) and (end or (more and more.match(text))):
            open_block.append(line)
            if end and end.match(text):
                open_block = None
            continue
        if open_block is not None and ALONE.match(text):
            blocks.append([line])
            continue
        blocks.append([line])
        open_block, end, more = blocks[-1], None, None
        if OOM.search(text):
            end = OOM_END
        elif CUT.match(text):
            end = CUT_END
        elif HUNG.match(text):
            more = MORE_OF_HUNG
        elif TRAP.match(text):
            more = MORE_OF_TRAP
        else:
            open_block = None
    return blocks


def add(path: Path, lines: Sequence[str]) -> None:
    """Put lines into a capture, in order of time; lines without a time stay behind the one before them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    old: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        old = path.read_text("utf-8").splitlines()
    keyed, key = [], ""
    for line in [*old, *lines]:
        stamp = TIME.match(line)
        key = _sortable(stamp[0]) if stamp else key
        keyed.append((key, line))
    keyed.sort(key=lambda pair: pair[0])
    path.write_text("".join(f"{line}\n" for _, line in keyed), "utf-8")


def _sortable(stamp: str) -> str:
    """A time that sorts as text; `-T` alone does not."""
    if stamp[0] != "[":
        return stamp
    inner = stamp.strip("[] ")
    if inner[0].isdigit():
        return inner.zfill(24)
    return datetime.datetime.strptime(inner, "%a %b %d %H:%M:%S %Y").isoformat()
