"""JSON of any layout as a stream: lines, one document, an array, objects one behind the other, whole or cut off.

No more than one element is held at a time. What does not fit the window, or is cut or damaged, is entered: the arrays in it are walked
element by element, so that of a broken document only the broken element is lost.

>>> text = '{"data": [{"traceID": "a", "spans": [{"spanID": "1"}, {"spanID": "2"}, {"spanID": '
>>> walker = Walker(lambda size: "", text, ("data", "spans"))
>>> [(key, value) for _, key, value in walker]
[('spans', {'spanID': '1'}), ('spans', {'spanID': '2'})]
>>> walker.damaged, walker.context()
(1, {'traceID': 'a'})
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from rca.ingest.sources import Source
from rca.ingest.streams import open_range, open_stream

CHUNK_BYTES = 1 << 20
LINE_MAX = 64 << 20  # bytes of one line that is parsed as a whole
LINE_CUT = 16 << 10  # characters of a line that is no JSON
WINDOW = 4 << 20  # characters; a larger element is entered
DEPTH_MAX = 24
SPACE = re.compile(r"[\s,\ufeff\x00]*")
KEY = re.compile(r'\s*,?\s*"((?:[^"\\]|\\.){0,200})"\s*:\s*')
AGAIN = re.compile(r"(?:\n|,)[ \t]{0,80}(?=\{)")
DECODER = json.JSONDecoder(parse_float=str)  # a time must never be a float


def lines(source: Source, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes | None]]:
    """`(offset, line)` of every line that begins in the range, without its newline; None for one too long to be kept."""
    stream = open_stream(source) if end is None else open_range(source, max(0, start - 1), source.extent)
    buffer = memoryview(bytearray(CHUNK_BYTES))
    carry, at, endless = b"", max(0, start - 1) if end is not None else 0, False
    skip = start > 0 and end is not None  # the first line belongs to the range before, unless a newline ends just there
    try:
        while count := stream.readinto(buffer):
            begun = stream.position - count
            if begun != at + len(carry):  # a hole lies between
                carry, at = b"", begun
            data = carry + bytes(buffer[:count])
            parts = data.split(b"\n")
            carry = parts.pop()
            if not (skip or endless) and (end is None or at + len(data) < end):  # nearly always
                for line in parts:
                    yield at, line
                    at += len(line) + 1
                parts = []
            for line in parts:
                if end is not None and at >= end and not skip:
                    return
                if endless:
                    endless = False
                    yield at, None
                elif not skip:
                    yield at, line
                skip = False
                at += len(line) + 1
            if len(carry) > LINE_MAX:
                at, carry, endless = at + len(carry), b"", True
        if endless:
            yield at, None
        elif carry and not skip and (end is None or at < end):
            yield at, carry
    finally:
        stream.close()


def text_of(source: Source) -> Callable[[int], str]:
    """A function that gives the next so many bytes as text; bytes that are no text survive as surrogates, so that offsets stay true."""
    import codecs

    stream = open_stream(source)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def more(size: int) -> str:
        view = memoryview(bytearray(size))
        count = stream.readinto(view)
        text = decoder.decode(bytes(view[:count]), final=count == 0)
        if count == 0:
            stream.close()
        return text

    return more


class Walker:
    """Gives `(offset, key, value)` for each element: the objects of arrays named by `inside`, those of a top-level array, and objects at the top.

    `key` names the array that an element stands in, None at the top. `damaged` counts what could not be parsed.
    """

    def __init__(self, more: Callable[[int], str], text: str = "", inside: tuple[str, ...] = (), other: Callable[[int, str], None] | None = None) -> None:
        self._more, self._text, self._inside, self._other = more, text, frozenset(inside), other
        self._at = 0  # in the text
        self._known = (0, 0)  # (place in the text, its byte offset in the source)
        self._ended = False
        self.damaged = 0
        self._stack: list[tuple[str, str | None, dict[str, Any]]] = []  # ("[" or "{", key, members seen)

    def context(self) -> dict[str, Any]:
        """The members, other than walked arrays, of the objects that were entered so far; inner ones come before outer ones."""
        found: dict[str, Any] = {}
        for _, _, members in self._stack:
            found |= members
        return found or self._last

    _last: dict[str, Any] = {}

    def __iter__(self) -> Iterator[tuple[int, str | None, Any]]:
        while True:
            self._trim()
            match = SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at >= len(self._text):
                if self._read():
                    continue
                return
            top = self._stack[-1] if self._stack else None
            if top and top[0] == "{":
                yield from self._member(top)
                continue
            char = self._text[self._at]
            if char == "[":
                self._enter("[", top[1] if top else None)
            elif char in "]}":
                self._at += 1
                if self._stack:
                    self._leave()
            elif char == "{":
                yield from self._element(top[1] if top else None)
            elif top is None:
                self._skip_line()
            elif self._value() is None:
                self._resync(self._at + 1)

    def _member(self, top: tuple[str, str | None, dict[str, Any]]) -> Iterator[tuple[int, str | None, Any]]:
        """One member of an object that was entered."""
        if self._text[self._at] == "}":
            self._at += 1
            self._leave()
            return
        match = KEY.match(self._text, self._at)
        while (match is None or match.end() >= len(self._text)) and len(self._text) - self._at < WINDOW and self._read():
            match = KEY.match(self._text, self._at)
        if match is None or match.end() >= len(self._text):
            self._leave()
            self._resync(self._at + 1)
            return
        key = match[1]
        self._at = match.end()
        if self._text[self._at] == "[" and key in self._inside:
            self._enter("[", key)
            return
        began = self._at
        found = self._value()
        if found is not None:
            if len(top[2]) < 64:
                top[2][key] = found[0]
        elif self._text[began : began + 1] in ("{", "["):
            self._at = began
            self._enter(self._text[began], key)
        else:
            self._leave()
            self._resync(began)
        yield from ()

    def _element(self, key: str | None) -> Iterator[tuple[int, str | None, Any]]:
        began = self._at
        offset = self._byte(began)
        found = self._value()
        if found is not None:
            yield offset, key, found[0]
        else:  # too large, cut or damaged: what stands in its arrays may still be whole
            self._enter("{", key)

    def _value(self) -> tuple[Any] | None:
        """The value here, in a tuple; None where it is damaged or larger than the window."""
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                near = error.pos >= len(self._text) - 64 or error.msg.startswith("Unterminated string")
                if near and len(self._text) - self._at < WINDOW and self._read():
                    continue
                return None
            except (ValueError, RecursionError):  # a number of thousands of digits, or nothing but brackets
                return None
            if end >= len(self._text) and isinstance(value, int | str) and not isinstance(value, bool) and self._read():
                continue  # a number may go on
            self._at = end
            return (value,)

    def _enter(self, what: str, key: str | None) -> None:
        if len(self._stack) >= DEPTH_MAX:
            self._resync(self._at + 1)
            return
        self._stack.append((what, key, {}))
        self._at += 1

    def _leave(self) -> None:
        _, _, members = self._stack.pop()
        if not self._stack and members:
            self._last = members  # those of an object stay known behind its end

    def _skip_line(self) -> None:
        """Text between objects is somebody else's: `other` is told of it."""
        end = self._text.find("\n", self._at)
        if end < 0 and len(self._text) - self._at < WINDOW and self._read():
            end = self._text.find("\n", self._at)
        while end < 0 and self._read(keep=False):
            end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        if self._other is not None:
            self._other(self._byte(self._at), self._text[self._at : min(end, self._at + LINE_CUT)])
        self._at = min(end + 1, len(self._text))

    def _resync(self, start: int) -> None:
        """Go on at the next object behind a damaged place."""
        self.damaged += 1
        match = AGAIN.search(self._text, start)
        while match is None and self._read(keep=False):
            match = AGAIN.search(self._text, self._at)
        self._at = len(self._text) if match is None else match.end()

    def _read(self, keep: bool = True) -> bool:
        """Make the text longer; without `keep`, what was read before is given up."""
        if self._ended:
            return False
        if not keep:
            self._at = max(self._at, len(self._text) - 100)
            self._trim(0)
        fresh = self._more(max(CHUNK_BYTES, len(self._text)) if keep else CHUNK_BYTES)
        if not fresh:
            self._ended = True
            return False
        self._text += fresh
        return True

    def _trim(self, least: int = CHUNK_BYTES) -> None:
        """Give up what was walked."""
        if self._at > least:
            self._known = (0, self._byte(self._at))
            self._text, self._at = self._text[self._at :], 0

    def _byte(self, at: int) -> int:
        """The byte offset of a place in the text; places are asked for in ascending order."""
        before, offset = self._known
        piece = self._text[before:at]
        self._known = (at, offset + (len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogateescape"))))
        return self._known[1]
