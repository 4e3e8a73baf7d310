"""Hand-overs through files: which request saved the checkpoint that another one read, and whether what was read is what was saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rca.replay.cases import OK, Case
from rca.replay.handovers import Broken
from rca.replay.recording import FileRead
from rca.trace_inject.content import digest_bytes

OF_CHECKPOINT = re.compile(r"/(latest|periodic)/step-(\d{1,9})(?:/|$)")
SAVE = "save"


def read_by(reader: Case) -> list[tuple[str, FileRead | None]]:
    """The files that a request has read, and the paths that it was given: what is not there cannot be read."""
    if reader.request is None:
        return []
    given = [value for value in reader.request.args.values.values() if isinstance(value, str)]
    return [*((file.path, file) for file in reader.request.files), *((path, None) for path in given if OF_CHECKPOINT.search(path))]


def saved_by(path: str, all_cases: Sequence[Case], reader: Case) -> Case | None:
    """The request that wrote it: the last one that saved that kind and step before it was read. A run that was taken up again saves its steps again."""
    match = OF_CHECKPOINT.search(path)
    if match is None:
        return None
    kind, step = match[1], int(match[2])
    saves = [
        case
        for case in all_cases
        if case.request is not None
        and case.request.method == SAVE
        and not case.request.rank
        and case.begun_ns < reader.begun_ns
        and _what(case.request) == (kind, step)
    ]
    return saves[-1] if saves else None


def writers(readers: Iterable[Case], all_cases: Sequence[Case]) -> list[Case]:
    """Those that saved what some requests have read, each once."""
    found = [writer for reader in readers for path, _ in read_by(reader) if (writer := saved_by(path, all_cases, reader)) is not None]
    return list({id(case): case for case in found}.values())


def broken_file(readers: Iterable[Case], all_cases: Sequence[Case], made_again: Callable[[Case, FileRead], Path | None]) -> Broken | None:
    """The first file that is not what its writer writes. `made_again` plays a save once more and gives where the file lies, or None where it cannot."""
    for reader in readers:
        for path, file in read_by(reader):
            writer = saved_by(path, all_cases, reader)
            if writer is None or writer is reader:
                continue
            name = path[path.rindex("/", 0, path.rindex("/step-")) + 1 :]
            if writer.recorded != OK:
                how = f"failed: {' '.join(writer.error.split())[:200]}" if writer.error else "never ended"
                return Broken(writer, writer.worker, reader.worker, f"{reader.worker} read {name}, whose save by {writer.worker} {how}")
            again = made_again(writer, file) if file is not None else None
            if file is not None and again is not None and again.is_file() and digest_bytes(again.read_bytes()) != file.digest:
                return Broken(writer, writer.worker, reader.worker, f"{name}, {file.size} bytes, is not what {writer.worker} saved when {reader.worker} reads it")
    return None


def _what(request: Any) -> tuple[str, int]:
    values = request.args.values or {}
    step = values.get("step")
    return str(values.get("kind")), step if isinstance(step, int) else -1
