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
from typing import Any, NamedTuple

from rca.ingest.blocks import remote

IGNORED = "Exception ignored in"  # what follows is a destructor's traceback, printed and forgotten
IN_THREAD = "Exception in thread "  # the heading of the next one
#: Also somebody's next command in a pasted terminal, and what Hydra prints about its command line.
NOT_MESSAGE = (IGNORED, IN_THREAD, "$ ", "Error executing job with overrides", "Set the environment variable HYDRA_FULL_ERROR")
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
OPENS = "Traceback (most recent call last)"  # rich and IPython print no colon
#: A frame whose traceback lost its head; faulthandler's frames, which have no second comma, are another block's.
HEADLESS = re.compile(r'\s*(?:\|\s*)?File "[^"]{1,400}", line \d{1,7}, in \S')
#: Frames of rich, inside its box, and of IPython in its generations.
RICH_FRAME = re.compile(r"(\S.{0,300}?):(\d{1,7}) in (\S.{0,200})")
NOTEBOOK_FRAME = re.compile(r"(?:File )?([~/<][^\s:]{0,300}|[A-Za-z]:\\[^:]{1,300}):(\d{1,7}), in ([^\s(]{1,200})|([~/<]\S{1,300}) in ([^\s(]{1,200})\(|Cell In ?\[\d{1,6}\], line (\d{1,7})")
NOTEBOOK_CODE = re.compile(r"-{1,6}> ?\d{1,7}\b")
BOX = "\u2502\u2503\u256d\u256e\u256f\u2570\u250f\u2513\u2517\u251b\u2500\u2501"
#: Between the members of an exception group; the end of a quotation; how Ray names what a remote task raised.
RULE = re.compile(r"[|\s]{0,40}\+-[-+]{2,}")
FENCE = re.compile(r"```|</?(?:pre|code|details|summary|div)\b", re.I)
WRAPPED = re.compile(r"[\w.]{1,120}(?:Error|Exception)\(\w{1,80}\): ")
FUSED = re.compile(r"((?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}?(?:Error|Exception|Interrupt))\1{1,7}")
FRAME = re.compile(r'^\s*(?:\|\s*)?File "([^"]*)", line (\d+|\?\?\?)(?:,? in (.+))?$')
RAISED = re.compile(r"^(?:[|+\s-]*)([A-Za-z_][\w.]*)(?:: ?(.*))?$")
EXCEPTION_NAME = re.compile(r"(?:Error|Exception(?:Group)?|Exit|Interrupt|Iteration|Warning|Fault|Failure|Timeout|Died|Abort|Cancelled|Killed)\b")


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


def _drawn(bare: str) -> Frame | None:
    """A frame in rich's box or in a notebook.

    >>> _drawn("\u2502 /app/t.py:12 in main      \u2502"), _drawn("File ~/t.py:7, in fit(x)"), _drawn("<ipython-input-3> in <module>()")
    (Frame(file='/app/t.py', line=12, function='main'), Frame(file='~/t.py', line=7, function='fit'), Frame(file='<ipython-input-3>', line=0, function='<module>'))
    """
    inner = bare.strip(BOX + " ")
    if bare[0] in BOX:
        match = RICH_FRAME.fullmatch(inner) if not inner[:1].isdecimal() else None
        return Frame(match[1], int(match[2]), match[3]) if match else None
    if match := NOTEBOOK_FRAME.match(bare):
        file, line, function, older, name, cell = match.groups()
        return Frame(file or older or "<cell>", int(line or cell or 0), function or name or "<module>")
    return None


def unfused(name: str) -> str:
    """The name of an exception that several processes wrote into one another.

    >>> unfused("RuntimeErrorRuntimeError"), unfused("ValueError")
    ('RuntimeError', 'ValueError')
    """
    match = FUSED.fullmatch(name)
    return match[1] if match else name


def _named(name: str) -> bool:
    """Whether a word before a colon may be an exception: `srun` and `step` are not, `socket.timeout` is."""
    return not name.islower() or "." in name


