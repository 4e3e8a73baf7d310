"""Set the clock of one host: move every time in the files that are written on it, in whatever form they state it.

What is written elsewhere (the scheduler, a metrics server, other hosts) and what counts from the start of the kernel stays as it is.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
CLOCK = r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?!\d)"
NAMED = re.compile(rf"(?P<w>Mon|Tue|Wed|Thu|Fri|Sat|Sun)? ?(?P<mon>{'|'.join(MONTHS)}) (?P<d>[ \d]\d) (?:(?P<y>\d{{4}}) )?{CLOCK}(?P<tail>\.\d+)?(?P<end> \d{{4}})?")
DATED = re.compile(rf"(?<!\d)(?P<y>20\d\d)(?P<sep>[-/]?)(?P<mo>\d\d)(?P=sep)(?P<d>\d\d)(?P<mid>[T _-]){CLOCK}")
SHORT = re.compile(rf"(?<![\d-])(?P<mo>\d\d)-(?P<d>\d\d) {CLOCK}")
US = re.compile(rf"(?<!\d)(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y>20\d\d) {CLOCK}")
GLOG = re.compile(rf"(?P<level>\b[IWEF])(?P<mo>\d\d)(?P<d>\d\d) {CLOCK}", re.M)
DAYLESS = re.compile(rf"(?m)^(?P<pre>\[?){CLOCK}(?P<post>[\].,]?\d{{0,6}}\]? )")
EPOCH = re.compile(r"(?<![\d.\w])(?P<n>1[6-9]\d{8})(?P<more>\d{3}|\d{6}|\d{9})?(?P<frac>\.\d+)?(?![\d\w])")


def shifted(text: str, seconds: float) -> str:
    """The text with all its times moved by whole `seconds`.

    >>> shifted("2026-11-20 11:59:50,216 x [Fri Nov 20 11:24:10 2026] E1120 11:24:10.123 y 1795176000.25", 20)
    '2026-11-20 12:00:10,216 x [Fri Nov 20 11:24:30 2026] E1120 11:24:30.123 y 1795176020.25'
    >>> shifted("(AReaL) 20260919-11:28:57.099 step 5, Nov 20 23:59:59 n1 kernel: x", 2)
    '(AReaL) 20260919-11:28:59.099 step 5, Nov 21 00:00:01 n1 kernel: x'
    """
    move = timedelta(seconds=seconds)

    def at(m: re.Match[str], year: int, month: int) -> datetime | None:
        try:
            return datetime(year, month, int(m["d"]), int(m["h"]), int(m["mi"]), int(m["s"]), tzinfo=UTC) + move
        except ValueError:
            return None

    def dated(m: re.Match[str]) -> str:
        t = at(m, int(m["y"]), int(m["mo"]))
        return f"{t:%Y}{m['sep']}{t:%m}{m['sep']}{t:%d}{m['mid']}{t:%H:%M:%S}" if t else m[0]

    def named(m: re.Match[str]) -> str:
        t = at(m, int(m["y"] or m["end"] or 2026), MONTHS.index(m["mon"]) + 1)
        if t is None:
            return m[0]
        day = f"{t.day:2d}" if m["d"][0] == " " or t.day > 9 else f"{t.day:02d}"
        lead = "" if m[0][:3] in MONTHS else (f"{t:%a} " if m["w"] else m[0][: m[0].index(m["mon"])])
        return f"{lead}{MONTHS[t.month - 1]} {day} {f'{t.year} ' if m['y'] else ''}{t:%H:%M:%S}{m['tail'] or ''}{f' {t.year}' if m['end'] else ''}"

    def short(m: re.Match[str]) -> str:
        t = at(m, 2026, int(m["mo"]))
        return f"{t:%m-%d %H:%M:%S}" if t else m[0]

    def us(m: re.Match[str]) -> str:
        t = at(m, int(m["y"]), int(m["mo"]))
        return f"{t:%m/%d/%Y %H:%M:%S}" if t else m[0]

    def glog(m: re.Match[str]) -> str:
        t = at(m, 2026, int(m["mo"]))
        return f"{m['level']}{t:%m%d %H:%M:%S}" if t else m[0]

    def dayless(m: re.Match[str]) -> str:
        t = datetime(2026, 6, 15, int(m["h"]) % 24, int(m["mi"]) % 60, int(m["s"]) % 60, tzinfo=UTC) + move
        return f"{m['pre']}{t:%H:%M:%S}{m['post']}"

    def epoch(m: re.Match[str]) -> str:
        return f"{int(m['n']) + int(seconds)}{m['more'] or ''}{m['frac'] or ''}"

    for pattern, change in ((DATED, dated), (NAMED, named), (SHORT, short), (US, us), (GLOG, glog), (DAYLESS, dayless), (EPOCH, epoch)):
        text = pattern.sub(change, text)
    return text


def set_clock(folder: Path, out: Path, files: Iterable[str], seconds: float) -> Path:
    """A copy of `folder` in `out` in which the clock that wrote `files` is ahead by whole `seconds`."""
    shutil.copytree(folder, out)
    for name in files:
        path = out / name
        if path.suffix not in (".gz", ".zst", ".xz"):
            path.write_text(shifted(path.read_text("utf-8", "surrogateescape"), seconds), "utf-8", "surrogateescape")
    return out


def files_of(report, host: str) -> list[str]:
    """The files of a report that were written on `host`."""
    return [r.source for r in report.run.readings if r.facts.get("host") == host]
