"""Times and other values as traces write them: never through a float, in the unit that their size tells.

>>> nanoseconds("1757250178000000000"), nanoseconds(1757250178000000), nanoseconds("1757250178.25"), nanoseconds("2026-09-07T13:02:58.000001Z")
(1757250178000000000, 1757250178000000000, 1757250178250000000, 1788786178000001000)
>>> nanoseconds("soon"), nanoseconds(None), nanoseconds(0), nanoseconds(True), nanoseconds([1])
(None, None, None, None, None)
>>> scaled("26000.5", 1000), scaled(12, 1000), scaled("1e3", 1), scaled("x", 1), scaled("9" * 99, 1)
(26000500, 12000, 1000, None, None)
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from rca.ingest import times

NUMBER = re.compile(r"(-?\d{1,30})(?:\.(\d{0,30}))?(?:[eE]([+-]?\d{1,3}))?")
#: A number of this size or more counts in the unit: 10^18 is the year 2001 in nanoseconds.
UNITS = ((10**17, 1), (10**14, 10**3), (10**11, 10**6), (10**8, 10**9))
LATEST_NS = 1 << 62
TEXT_MAX = 4_000


def scaled(value: Any, factor: int) -> int | None:
    """A number, or the text of one, times `factor`, as a whole number; None for what is no number or too large for a time."""
    if type(value) is int:
        found = value * factor
    elif type(value) is str and (match := NUMBER.fullmatch(value.strip()[:80])):
        if match[3] or match[2]:
            try:
                found = int(Decimal(match[0]) * factor)
            except (ArithmeticError, ValueError):
                return None
        else:
            found = int(match[1]) * factor
    elif type(value) is float and abs(value) < 1e18:  # a decoder that gives floats; below 2^53 nothing is lost
        found = int(Decimal(repr(value)) * factor) if value == value else 0
    else:
        return None
    return found if abs(found) < LATEST_NS else None


def nanoseconds(value: Any) -> int | None:
    """A point in time in nanoseconds, whatever unit or text it is written in; None for none."""
    if isinstance(value, str) and len(value) > 18 and value[4:5] == "-" and value[10:11] in "T ":
        return rfc3339(value)
    if isinstance(value, bool):
        return None
    found = scaled(value, 1)
    if found is None or found <= 0:
        return None
    for least, factor in UNITS:
        if found >= least:
            return scaled(value, factor)
    return None


def rfc3339(text: str) -> int | None:
    """The time of `2026-09-07T13:02:58.000000Z`; one without a zone is taken as UTC, as all exporters write it."""
    try:
        stamp = times.of(text[:40].replace("+00:00", "Z"))
    except ValueError:
        return None
    return stamp.ns if stamp is not None and stamp.has_year else None


def text_of(value: Any) -> str:
    """A value as a clean text: no lone surrogates, no more than is kept."""
    text = value if isinstance(value, str) else "" if value is None else str(value)[:TEXT_MAX]
    return text[:TEXT_MAX].encode("utf-8", "replace").decode("utf-8", "replace")


#: Kinds of spans by name and number.
KINDS = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
STATUS = {"UNSET": 0, "OK": 1, "ERROR": 2}


def kind_of(value: Any) -> int:
    """The kind of a span: a number, `SERVER`, `SPAN_KIND_SERVER`, `SpanKind.SERVER`; 0 for none.

    >>> [kind_of(v) for v in (2, "2", "SPAN_KIND_CLIENT", "SpanKind.INTERNAL", "server", None, [], 77)]
    [2, 2, 3, 1, 2, 0, 0, 0]
    """
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) == 1 else KINDS.get(value.upper().removeprefix("SPAN_KIND_").removeprefix("SPANKIND."), 0)
    return value if type(value) is int and 0 <= value <= 5 else 0


def status_of(value: Any) -> int:
    """A status code: 0 unset, 1 fine, 2 failed, by number or name."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) == 1 else STATUS.get(value.upper().removeprefix("STATUS_CODE_").removeprefix("STATUSCODE."), 0)
    return value if type(value) is int and 0 <= value <= 2 else 0
