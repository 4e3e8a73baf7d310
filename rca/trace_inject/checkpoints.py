"""Checkpoints with a manifest: who wrote which files, their sizes and checksums, whether they reached the disk, and a marker that says it is complete.

    with saving("ckpt/step-100"):              # around the writing; rank 0, or every rank for its own files
        torch.save(model, "ckpt/step-100/model.pt")
    checkpoint_saved("ckpt/step-100")          # or only after the last write
    checkpoint_loaded("ckpt/step-100")         # before the first read; verifies, and records what it finds

The manifest `rca.manifest.json` (of one rank among several `rca.manifest-<rank>.json`) is written to a temporary file, synced and renamed, so that it is there whole or
not at all. `rca checkpoint verify DIR` checks it later, anywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterable
from typing import Any

from rca.trace_inject import context, guard, identity, recorder, spans

SCHEMA = "rca.manifest/1"
NAME = "rca.manifest"
CHUNK = 1 << 20
FILES_MAX = 100_000


def files_of(folder: str) -> list[str]:
    """All files below a folder but manifests, relative to it, sorted."""
    found = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            if not name.startswith(NAME):
                found.append(os.path.relpath(os.path.join(where, name), folder))
    return sorted(found)[:FILES_MAX]


def checksum(path: str) -> tuple[int, str]:
    """Size and CRC-32 of a file, read to its end. Raises OSError."""
    size, crc = 0, 0
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            size += len(data)
            crc = zlib.crc32(data, crc)
    return size, f"crc32:{crc:08x}"


def _sync(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
    return "ok"


@guard.quiet(False)
def checkpoint_saved(path: str | os.PathLike[str], *, files: Iterable[str] | None = None, step: int | None = None, shard: int | None = None, **attributes: Any) -> bool:
    """Sync and sum the files of a checkpoint, write its manifest, record it; gives whether it is complete.

    `path` is a folder, or one file (then its manifest stands beside it). With several writers each calls this with its own `files` and its `shard`.
    """
    return _saved(os.fspath(path), files, step, shard, attributes)


def _saved(path: str, files: Iterable[str] | None, step: int | None, shard: int | None, attributes: dict[str, Any], key: str | None = None) -> bool:
    """The same, under the record id of the save's beginning where that was recorded."""
    at = context.here()
    step = at.step if step is None else step
    folder, listed = (path, None) if os.path.isdir(path) else (os.path.dirname(path) or ".", [os.path.basename(path)])
    listed = sorted(os.path.relpath(f, folder) if os.path.isabs(f) else f for f in files) if files is not None else listed if listed is not None else files_of(folder)
    entries, failures = [], []
    for name in listed:
        try:
            full = os.path.join(folder, name)
            synced = _sync(full)
            size, crc = checksum(full)
            entries.append({"file": name, "size": size, "checksum": crc, "fsync": synced})
            if synced != "ok":
                failures.append(f"{name}: {synced}")
        except OSError as error:
            failures.append(f"{name}: {error.strerror}")
    manifest = {"schema": SCHEMA, "writer": identity.describe(), "step": step, "shard": shard, "time": time.time_ns(), "trace": at.trace, "files": entries, "complete": not failures, "failures": failures}
    target = os.path.join(folder, manifest_name(shard, None if os.path.isdir(path) else listed[0]))
    if error := _write_whole(target, manifest):
        failures.append(f"{os.path.basename(target)}: {error}")
    said = {"rca.path": path, "rca.complete": not failures, "rca.fsync": "ok" if not failures else "; ".join(failures)[:300], "rca.files": len(entries), "bytes": sum(e["size"] for e in entries), "op": "save", **attributes}
    spans.record("checkpoint", "checkpoint_saved", said | _numbered(step, shard), key or _key(path))
    return not failures


def _numbered(step: int | None, shard: int | None) -> dict[str, Any]:
    """What a record says of them beside the step that it lies in."""
    return {name: value for name, value in (("rca.step", step if step != context.here().step else None), ("rca.shard", shard)) if value is not None}


def _key(path: str) -> str:
    return f"save-{os.path.basename(path)}-{os.getpid()}-{time.time_ns():x}"


def saving(path: str | os.PathLike[str], *, step: int | None = None, shard: int | None = None, files: Iterable[str] | None = None, **attributes: Any) -> Saving:
    """`with saving("ckpt/step-100"): ...` around the writing of a checkpoint: recorded before its first byte that it begins, then what `checkpoint_saved` records.

    A save that hangs, or whose process dies in it, is known by its path. An error that leaves the block is recorded as the save's, and goes on.
    """
    return Saving(path, step, shard, files, attributes)


