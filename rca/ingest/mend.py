r"""Text as it was before somebody copied it: characters cleaned, labels taken off, wrapped lines joined.

A log that lies where its program wrote it passes untouched and costs one look at its bytes. Every mended line keeps the number, the
offset and the raw text of the physical line where it begins, so that what is cited stands where the report says.

>>> text = b"> x: CUDA error: an illegal memory\n> access was encountered\n> b\n> c"
>>> spans = lambda data: [(data.index(b"illegal memory access"), data.index(b"illegal memory access") + 21)] if b"illegal memory access" in data else []
>>> [(m.number, m.raw, m.text) for m in Mender(text).mend(text, 1, 0, spans)][:2]
[(1, '> x: CUDA error: an illegal memory', 'x: CUDA error: an illegal memory access was encountered'), (3, '> b', 'b')]
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from rca.ingest.clean import clean, dirty
from rca.ingest.formats import Wrap
from rca.ingest.line import parse
from rca.ingest.margin import margin

FRAGMENT_BYTES = 64 << 10  # wrapped lines are looked for in texts up to this size: what somebody pasted
HEAD_BYTES = 32 << 10
LINE_CUT = 64 << 10
NARROWEST, WIDEST = 60, 260  # columns of terminals
USUAL = (80, 100, 120, 132, 160, 200)  # where two such lines and one cut word are enough
FULL_LINES = 3  # lines of exactly the greatest width that show a terminal's edge
ALIKE = 6  # first characters that rows of a table have in common
CUT_WORDS = 2  # words cut in two there
SHORTEST_SPAN = 12  # bytes of a phrase that a seam may cut; a shorter one may come about by chance
JOINED_MAX = 12  # physical lines of one
#: What begins a line of its own.
STARTS = re.compile(
    r'\s*(?:File "|Traceback|During handling of|The above exception|frame #\d|at |#\d|[-*=~^+|]{2,}|[-*•]\s|[\]}]|@\s|Exception raised from|what\(\):'
    r"|[A-Za-z_][\w.]{0,80}(?:Error|Exception|Warning|Interrupt|Exit)(?::|$)|\[?(?:INFO|WARN|ERROR|DEBUG|CRITICAL|FATAL)|\d+[:.)|%])"
)


class Mended(NamedTuple):
    """One logical line and the physical line where it begins."""

    number: int | None
    offset: int
    raw: str
    text: str
    wrap: Wrap | None


class Mender:
    """What was done to one file, told from its first lines."""

    def __init__(self, head: bytes) -> None:
        self._head, self._soiled = head, dirty(head)
        self.next_number: int | None = None  # of the line behind those that were mended last
        lines = head[:HEAD_BYTES].decode("utf-8", "replace").split("\n")
        lines = lines[:-1] if len(head) > HEAD_BYTES else lines
        self.margin = margin(map(clean, lines) if self._soiled else lines)

    def mend(self, data: bytes, number: int | None, offset: int, spans: Callable[[bytes], list[tuple[int, int]]]) -> list[Mended] | None:
        """The logical lines of `data`, which begins at a line; None where they are the physical ones.

        `spans` gives the `(start, end)` of the known phrases in some bytes.
        """
        soiled = self._soiled if data is self._head else dirty(data)
        fragment = len(data) <= FRAGMENT_BYTES
        if self.margin is None and not soiled and not (fragment and _maybe_wrapped(data, spans)):
            return None
        mended = []
        rows = data.split(b"\n")
        for raw in rows if rows[-1] else rows[:-1]:
            text = written = raw[:LINE_CUT].decode("utf-8", "replace")
            wrap = None
            if soiled:
                text = clean(text)
            if self.margin is not None:
                text, wrap = self.margin.peel(text)
            mended.append(Mended(number, offset, written, text, wrap))
            offset += len(raw) + 1
            number = number + 1 if number is not None else None
        self.next_number = number
        if fragment:
            seams = _seams(mended, spans)
            joints = dict.fromkeys(_edges(mended, seams), "") | seams
            if joints:
                return _joined(mended, joints)
        return mended if soiled or self.margin is not None else None


def _maybe_wrapped(data: bytes, spans: Callable[[bytes], list[tuple[int, int]]]) -> bool:
    """Whether it is worth a closer look: the same two tests as below, on bytes alone."""
    lines = data.split(b"\n")
    if len(lines) < 2:
        return False
    lengths = [len(line) for line in lines]
    edge = max(lengths)
    if edge >= NARROWEST and lengths.count(edge) >= CUT_WORDS:  # characters may be fewer than bytes
        return True
    return any(_crossing([line.strip() for line in lines], glue, spans) for glue in (b" ", b""))


def _crossing(parts: list[bytes], glue: bytes, spans: Callable[[bytes], list[tuple[int, int]]]) -> list[range]:
    """The parts that hold the rest of a known phrase which begins in the part before them."""
    starts = list(accumulate((len(part) + len(glue) for part in parts), initial=0))
    found = []
    for start, end in spans(glue.join(parts)):
        if end - start >= SHORTEST_SPAN:
            first, last = bisect_right(starts, start), bisect_left(starts, end)
            if 0 < last - first <= 2:
                found.append(range(first, last))
    return found


def _seams(lines: list[Mended], spans: Callable[[bytes], list[tuple[int, int]]]) -> dict[int, str]:
    """Numbers of lines that go on the line before, because a known phrase runs from one into the other, and what was between them."""
    parts = [line.text.strip().encode("utf-8", "replace") for line in lines]
    found: dict[int, str] = {}
    for glue in (b" ", b""):
        for numbers in _crossing(parts, glue, spans):
            if all(_goes_on(lines, n) for n in numbers):
                found |= {n: found.get(n, glue.decode()) for n in numbers}
    return found


def _edges(lines: list[Mended], seams: dict[int, str]) -> set[int]:
    """Numbers of lines that go on the line before, because that ends at the edge of a terminal.

    A program's own lines end anywhere, those of a table all at one column. Where several have the greatest width, none a greater one, words
    are cut in two there, and no line behind begins anything of its own, the width is that of a screen. A phrase that is cut in two there
    says so alone.
    """
    widths = Counter(width for line in lines if (width := len(line.text)) >= NARROWEST)
    if not widths or (edge := max(widths)) > WIDEST:
        return set()
    proven = any(glue == "" and len(lines[n - 1].text) == edge for n, glue in seams.items())
    fewest, cuts = (2, 1) if edge in USUAL else (FULL_LINES, CUT_WORDS)
    if widths[edge] < fewest and not proven:
        return set()
    behind = [n + 1 for n, line in enumerate(lines[:-1]) if len(line.text) == edge]
    cut = sum((pair := lines[n - 1].text[-1:] + lines[n].text[:1]).isalnum() and not pair.isdecimal() for n in behind)
    if cut < max(cuts, len(behind) / 4) and not proven:
        return set()
    goes_on = {n for n in behind if _goes_on(lines, n) and lines[n].text[:ALIKE] not in ("", lines[n - 1].text[:ALIKE]) and lines[n].text[:2] != "  "}
    return goes_on if proven or len(goes_on) >= max(fewest, 0.8 * len(behind)) else set()


def _goes_on(lines: list[Mended], number: int) -> bool:
    """Whether this line may be the rest of the one before: it begins nothing, and both are the same writer's."""
    line, before = lines[number], lines[number - 1]
    if not line.text.strip() or not before.text.strip() or STARTS.match(line.text) or line.wrap != before.wrap:
        return False
    read = parse(line.text)
    return not read.prefixed and read.rank is None and not read.stream


def _joined(lines: list[Mended], joints: dict[int, str]) -> list[Mended]:
    """The lines with each of `joints` appended to its forerunner: at a terminal's edge as it stands, else with one blank."""
    out: list[Mended] = []
    count = 0
    for number, line in enumerate(lines):
        if number in joints and out and count < JOINED_MAX:
            last, glue = out[-1], joints[number]
            text = last.text + line.text if not glue else f"{last.text.rstrip()}{glue}{line.text.lstrip()}"
            out[-1] = last._replace(text=text)
            count += 1
        else:
            out.append(line)
            count = 1
    return out
