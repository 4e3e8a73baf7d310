"""Put a report where it belongs: all of it on standard output, or a file that is whole or not there."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: For an output that is not UTF-8: what the renderers draw with, in ASCII.
PLAIN = {"│": "|", "…": "~", "→": ">", "±": "~", "⟨": "<", "⟩": ">", "\u2060": ""}


class CannotWrite(Exception):
    """The report exists and its destination refused it: a full disk, a closed output."""


def to_stdout(text: str) -> None:
    """Write data to standard output; a reader who has seen enough (`| head`) is no error."""
    stream = sys.stdout
    if stream is None:
        raise CannotWrite("standard output is closed")
    encoding = stream.encoding or "utf-8"
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        data = text.translate(str.maketrans(PLAIN)).encode(encoding, "backslashreplace")
    try:
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or Python complains again when it flushes at exit
    except (OSError, ValueError) as error:
        _forget(stream)
        raise CannotWrite(f"cannot write to standard output: {_reason(error)}") from error


def check(path: Path) -> None:
    """Raise RcaError before the long work where the report will have no place."""
    from rca.errors import RcaError

    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise RcaError(f"the output is a folder: `{path}`")
    if not os.path.isdir(folder):
        raise RcaError(f"no such folder for the output: `{folder}`")
    if not os.access(path if _is_special(path) else folder, os.W_OK):
        raise RcaError(f"the output cannot be written: `{path}`", hint="choose another place with `-o FILE`")


def to_file(path: Path, text: str) -> None:
    """Write a file whole or not at all: a temporary file beside it, fsync, rename. Links are followed; a device or pipe is written to.

    Raises CannotWrite, and then the old file still stands.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        if _is_special(path):
            with open(path, "wb") as file:
                file.write(data)
        else:
            _exchange(os.path.realpath(path), data)
    except OSError as error:
        raise CannotWrite(f"cannot write `{path}`: {_reason(error)}") from error


def _exchange(target: str, data: bytes) -> None:
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:40]}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb") as file:
            if os.path.exists(target):
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(target).st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # the name too survives a power cut
    finally:
        os.close(handle)


def _is_special(path: str | Path) -> bool:
    """Whether this is a device, pipe or socket: what must never be replaced by a file."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _forget(stream: object) -> None:
    """Point a broken standard output at nothing, so that Python's flush at exit does not fail a second time."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[attr-defined]
    except (OSError, ValueError):
        return


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
