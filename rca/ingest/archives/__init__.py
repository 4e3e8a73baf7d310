"""Archives among the sources become their members, each a source of its own: `a.tar.gz!/logs/rank0.log`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rca.ingest.sources import Source

ZIP = (b"PK\3\4", b"PK\5\6")


def expand(sources: list[Source], *, workers: int | None = None, progress: Callable[[int, int], object] | None = None) -> list[Source]:
    """The sources with the members of every archive beside it, sorted by name. The sizes add up to the same sum.

    A tar file is known by its content, a zip file by its name too, for models and programs are zip files as well; a file given alone is opened in any case.
    """
    found = [s for s in sources if s.reason == "archive" or (s.reason == "binary" and (s.name.lower().endswith(".zip") or len(sources) == 1) and _zip(s))]
    if not found:
        return sources
    from rca.ingest.archives.held import Store
    from rca.ingest.pool import scan_all

    store = Store()

    def work(source: Source, _: Any) -> Any:
        from rca.ingest.archives.unpack import Unpacker
        from rca.ingest.inside import FileReader

        reader = FileReader(source.path, 0, source.size)
        try:
            rows, index, size = Unpacker(store).unpack(reader, source.size, source.compression)
        finally:
            reader.close()
        return [tuple(row) for row in rows], index, size

    results = scan_all([s._replace(reason=None) for s in found], work, lambda: None, workers=workers if store.shared else 1, progress=progress)
    members = [m for source, result in zip(found, results, strict=True) for m in _members(source, result, store)]
    gone = {s.name for s in found}
    return sorted([*(s for s in sources if s.name not in gone), *members], key=lambda s: (s.name, s.path))


def _zip(source: Source) -> bool:
    from rca.ingest.sources import read_range

    return read_range(source._replace(reason=None), 0, 4) in ZIP


def _members(source: Source, result: Any, store: Any) -> list[Source]:
    """The sources of one archive: its members, and itself with the bytes that are no member's."""
    from rca.ingest.archives.held import Held
    from rca.ingest.inside import Inside

    if not isinstance(result, tuple | list) or len(result) != 3:
        return [source._replace(reason=f"unreadable: {result[1]}" if result else "unreadable")]
    rows, index, size = result
    held = Held(store, [tuple(i) for i in index], size)
    return _once([
        Source(source.path, source.name + name, share, compression, reason, (), Inside(held if where[0] == "held" else None, *where[1:]) if where else None)
        for name, share, where, compression, reason in rows
    ])  # fmt: skip


def _once(sources: Sequence[Source]) -> list[Source]:
    """Of members with one name the last is read, as by who unpacks them; the others say so."""
    last = {s.name: i for i, s in enumerate(sources)}
    return [s if last[s.name] == i else s._replace(name=f"{s.name} ({i})", reason="replaced later in the archive") for i, s in enumerate(sources)]
