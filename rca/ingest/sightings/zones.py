"""The local zone that a file states with its times: `2026-06-05T21:33:07+0800`."""

from __future__ import annotations

import re
from typing import Any

HEAD_BYTES = 4096
STATED = re.compile(rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})? ?([+-])(\d\d):?([0-5]\d)(?![\d:])")
HOURS_MAX = 14

Sighting = tuple[str, dict[str, Any]]


def read(head: bytes) -> list[Sighting]:
    """The offset from UTC in minutes, where all times of a file's beginning state the same one, and it is not zero.

    >>> read(b"Start: 2026-06-05T21:33:07+0800"), read(b"12:00:00.5 -03:30 x"), read(b"2026-06-05T21:33:07+00:00"), read(b"1:02:03+0800 4:05:06+0900"), read(b"10:11:12-2026")
    ([('zone', {'minutes': 480})], [('zone', {'minutes': -210})], [], [], [])
    """
    found = {(-1 if sign == b"-" else 1) * (int(hours) * 60 + int(minutes)) for sign, hours, minutes in STATED.findall(head, 0, HEAD_BYTES)}
    if len(found) != 1:
        return []
    offset = found.pop()
    return [("zone", {"minutes": offset})] if offset and abs(offset) <= HOURS_MAX * 60 and offset % 15 == 0 else []
