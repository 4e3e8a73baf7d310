"""Wall-clock text to integer nanoseconds, whatever form a logger, kernel or scheduler prints.

The form alone decides: the clock, the zone and the file dates of the analyzing machine never enter. What a line does not
state is marked instead of guessed: without a zone the wall clock is taken as if it were UTC, without a year the year is 1972
(a leap year, so that 29 February exists).

>>> for text in SAMPLE.splitlines():
...     stamp = of(text)
...     print(iso(stamp), stamp.error_ns, stamp.has_year, stamp.has_zone)
2026-11-20T11:32:10.216000000 500000 True False
2026-11-20T03:32:10.216000000 500000 True True
2026-11-20T11:49:29.471000000 500000 True False
2026-11-20T11:35:37.000000000 500000000 True False
2026-11-20T11:24:10.000000000 500000000 True False
2026-09-08T08:40:26.000000000 500000000 True True
1972-02-14T05:03:41.000000000 500000000 False False
1972-11-20T11:48:58.000000000 500000000 False False
2026-10-17T00:44:58.558000000 500000 True True

Source: formats/README.md "Time"; strftime(3); RFC 3339; RFC 5322 section 3.3; dmesg(1); glog and PyTorch `c10/util/Logging.cpp`.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache, partial
from typing import NamedTuple

SAMPLE = """\
2026-11-20 11:32:10,216
2026-11-20T11:32:10.216+0800
20261120-11:49:29.471
11/20/2026 11:35:37
Fri Nov 20 11:24:10 2026
Tue, 08 Sep 2026 08:40:26 +0000
Feb 14 05:03:41
11-20 11:48:58
1792197898.558"""

SECOND = 1_000_000_000
NO_YEAR = "1972"
EPOCH_DAY = date(1970, 1, 1).toordinal()
#: Factor from a fraction of n digits to nanoseconds, by n.
SCALE = tuple(10 ** (9 - digits) for digits in range(10))
#: Clock readings between 2001 and 2100 count as seconds since the epoch; outside they are something else.
FIRST_SECOND, LAST_SECOND = 1_000_000_000, 4_102_444_800

CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
ZONE = r"(?:Z\b|\ ?[+-]\d\d:?\d\d(?!\d)|\ (?:UTC|GMT)\b)"
MONTH_NAME = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
#: Source of a regex that takes any of the forms at the head of a line. It has no groups and begins at the first character.
PATTERN = (
    rf"(?:\d{{4}}[-/]\d\d[-/]\d\d(?:[T\ _]|,\ ){CLOCK}{ZONE}?"  # 2026-11-20 11:32:10,216
    rf"|\d{{8}}[-\ ]{CLOCK}"  # 20261120-11:49:29.471
    rf"|\d\d/\d\d/(?:\d{{4}}|\d\d)[,\ ]\ ?{CLOCK}"  # 11/20/2026 11:35:37, 11/20/26 11:35:37
    rf"|\d\d-\d\d\ {CLOCK}"  # 11-20 11:48:58
    rf"|{WEEKDAY}\ {MONTH_NAME}\ [\ \d]\d\ {CLOCK}(?:\ [A-Z]{{3,4}})?\ \d{{4}}"  # Fri Nov 20 11:24:10 2026
    rf"|{WEEKDAY},\ \d\d\ {MONTH_NAME}\ \d{{4}}\ {CLOCK}{ZONE}?"  # Tue, 08 Sep 2026 08:40:26 +0000
    rf"|{MONTH_NAME}\ [\ \d]\d(?:\ \d{{4}})?\ {CLOCK}"  # Feb 14 05:03:41, Jan 30 2026 11:58:43
    r"|1\d{9}\.\d{1,9}(?=[\]\s]|$)"  # 1794572388.284033
    rf"|{CLOCK}(?![\w:]))"  # 01:41:58: a time of an unknown day, see `of`
)
AT = re.compile(PATTERN, re.ASCII)
REST = re.compile(r"(?:[.,](\d{1,9}))?(?: ?(Z|UTC|GMT|[+-]\d\d:?\d\d))?", re.ASCII)
NAMED = re.compile(
    rf"(?:{WEEKDAY},? )?(?:(?P<day1>\d\d?) )?(?P<month>[^\W\d_]{{3,9}}|\d\d?月)\.? {{1,2}}(?:(?P<day2>\d\d?),? )?(?:(?P<year1>\d{{4}}) )?"
    r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?(?: (?P<name>[A-Z]{2,5}))?(?: ?(?P<zone>[+-]\d\d:?\d\d))?(?: (?P<year2>\d{4}))?",
)
#: The first letters of month names in syslog lines of other locales, beside English (formats/05-host-telemetry.md 5.1).
MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
    "mär": 3, "mai": 5, "okt": 10, "dez": 12, "fév": 2, "avr": 4, "aoû": 8, "déc": 12, "ene": 1, "abr": 4, "ago": 8, "dic": 12,
}  # fmt: skip


class Stamp(NamedTuple):
    """One reading of a clock.

    `ns` is UTC, or the stated wall clock as if it were UTC where `has_zone` is False; the year is 1972 where `has_year` is
    False. `error_ns` is half of the resolution. With `boot`, `ns` counts from the start of the kernel instead.
    """

    ns: int
    error_ns: int
    has_year: bool
    has_zone: bool
    boot: bool


#: A Stamp from one tuple, without the cost of the keyword-taking constructor.
make = partial(tuple.__new__, Stamp)


def of(text: str) -> Stamp | None:
    """The time that `text` is, from its first to its last character; None for anything else, and for a time without a day.

    >>> of("2026-02-30 11:00:00"), of("01:41:58"), of("step 12")
    (None, None, None)
    """
    try:
        mark = text[4:5]
        if mark == "-" or mark == "/":
            if text[10:12] == ", ":  # Airflow
                text = f"{text[:10]} {text[12:]}"
            return _rest(_second(text[:19]), text, 19, True)
        mark = text[2:3]
        if mark == "-":
            return _rest(_second(f"{NO_YEAR}-{text[:14]}"), text, 14, False)
        if mark == "/":
            return _slashes(text)
        if text[:1].isalpha() or "月" in text[:3]:
            return _named(text)
        if text[8:9] in "- " and text[11:12] == ":":
            return _rest(_second(f"{text[:4]}-{text[4:6]}-{text[6:8]} {text[9:17]}"), text, 17, True)
        return epoch(text) if "." in text[:14] else None
    except (ValueError, IndexError):
        return None


def read(text: str, start: int = 0) -> tuple[Stamp | None, int] | None:
    """The time that begins at `start` and the index behind it; None where no time begins.

    >>> read("[2026/11/20 11:24:10.123] x", 1)[1]
    24
    """
    match = AT.match(text, start)
    return (of(match[0]), match.end()) if match else None


def epoch(value: str | int | float) -> Stamp | None:
    """Seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by their size.

    >>> [epoch(v).ns for v in ("1792197898.558", 1792197898558, "1792197898558123", 1792197898558123456)]
    [1792197898558000000, 1792197898558000000, 1792197898558123000, 1792197898558123456]
    """
    text = repr(value) if isinstance(value, float) else str(value)
    whole, _, part = text.partition(".")
    if not text.isascii() or not whole.isdecimal() or len(whole) > 19 or not (part.isdecimal() or not part):
        return None
    power = (len(whole) - 10) // 3 * 3 if len(whole) >= 10 else 0
    if not FIRST_SECOND <= int(whole) // 10**power < LAST_SECOND:
        return None
    unit = 10 ** (9 - power)  # nanoseconds per unit of `whole`
    part = part[: 9 - power]
    ns = int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)
    return Stamp(ns, unit // 10 ** len(part) // 2, True, True, False)


def boot(seconds: str) -> Stamp | None:
    """Seconds since the kernel started, as dmesg prints them.

    >>> boot("  983.909497")
    Stamp(ns=983909497000, error_ns=500, has_year=False, has_zone=False, boot=True)
    """
    whole, _, part = seconds.strip().partition(".")
    if not (whole.isascii() and part.isascii() and whole.isdecimal() and len(whole) < 12 and (part.isdecimal() or not part) and len(part) <= 9):
        return None
    unit = SCALE[len(part)]
    return Stamp(int(whole) * SECOND + (int(part) * unit if part else 0), unit // 2, False, False, True)


def klog(monthday: str, clock: str) -> Stamp | None:
    """The time of a glog-like header. Month and day are padded (`0321`) or, in PyTorch's C++ lines, not (`321`).

    PyTorch's Python side prints milliseconds with three zeros behind them; the error says so.

    >>> iso(klog("321", "20:32:23.955028747")), iso(klog("0321", "20:57:27.620000"))
    ('1972-03-21T20:32:23.955028747', '1972-03-21T20:57:27.620000000')
    >>> klog("0321", "20:57:27.620000").error_ns
    500000
    """
    try:
        number = int(monthday)
        stamp = _rest(_second(f"{NO_YEAR}-{number // 100:02d}-{number % 100:02d} {clock[:8]}"), clock, 8, False)
    except ValueError:
        return None
    if stamp is not None and len(clock) == 15 and clock.endswith("000"):
        return stamp._replace(error_ns=500_000)
    return stamp


def iso(stamp: Stamp) -> str:
    """The time as text with nine digits, for messages and tests."""
    days, rest = divmod(stamp.ns, 86_400 * SECOND)
    seconds, part = divmod(rest, SECOND)
    day = date.fromordinal(EPOCH_DAY + days).isoformat()
    return f"{day}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{part:09d}"


@lru_cache(maxsize=1 << 14)
def _second(text: str) -> int:
    """Nanoseconds of `YYYY-MM-DD?HH:MM:SS`, which neighbouring lines share. Raises ValueError for what is no time."""
    digits = text[:4] + text[5:7] + text[8:10] + text[11:13] + text[14:16] + text[17:19]
    if not (len(digits) == 14 and digits.isascii() and digits.isdecimal() and text[13] == ":" == text[16]):
        raise ValueError(text)
    hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
    if hour > 23 or minute > 59 or second > 60:  # 60 is a leap second
        raise ValueError(text)
    day = date(int(text[:4]), int(text[5:7]), int(text[8:10])).toordinal() - EPOCH_DAY
    return (day * 86_400 + hour * 3600 + minute * 60 + second) * SECOND


def _rest(base: int, text: str, start: int, has_year: bool) -> Stamp | None:
    """Add what stands behind the seconds: a fraction, a zone, or nothing."""
    length = len(text) - start
    if length == 0:
        return make((base, 500_000_000, has_year, False, False))
    digits = text[start + 1 :]
    if length == 4 and digits.isdecimal() and text[start] in ".,":
        return make((base + int(digits) * 1_000_000, 500_000, has_year, False, False))
    match = REST.fullmatch(text, start)
    if match is None:
        return None
    part, zone = match.groups()
    unit = SCALE[len(part)] if part else SECOND
    ns = base + (int(part) * unit if part else 0)
    if zone is not None and zone[0] in "+-":
        offset = (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60) * SECOND
        ns += offset if zone[0] == "-" else -offset
    return Stamp(ns, unit // 2, has_year, zone is not None, False)


def _slashes(text: str) -> Stamp | None:
    """`MM/DD/YYYY`, `MM/DD/YY` of rich and, where only that is possible, `DD/MM/YYYY` and `YY/MM/DD` of Spark."""
    first, second = text[:2], text[3:5]
    if text[8:10].isdecimal():
        year, start = text[6:10], 10
    else:
        year, start = "20" + text[6:8], 8
        if int(first) > 12:
            first, second, year = second, text[6:8], "20" + first
    if int(first) > 12:
        first, second = second, first
    while text[start : start + 1] in (" ", ","):
        start += 1
    return _rest(_second(f"{year}-{first}-{second} {text[start : start + 8]}"), text, start + 8, True)


@lru_cache(maxsize=1 << 12)
def _named(text: str) -> Stamp | None:
    """Forms with the month as a word; kernel and syslog lines of one second share them."""
    match = NAMED.fullmatch(text)
    if match is None:
        return None
    day1, month, day2, year1, clock, part, name, zone, year2 = match.groups()
    number = int(month[:-1]) if month[-1] == "月" else MONTHS.get(month[:3].lower())
    year, day = year1 or year2, day1 or day2
    if number is None or day is None:
        return None
    base = _second(f"{year or NO_YEAR}-{number:02d}-{int(day):02d} {clock}")
    zone = zone or (name if name in ("UTC", "GMT") else None)
    tail = (f".{part}" if part else "") + (zone or "")
    return _rest(base, tail, 0, year is not None)


QUARTER_NS = 900 * 10**9
FARTHEST_NS = 14 * 3600 * 10**9
CARRIED_NS = 120 * 10**9  # between a line's own time and that of whoever carried it


def zoned(own: Stamp, carrier: Stamp) -> Stamp:
    """A line's own time with the zone that its carrier (a container's log, a journal) shows it to be of; the same where nothing can be told.

    >>> own, carrier = of("2026-06-05 21:36:32.911"), of("2026-06-05T13:36:32.911741495Z")
    >>> zoned(own, carrier).has_zone, zoned(own, carrier).ns == carrier.ns - 741495, zoned(of("2026-06-05 21:01:00"), carrier).has_zone
    (True, True, False)
    """
    if own.has_zone or not own.has_year or not (carrier.has_zone and carrier.has_year):
        return own
    apart = own.ns - carrier.ns
    zone = round(apart / QUARTER_NS) * QUARTER_NS
    if abs(apart - zone) > CARRIED_NS or abs(zone) > FARTHEST_NS:
        return own
    return own._replace(ns=own.ns - zone, has_zone=True)
