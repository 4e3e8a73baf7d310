"""What is measured as our scan: search everything below a folder and print `name:line:offset:text` of every hit, exactly.

    python bench/probe.py FOLDER PATTERNS

Start of the interpreter, listing, compiling the patterns, scanning, line numbers and text of every kept hit are all in it. It is
what `rca analyze` does before it reads lines, with the same engine, pool and parts.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from rca.ingest.engines import matcher
from rca.ingest.parts import InParts
from rca.ingest.pool import scan_all
from rca.ingest.scan import Part, line_numbers, merged, scan, search
from rca.ingest.sources import list_sources, read_range


def shown(source, result) -> list[tuple[int, int, bytes]]:
    """Line number, offset and text of the line of each hit."""
    hits = [offset for _, offset in result.hits]
    found = []
    for offset, line in zip(hits, line_numbers(source._replace(lines=result.lines), hits) if hits else (), strict=True):
        low = max(0, offset - 4096)
        around = read_range(source, low, 8192)
        start = around.rfind(b"\n", 0, offset - low) + 1
        end = around.find(b"\n", offset - low)
        found.append((line, low + start, around[start : end if end >= 0 else None]))
    return found


def main(folder: str, patterns: str) -> None:
    """Scan and print."""
    with open(patterns, "rb") as file:
        literals = file.read().splitlines()
    in_parts = InParts(lambda *task: tuple(search(*task)), lambda source, _, parts: shown(source, merged([Part(*p) for p in parts])))
    sources = list_sources([folder])
    results = scan_all(sources, lambda source, engine: shown(source, scan(source, engine)), lambda: matcher(literals), in_parts=in_parts)
    out = [b"%s:%d:%d:%s\n" % (s.name.encode(), *hit) for s, found in zip(sources, results, strict=True) for hit in dict.fromkeys(map(tuple, found or ()))]
    sys.stdout.buffer.write(b"".join(out))


if __name__ == "__main__":
    main(*sys.argv[1:3])
