"""Traces: files of spans in any format, recognised by content, become one compact table of spans per file and a few events.

One file per format; each has `recognise(head)` and `read(source, head, table)`. They are found by listing the folder.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from rca.ingest.sources import Source, read_range

HEAD_BYTES = 4096


@cache
def formats() -> tuple[ModuleType, ...]:
    """The modules of this folder that read a format, by name."""
    found = (importlib.import_module(f"{__name__}.{info.name}") for info in sorted(pkgutil.iter_modules(__path__), key=lambda i: i.name))
    return tuple(module for module in found if hasattr(module, "recognise"))


def format_of(head: bytes) -> ModuleType | None:
    """The format that a file begins as, or None for a file that holds no spans."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start not in (b"{", b"["):
        return None
    return next((module for module in formats() if module.recognise(head)), None)


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage meanwhile: nothing here refers to itself, and looking for what does takes a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@uncollected()
def read(source: Source, engine: Any, by_literal: list[list[Any]], points: int) -> dict[str, Any] | None:
    """What a file of spans holds, as plain values like those of `read_scanned`; None for a file of another kind."""
    head = read_range(source, 0, HEAD_BYTES)
    module = format_of(head)
    if module is None:
        return None
    from rca.ingest.spans.table import Table

    table = Table()
    module.read(source, head, table)
    return finished(source, module.__name__.rsplit(".", 1)[-1], table, engine, by_literal, points)


def finished(source: Source, shape: str, table: Any, engine: Any, by_literal: list[list[Any]], points: int) -> dict[str, Any] | None:
    """The result for a file whose spans are in the table; None where it holds nothing of a trace after all."""
    if not (len(table) or table.records or table.alone or table.samples is not None):
        return None
    from rca.ingest.reader import Reader
    from rca.ingest.spans import samples_of_journal
    from rca.ingest.spans.events import emit, known
    from rca.ingest.spans.introductions import sight

    reader = Reader(source.name, points)
    text = "\n".join(line for _, line in table.lines)
    if text:
        found = known(text, engine, by_literal)
        for offset, line in table.lines:
            low = line.lower()
            reader.line(line, None, offset, [s for s in found if any(w.lower() in low for w in s.literals)])
    emit(table, source, reader, engine, by_literal)
    out = reader.finish()
    gaps = "; ".join(f"{reason} ({count})" for reason, count in sorted(table.gaps.items(), key=lambda gap: (gap[0].startswith("not written"), gap[0]))) or _cut(source)
    out |= {"sightings": sight(table), "shape": shape, "damaged": table.damaged, "parsed": max(0, source.size - sum(len(line) + 1 for _, line in table.lines) + reader.parsed), "spans": [table.finish()]}
    out["scan"] = {"consumed": source.size, "truncated": gaps or None, "lines": ()}
    return out | samples_of_journal.result(table)


# -- a huge file, by several workers ----------------------------------------------------------------------------------------


def in_lines(source: Source) -> ModuleType | None:
    """The format of a file of spans whose lines can be read by themselves; None for any other file."""
    if source.compression:
        return None
    head = read_range(source, 0, HEAD_BYTES)
    module = format_of(head)
    return module if module is not None and hasattr(module, "in_lines") and module.in_lines(head) else None


@uncollected()
def read_part(source: Source, start: int, stop: int) -> dict[str, Any] | None:
    """The spans of the lines that begin in a range; None for a file of another kind."""
    module = in_lines(source)
    if module is None:
        return None
    from rca.ingest.spans.table import Table

    table = Table()
    module.read(source, read_range(source, 0, HEAD_BYTES), table, start, stop)
    return table.part()


@uncollected()
def join(source: Source, parts: list[Any], engine: Any, by_literal: list[list[Any]], points: int) -> dict[str, Any] | None:
    """The result for a file from those of its parts; None where they are not of spans."""
    module = in_lines(source)
    if module is None or not any(isinstance(part, dict) for part in parts):
        return None
    from rca.ingest.spans.table import Table

    table = Table()
    for part in parts:
        if isinstance(part, dict):
            table.join(part)
        else:
            table.gap(f"a part was not read: {part[1]}")
    return finished(source, module.__name__.rsplit(".", 1)[-1], table, engine, by_literal, points)


def _cut(source: Source) -> str | None:
    """Why a packed file was not decoded to its end, once it has been read."""
    if source.compression:
        from rca.ingest.streams import open_stream

        return open_stream(source).truncated
    return source.inside.short if source.inside else None
