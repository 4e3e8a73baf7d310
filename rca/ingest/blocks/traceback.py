"""Python tracebacks: many lines, one event.

Feed peeled lines; `feed` says whether the line still belongs to the block. Chained exceptions, `Original Traceback` of a
DataLoader worker, messages of several lines and exception groups all end in one `Raised` list, oldest first.

>>> block = Traceback()
>>> for text in SAMPLE.splitlines():
...     _ = block.feed(text, prefixed=False)
>>> [(r.type, r.message) for r in block.finish()]
[('KeyError', "'lr'"), ('RuntimeError', 'cannot build optimizer')]

Source: CPython's `traceback` module; PyTorch `torch/_utils.py` (ExceptionWrapper) for the DataLoader form.
"""

from __future__ import annotations

import re
from typing import NamedTuple

START = "Traceback (most recent call last):"
IGNORED = "Exception ignored in"  # what follows is a destructor's traceback, printed and forgotten
IN_THREAD = "Exception in thread "  # the heading of the next one
PROMPT = "$ "  # somebody's next command in a pasted terminal
CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
SAMPLE = """\
Traceback (most recent call last):
  File "train.py", line 3, in build
    lr = config["lr"]
KeyError: 'lr'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "train.py", line 9, in <module>
    build()
RuntimeError: cannot build optimizer"""

MESSAGE_LINES = 40  # a message longer than this is program output that follows, not a message
FRAME = re.compile(r'^\s*(?:\|\s*)?File "([^"]*)", line (\d+|\?\?\?)(?:,? in (.+))?$')
RAISED = re.compile(r"^(?:[|+\s-]*)([A-Za-z_][\w.]*)(?:: ?(.*))?$")
EXCEPTION_NAME = re.compile(r"(?:Error|Exception|Exit|Interrupt|Iteration|Warning|Fault|Failure|Timeout|Died|Abort|Cancelled|Killed)\b")


class Frame(NamedTuple):
    """One stack frame: file, line number (0 if unknown), function."""

    file: str
    line: int
    function: str


class Raised(NamedTuple):
    """One exception of a chain. `frames` are outermost first; `position` is the index of its line within the block."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    position: int
    worker: bool  # raised inside a DataLoader worker and re-raised here

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Traceback:
    """Collects one traceback with its chain, line by line."""

    def __init__(self) -> None:
        self.raised: list[Raised] = []
        self.frames: list[Frame] = []
        self.position = 0
        self._type: str | None = None
        self._message: list[str] = []
        self._at = 0
        self._worker = False
        self._blank = False
        self._quiet = 0

    def feed(self, text: str, *, prefixed: bool) -> bool:
        """Take one line; False means that the line is not part of this block."""
        bare = text.strip()
        if not bare:
            self._blank = True
            self.position += 1
            return True
        if START in text or "Original Traceback (most recent call last)" in text or "Exception Group Traceback" in text:
            worker = "Original" in text
            if not worker and self._type is not None and not self._chained:
                return False
            self._close()
            self._worker = self._worker or worker
            self._chained = False
            self.position += 1
            return True
        if bare.startswith(CHAIN):
            self._close()
            self._chained = True
            self._worker = False
            self.position += 1
            return True
        if prefixed:
            return False
        frame = FRAME.match(text)
        if frame and (self._type is None or not self._blank):
            if self._type is not None:  # a frame inside a message (ExceptionWrapper text without a heading)
                self._close()
            line = int(frame[2]) if frame[2].isdigit() else 0
            self.frames.append(Frame(frame[1], line, frame[3] or ""))
            self.position += 1
            return True
        if self._type is None:
            indented = text[:1] in " \t|+"
            raised = RAISED.match(text)
            if raised and (not indented or (EXCEPTION_NAME.search(raised[1]) and self.frames)):
                self._type, self._message, self._at = raised[1], [raised[2] or ""], self.position
                self._blank = False
                self.position += 1
                return True
            self._quiet += 1
            self.position += 1
            # Code and marker lines stand between frames; something else altogether means that the rest was cut off.
            return indented or self._quiet <= 2
        if (self._blank and not self._chained) or bare.startswith((IGNORED, PROMPT, IN_THREAD)):
            return False
        self._message.append(text)
        self.position += 1
        return len(self._message) <= MESSAGE_LINES

    _chained = False

    def _close(self) -> None:
        if self._type is not None:
            message = "\n".join(self._message).strip()
            self.raised.append(Raised(self._type, message, tuple(self.frames), self._at, self._worker))
        self._type, self._message, self.frames, self._blank = None, [], [], False

    @property
    def ended(self) -> bool:
        """Whether the line that names the exception was seen."""
        return self._type is not None

    def finish(self) -> list[Raised]:
        """The exceptions of the chain, oldest first; empty when the block was cut before its last line."""
        self._close()
        return self.raised
