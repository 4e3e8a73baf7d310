"""Where the small blobs of a process lie: packs of records, each with its name and its bytes before it.

    "<digest>.safetensors <bytes>\\n", the bytes, "\\n"

What is behind a record that was cut, or is none, is not looked at: the writer begins another pack after such.
"""

from __future__ import annotations

import re
from pathlib import Path

RECORD = re.compile(rb"([0-9a-f]{32}\.(?:safetensors|bin)) ([0-9]{1,12})\n\Z")
HEAD_MAX = 80  # bytes


def index(folder: Path) -> dict[str, tuple[Path, int, int | None]]:
    """Name -> pack, where it begins, bytes; of whole records."""
    found: dict[str, tuple[Path, int, int | None]] = {}
    for path in sorted(folder.glob("*.pack")):
        try:
            with path.open("rb") as file:
                end = file.seek(0, 2)
                file.seek(0)
                while match := RECORD.match(file.readline(HEAD_MAX)):
                    start, size = file.tell(), int(match[2])
                    if start + size >= end:
                        break
                    found[match[1].decode()] = (path, start, size)
                    file.seek(start + size + 1)
        except OSError:
            continue  # what is in it is missing, and said so when it is asked for
    return found