class Traceback:
    """Collects one traceback with its chain, line by line."""

    def __init__(self, stamp: Any = None) -> None:
        self.stamp = stamp  # the time when it began; other writers of a shared console may have gone on before it ends
        self.remote: dict[str, Any] = {}  # the process that raised it, where a driver only reports
        self._starts = 0
        self._notebook = False
        self._announced: str | None = None  # a notebook names the exception above its frames already
        self.raised: list[Raised] = []
        self.frames: list[Frame] = []
        self.position = 0
        self._type: str | None = None
        self._message: list[str] = []
        self._at = 0
        self._worker = False
        self._blank = False
        self._quiet = 0

    def feed(self, text: str, *, prefixed: bool, known: bool = False) -> bool:
        """Take one line; False means that the line is not part of this block.

        `known` says that a signature may speak of it: what stands between frames and is no part of them is then left to that.
        """
        bare = text.strip()
        if not bare:
            self._blank = True
            self.position += 1
            return True
        if OPENS in text:
            worker = "Original" in text
            if not worker and self._type is not None and not (self._chained or self._grouped(bare)):
                return False
            self._close()
            self._starts += 1
            if named := RAISED.match(text.partition(OPENS)[0].strip()):
                self._notebook, self._announced = True, named[1]
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
        if prefixed or FENCE.match(bare):
            return False
        if RULE.match(bare):
            self.position += 1
            return True
        if self._type is None and (bare[0] in BOX or self._notebook):
            if (found := _drawn(bare)) is not None:
                self.frames.append(found)
                self._quiet = 0
                self.position += 1
                return True
            if bare[0] in BOX or NOTEBOOK_CODE.match(bare):
                self.position += 1
                return True
        frame = FRAME.match(text)
        if frame and (self._type is None or not self._blank):
            if self._type is not None:  # a frame inside a message (ExceptionWrapper text without a heading)
                self._close()
            line = int(frame[2]) if frame[2].isdecimal() else 0
            self.frames.append(Frame(frame[1], line, frame[3] or ""))
            self._quiet = 0
            self.position += 1
            return True
        if self._type is None:
            indented = text[:1] in " \t|+"
            if (who := remote.heading(bare)) is not None or (not indented and WRAPPED.match(bare)):
                self.remote = who or self.remote
                self._quiet = 0
                self.position += 1
                return True
            raised = RAISED.match(text)
            if raised and (_named(raised[1]) if not indented else EXCEPTION_NAME.search(raised[1]) and self.frames):
                self._raise(raised)
                return True
            self._quiet += not indented
            self.position += 1
            # Code and marker lines stand between frames; something else altogether means that the rest was cut off.
            return indented or (self._quiet <= 2 and not known)
        if (self._blank and not self._chained) or bare.startswith(NOT_MESSAGE):
            return False
        if self._starts > 1 and (raised := RAISED.match(text)) and raised[1] == self._type:
            self._close()  # tracebacks of two processes, line by line into one another
            self._raise(raised)
            return True
        if bare != '"""':  # around the traceback of another process
            self._message.append(text)
        self.position += 1
        return len(self._message) <= MESSAGE_LINES

    _chained = False

    def _raise(self, match: re.Match[str]) -> None:
        name, message = unfused(match[1]), match[2] or ""
        self._type, self._message, self._at = name, [message if name == match[1] else message.lstrip(": ")], self.position
        self._blank = False
        self.position += 1

    def _grouped(self, bare: str) -> bool:
        """Whether a further heading belongs to the exception group above it."""
        return bare[:1] in "|+" and (str(self._type).endswith("ExceptionGroup") or any(r.type.endswith("ExceptionGroup") for r in self.raised))

    def _close(self) -> None:
        if self._type is not None:
            message = "\n".join(self._message).strip()
            self.raised.append(Raised(self._type, message, tuple(self.frames), self._at, self._worker))
        self._type, self._message, self.frames, self._blank = None, [], [], False

    @property
    def headed(self) -> bool:
        """Whether it began with a heading of its own."""
        return self._starts > 0 or bool(self.remote)

    @property
    def breaks_off(self) -> bool:
        """Whether nothing but frames and their code came since the heading: whatever else comes may belong to somebody else."""
        return self._quiet == 0

    @property
    def ended(self) -> bool:
        """Whether the line that names the exception was seen."""
        return self._type is not None

    def finish(self) -> list[Raised]:
        """The exceptions of the chain, oldest first; empty when the block was cut before its last line."""
        self._close()
        if not self.raised and self._announced:
            self.raised.append(Raised(self._announced, "", tuple(self.frames), 0, False))
        return sorted(self.raised, key=lambda raised: raised.type.endswith("ExceptionGroup"))  # a group is raised of what is in it