class Saving:
    """The writing of one checkpoint; `complete` says afterwards how it ended."""

    def __init__(self, path: Any, step: int | None, shard: int | None, files: Iterable[str] | None, attributes: dict[str, Any]) -> None:
        self._path, self._step, self._shard, self._files, self._attributes = path, step, shard, files, attributes
        self._key: str | None = None
        self._pid = os.getpid()
        self.complete = False

    def __enter__(self) -> Saving:
        self._begin()
        return self

    def __exit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        if os.getpid() != self._pid:
            return  # a child, forked within: the parent ends it
        if error is None:
            self.complete = self._end()
        else:
            self._failed(error)

    @guard.quiet()
    def _begin(self) -> None:
        self._path = os.fspath(self._path)
        self._step = context.here().step if self._step is None else self._step
        self._key = _key(self._path)
        self._record("checkpoint_saving")

    @guard.quiet(False)
    def _end(self) -> bool:
        return _saved(self._path, self._files, self._step, self._shard, self._attributes, self._key)

    @guard.quiet()
    def _failed(self, error: BaseException) -> None:
        self._record("checkpoint_save_failed", error=f"{type(error).__name__}: {error}"[: spans.MESSAGE_MAX])

    def _record(self, name: str, **more: Any) -> None:
        said = {"rca.path": self._path, "rca.complete": False, "op": "save", **self._attributes, **more}
        spans.record("checkpoint", name, said | _numbered(self._step, self._shard), self._key)


def manifest_name(shard: int | None = None, file: str | None = None) -> str:
    """`rca.manifest.json`, `rca.manifest-3.json` of one of several writers, `rca.manifest.model.pt.json` of a single file."""
    return f"{NAME}{f'-{shard}' if shard is not None else ''}{f'.{file}' if file else ''}.json"


def _write_whole(target: str, value: dict[str, Any]) -> str | None:
    """Write a file that is there whole or not at all; gives what went wrong."""
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync(os.path.dirname(target) or ".")
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return str(error.strerror)
    return None


def verify(path: str | os.PathLike[str], sums: bool = True) -> list[str]:
    """What is wrong with a checkpoint, in words; empty where all files are as their manifests say. Raises OSError for a path that is not there.

    With `sums` unset only sizes are compared, which finds what was cut short but not what was changed.
    """
    path = os.fspath(path)
    single = not os.path.isdir(path)
    folder = os.path.dirname(path) or "." if single else path
    if single and not os.path.exists(path):
        raise FileNotFoundError(2, "No such file or directory", path)
    base = os.path.basename(path)
    manifests = sorted(n for n in os.listdir(folder) if n.startswith(NAME) and n.endswith(".json") and (n == manifest_name(None, base) if single else True))
    if single and not manifests:
        manifests = [n for n in os.listdir(folder) if n.startswith(NAME) and n.endswith(".json")]
    if not manifests:
        return ["no manifest: nothing says that it was ever complete"]
    problems: list[str] = []
    for name in manifests:
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                manifest = json.load(file)
            entries = [(str(e["file"]), int(e["size"]), str(e["checksum"])) for e in manifest["files"]]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            problems.append(f"{name} is damaged: {type(error).__name__}")
            continue
        if not manifest.get("complete"):
            problems.append(f"{name} says that the save failed: {'; '.join(str(f) for f in manifest.get('failures', []))[:300]}")
        for file_name, size, crc in entries:
            if single and file_name != base:
                continue
            if os.path.isabs(file_name) or ".." in file_name.split(os.sep):
                problems.append(f"{name} names a file outside the checkpoint: {file_name!r}")
                continue
            problems += _compare(os.path.join(folder, file_name), file_name, size, crc, sums)
    return problems


def _compare(full: str, name: str, size: int, crc: str, sums: bool) -> list[str]:
    try:
        there = os.stat(full).st_size
        if there != size:
            return [f"{name} has {there} bytes, {size} were written"]
        if sums and checksum(full)[1] != crc:
            return [f"{name} was changed: its checksum is {checksum(full)[1]}, {crc} was written"]
    except OSError as error:
        return [f"{name}: {error.strerror}"]
    return []


@guard.quiet(True)
def checkpoint_loaded(path: str | os.PathLike[str], *, sums: bool = True, **attributes: Any) -> bool:
    """Verify a checkpoint before it is read, and record what was found; False where it is not as it was written.

    A checkpoint without a manifest is taken as it is.
    """
    try:
        problems = verify(path, sums)
    except OSError as error:
        problems = [f"{error.strerror}"]
    unmarked = problems[:1] == ["no manifest: nothing says that it was ever complete"]
    said = {"rca.path": os.fspath(path), "rca.complete": None if unmarked else not problems, "op": "load", "error": None if unmarked or not problems else "; ".join(problems)[:600], **attributes}
    if recorder.current() is not None:
        spans.record("checkpoint", "checkpoint_loaded", said, f"load-{os.getpid()}-{time.time_ns():x}")
    return unmarked or not problems
