"""What a program counts whose words nobody knows: lines of one shape that come again and again, with one whole number that grows evenly.

>>> rhythm = Rhythm()
>>> [rhythm.beat(f"mole 3/8 | seq {n} | nll {value} | 1.8s") for n, value in ((9000, 2.9), (9001, 2.8), (9002, 2.7), (9003, "inf"))]
[None, None, 9002, None]
>>> [rhythm.beat(f"gpu 3: {t} C, 99.0 W") for t in (61, 60, 62, 61)]
[None, None, None, None]
"""

from __future__ import annotations

import re

LONGEST = 300  # characters; what counts steps prints short lines
MOST_SHAPES = 32  # per stream; a program has a few kinds of lines that come again
MEASURED = re.compile(r"\d\.\d")
NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


class Rhythm:
    """The shapes of one stream's lines, each with its whole numbers and by how much they grew."""

    __slots__ = ("shapes",)

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[list[int | None], list[int]]] = {}

    def beat(self, text: str) -> int | None:
        """The count that this line states, or None; only lines that also measure something are looked at.

        A number counts when it grew by the same positive amount twice in a row.
        """
        if len(text) > LONGEST or not MEASURED.search(text):
            return None
        parts = NUMBER.split(text)  # words and numbers by turns
        shape = "#".join(parts[::2])
        numbers = [int(n) if n.isdecimal() and len(n) < 12 else None for n in parts[1::2]]
        last = self.shapes.get(shape)
        if last is None:
            if len(self.shapes) < MOST_SHAPES:
                self.shapes[shape] = (numbers, [])
            return None
        grown = [b - a if a is not None and b is not None else 0 for a, b in zip(last[0], numbers, strict=True)]
        self.shapes[shape] = (numbers, grown)
        even = [n for n, now, before in zip(numbers, grown, last[1], strict=False) if now > 0 and now == before]
        return even[0] if even else None
