"""Where a source reads, and in which form it gives what it read."""

from __future__ import annotations

import os
import re
from typing import Any

Key = tuple[str, str]  # what a value speaks of, as `gpu=0,bus_id=...` ("" for the host itself), and the quantity's name
Values = dict[Key, float]
FILE_MAX = 1 << 20
UNSAFE = re.compile(r"[\s,=\"\\]+")


class Place:
    """The root of the files, the folder of the job's journals, and what a source remembers from one sample to the next."""

    def __init__(self, root: str = "/", folder: str | None = None) -> None:
        self.root, self.folder = root, folder
        self.memory: dict[str, Any] = {}

    def path(self, path: str) -> str:
        """A path of the host below the root."""
        return os.path.join(self.root, path.lstrip("/"))

    def text(self, path: str) -> str:
        """A file's text, or "" where it cannot be read."""
        try:
            with open(self.path(path), "rb") as file:
                return file.read(FILE_MAX).decode("utf-8", "replace")
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """The whole number that a file holds or begins with (`4: ACTIVE`), or None."""
        word = self.text(path).split(None, 1)[:1]
        return int(word[0].rstrip(":")) if word and word[0].rstrip(":").isdecimal() else None

    def names(self, path: str) -> list[str]:
        """What stands in a folder, sorted; nothing where there is none."""
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []


def subject(**about: Any) -> str:
    """What a value speaks of.

    >>> subject(gpu=0, bus_id="00000000:47:00.0"), subject(mount="/my data")
    ('gpu=0,bus_id=00000000:47:00.0', 'mount=/my_data')
    """
    return ",".join(f"{k}={UNSAFE.sub('_', str(v))[:200]}" for k, v in about.items() if v is not None)
