"""`-` as a path: what is pasted or piped in becomes a file named `stdin`, since a source is read in several places and more than once."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from rca.errors import RcaError

NAME = "stdin"


@contextmanager
def spooled(paths: list[str]) -> Iterator[list[str]]:
    """The paths, with a lone `-` replaced by a temporary file that holds standard input; it is removed at the end.

    Raises RcaError where `-` stands beside other paths, or standard input cannot be read.
    """
    if "-" not in paths:
        yield paths
        return
    if len(paths) > 1:
        raise RcaError("`-` cannot be combined with other paths", hint="save what you pipe in to a file, and give that")
    folder = tempfile.mkdtemp(prefix="rca-")
    try:
        path = os.path.join(folder, NAME)
        try:
            if sys.stdin.isatty():
                print("reading standard input; end it with Ctrl-D", file=sys.stderr, flush=True)
            with open(path, "wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        except (OSError, ValueError, AttributeError) as error:  # closed, or no space for it
            raise RcaError(f"cannot read standard input: {error}") from None
        yield [path]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
