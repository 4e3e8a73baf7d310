"""Find the files of a folder by listing it: path = name = id, and nothing is registered by hand."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


def data_files(folder: Path, suffix: str = ".toml") -> Iterator[tuple[str, Path]]:
    """Yield `(id, path)` of every data file below `folder`, sorted; the id is the path without its suffix."""
    for path in sorted(folder.rglob(f"*{suffix}")):
        yield path.relative_to(folder).with_suffix("").as_posix(), path


def modules(package: ModuleType) -> list[ModuleType]:
    """Import every module of `package`, sorted by name; names that begin with `_` are private."""
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]
