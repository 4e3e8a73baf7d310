"""The kernel lines of what happens meanwhile, as an operator would have collected them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def kept(path: Path, *style: str) -> Iterator[None]:
    """Write what the kernel says while this lasts to `path`, as `dmesg` prints it with `style`."""
    before = _dmesg()[-1:]
    yield
    after = _dmesg()  # the ring may have been full before: it never gets longer, and old lines leave it
    last = max((i for i, line in enumerate(after) if [line] == before), default=-1)
    lines = _dmesg(*style)
    path.write_text("".join(lines[len(lines) - (len(after) - last - 1) :]))


def _dmesg(*style: str) -> list[str]:
    return subprocess.run(["dmesg", *style], capture_output=True, text=True, check=True, timeout=20).stdout.splitlines(keepends=True)
