"""Text that tools print again and again: tables with dates, commands and host names between them.

Every module of this folder that has a `START` (a pattern for the line that opens its table) and a `Table` is asked. `Table(text, at, found)` is made from
that line; `feed(text, at)` takes a further line, or says False where the line is not part of it. A time before a line or alone on a line is taken off first.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.samples._collect import RAW_CUT, Samples, moment_of
from rca.ingest.times import SECOND, Stamp, epoch
from rca.ingest.times import read as read_time

EPOCH_CUT = 90  # characters of a line that holds nothing but a time
LINE_CUT = 8192  # characters of a line that are looked at
RULE = " \t#=*->[<|"
AROUND = re.compile(r"[#=*\->\[<|\s]{0,40}(?:(?:time(?:stamp)?|date|at|start(?:ed)?)\s{0,60}[:=]\s{0,4})?", re.I)
ALONE = re.compile(r"\s{0,9}(?:(?P<half>[AP]M)\b)?[\]#=*\-<|\s:]{0,40}$", re.I)
EPOCH = re.compile(r"[#=*\->\[<|\s]{0,40}(?:(?:time(?:stamp)?|date|ts)\s{0,20}[:=]\s{0,4})?(1[5-9]\d{8}(?:\.\d{1,9}|\d{3})?)[\]#=*\-<|\s:]{0,40}$", re.I)
COMMAND = re.compile(r"(?:\$|\+|>{2,3}|# (?=(?:[/\w]{1,40}/)?(?:ethtool|ip|cat|grep|nstat|netstat|nvidia-smi|vmstat|iostat|free|df|sar|mtr|ping|uptime|perfquery|rdma)\b)) ?(?P<command>\S.{0,300})$")
HOST_LINE = re.compile(r"[#=*\-]{2,40} ?(?:host(?:name)?\s?[:=]?\s?)?(?P<host>[A-Za-z][\w.-]{1,60}\d[\w.-]{0,20}) ?[#=*\-]{2,40}$")
LINUX = re.compile(r"Linux \S+ \((?P<host>[\w.-]{1,80})\)\s{1,9}(?P<day>\d\d/\d\d/(?:\d\d){1,2}|\d{4}-\d\d-\d\d)\b")


def modules() -> list[Any]:
    """The modules of this folder that read tables."""
    from rca import discover
    from rca.ingest import samples

    return [m for m in discover.modules(samples) if hasattr(m, "START")]


def read(data: bytes, start: int, line: int | None, found: Samples, most: int | None = None) -> tuple[int, int]:
    """Take the samples of `data`. Gives how many lines that are not blank were understood, and how many there were (at most `most` are looked at)."""
    readers = modules()
    table: Any = None
    understood = lines = 0
    position, size, number = 0, len(data), line
    while position < size and (most is None or lines < most):
        stop = data.find(b"\n", position)
        stop = size if stop < 0 else stop
        text = data[position : min(stop, position + LINE_CUT)].decode("utf-8", "replace").rstrip("\r")
        at = (number, start + position, text[:RAW_CUT])
        position = stop + 1
        if number is not None:
            number += 1
        if not text.strip():
            if table is not None and not table.feed("", at):
                table = _close(table)
            continue
        lines += 1
        rest = _untimed(text, found)
        if rest is None:
            understood += 1
            found.shape_lines += 1
            continue
        if table is not None and table.feed(rest, at):
            understood += 1
            continue
        table = _close(table)
        opener = next((m for m in readers if m.START.match(rest)), None)
        if opener is not None:
            table = opener.Table(rest, at, found)
            found.shape = opener.__name__.rpartition(".")[2]
            understood += 1
        elif _context(rest, found):
            understood += 1
    _close(table)
    return understood, lines


def _close(table: Any) -> None:
    """End a table that has something left to say."""
    if hasattr(table, "close"):
        table.close()


def _untimed(text: str, found: Samples) -> str | None:
    """The line without the time before it, which becomes that of the lines to come; None where it held nothing else."""
    first = text[0]
    if first in RULE or first.isalnum():
        head = None if first.isdigit() else AROUND.match(text)
        behind = head.end() if head else 0
        taken = read_time(text, behind)
        if taken is not None and taken[0] is not None and not taken[0].boot:
            alone = ALONE.match(text, taken[1])
            if alone or text[taken[1] : taken[1] + 1] in ("]", ",", " ", "\t"):
                stamp = taken[0]
                if alone and alone["half"] and alone["half"].upper() == "PM" and stamp.ns // (3600 * SECOND) % 24 < 12:
                    stamp = stamp._replace(ns=stamp.ns + 12 * 3600 * SECOND)
                _set(stamp, found)
                return None if alone else text[taken[1] + 1 :].lstrip()
        if len(text) < EPOCH_CUT and (match := EPOCH.match(text)) and (stamp := epoch(match[1])):
            _set(stamp, found)
            return None
    return text


def _set(stamp: Stamp, found: Samples) -> None:
    found.stamp = stamp
    found.zoned = stamp.has_zone and (found.zoned or not found.timed)
    found.timed = True


def _context(text: str, found: Samples) -> bool:
    """A line that says which command's output follows, or of which host."""
    if match := LINUX.match(text):
        found.host = match["host"]
        day = match["day"]
        found.day = read_time(f"{day} 00:00:00")[0] if read_time(f"{day} 00:00:00") else None
        return True
    if match := COMMAND.match(text):
        found.command = match["command"]
        return True
    if match := HOST_LINE.match(text):
        found.host = match["host"]
        return True
    return False


def prepare(found: Samples) -> None:
    """Start with the time that the file's name states, if any."""
    found.stamp = moment_of(found.name)
    if found.stamp is not None:
        found.zoned = found.stamp.has_zone
