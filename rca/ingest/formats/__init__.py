"""One file per log shape. A wrapper peels what a launcher put before somebody else's line; a grammar reads the line itself.

`wrapper.peel(text)` gives the rest of the line and a `Wrap`, or None; `grammar.read(text)` gives a `Line` or None. Neither raises, whatever the text.
`rca/ingest/line.py` says which is tried for which first character.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from rca.ingest.times import Stamp

HEAD = 300  # characters of a line in which a header, a stage or a step is looked for
LOCAL = 100  # characters within which one wrapper ends


class Line(NamedTuple):
    """One physical line with its header taken off. None means that the line did not say."""

    text: str  # the message
    stamp: Stamp | None = None
    level: str | None = None  # debug, info, warning, error, critical
    rank: int | None = None  # global, only where a header says so
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    actor: str | None = None  # the process by its role or name: controller, train-0, WorkerDict
    stage: str | None = None
    step: int | None = None
    stream: str = ""  # tells interleaved writers of one file apart
    shape: str = "plain"  # the grammar that read the line, else the innermost wrapper
    prefixed: bool = False  # had a header of its own (time or level); False for the lines that continue a message
    logger: str | None = None  # the logger's name, which need not be a process
    extra: dict[str, Any] | None = None  # `exc`: a traceback inside the line; `repeated`: Ray's count; `carrier`: a wrapper's Stamp


#: A Line from one tuple of all its fields, without the cost of the keyword-taking constructor: this is the hot path.
make = partial(tuple.__new__, Line)


def unpadded(rest: str) -> str:
    """What follows a prefix, without the blank that some launchers put behind theirs: tracebacks are indented by even numbers.

    >>> [unpadded(t) for t in (" x", "  File", "   File", "x")]
    ['x', '  File', '  File', 'x']
    """
    return rest[1:] if rest[:1] == " " and (len(rest) - len(rest.lstrip(" "))) % 2 else rest


class Wrap(NamedTuple):
    """What one wrapper told. Lines of one writer share it, so `peel` functions remember it."""

    shape: str
    stream: str = ""
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    actor: str | None = None
    stamp: Stamp | None = None
    extra: dict[str, Any] | None = None
