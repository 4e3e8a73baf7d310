"""Words for the person at the terminal: messages on standard error, a progress line, and how wide and colourful it may be."""

import os
import sys
from typing import Any

PROGRESS_AFTER_S = 1.0  # a shorter run needs no progress line
PROGRESS_EVERY_S = 0.2  # smooth enough, and slows no terminal down
WIDEST = 110  # columns; longer rows are hard to read


def say(message: str) -> None:
    """One message for people, on standard error; where nobody can hear it, it is dropped."""
    try:
        print(safe(message), file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return


def safe(text: Any) -> str:
    from rca.report.safe import safe_lines, safe_text

    return safe_lines(safe_text(str(text)))


def is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def colored() -> bool:
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def columns(stream: Any = None) -> int | None:
    """The width of the terminal, or None where there is none."""
    stream = stream or sys.stdout
    if not is_terminal(stream):
        return None
    try:
        return min(os.get_terminal_size(stream.fileno()).columns or 80, WIDEST)
    except (OSError, ValueError):
        return None


class Progress:
    """A progress line on a terminal, for long work only; call it with (bytes done, bytes in all or None, what)."""

    def __init__(self) -> None:
        import time

        self.now = time.monotonic
        self.shown = is_terminal(sys.stderr)
        self.start, self.last, self.wide = self.now(), 0.0, 0

    def __enter__(self) -> "Progress":
        return self

    def __call__(self, done: int, total: int | None = None, what: str = "") -> None:
        now = self.now()
        if not self.shown or now - self.start < PROGRESS_AFTER_S or now - self.last < PROGRESS_EVERY_S:
            return
        share = f"{100 * min(done, total) // total:3d} % of {total / 1e6:.0f} MB" if total else f"{done / 1e6:.0f} MB"
        line = f"{share}  {safe(what)}"[: (columns(sys.stderr) or 80) - 1]
        self.last = now
        print("\r" + line.ljust(self.wide), end="", file=sys.stderr, flush=True)
        self.wide = len(line)

    def __exit__(self, *_: object) -> None:
        if self.wide:
            print("\r" + " " * self.wide + "\r", end="", file=sys.stderr, flush=True)
