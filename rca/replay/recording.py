"""Read a recording (`rca.recording/1`): the requests of all processes, the calls of their callers, and what they were given.

    <folder>/<role>-<rank>-<host>-<pid>.requests.jsonl, <folder>/blobs/<process>/<digest>.safetensors

A header, then `request`, `file`, `outcome`, `call` and `answer` lines, as `rca.trace_inject` writes them. A line that is damaged is a gap that is told; what a blob holds
is compared with the digest that names it. Nothing is mapped and nothing is executed; paths are made of names that were checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay import packs
from rca.trace_inject import content, safetensors
from rca.trace_inject.recording import BYTES, TENSORS

ENDING = ".requests.jsonl"
BLOB_MAX = 1 << 34
GAPS_MAX = 200  # that are told one by one
DIGEST = re.compile(r"[0-9a-f]{32}\Z")
STEM = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.\-]{0,250}\Z")
SEGMENT = re.compile(r"(.+-\d+)\.\d+(?:\.new)?\Z")
HINT = "record the run again: `rca train` records its runs unless `record` is false, see docs/tracing.md"


@dataclass(frozen=True)
class Header:
    """Who recorded. `name` is the process's name in the recording."""

    name: str
    role: str
    rank: int | None
    host: str
    pid: int
    attempt: int
    start_ns: int
    world_size: int | None
    run: str | None
    program: str | None
    folder: str | None  # that the process worked in, as it saw it
    versions: dict[str, str]
    facts: dict[str, Any]
    limits: dict[str, int]
    source: Path


@dataclass(frozen=True)
class Value:
    """What was handed over: plain values, and the digest of its tensors, with that of each alone. `kept` is false where the blob was never written."""

    values: dict[str, Any]
    tensors: str | None = None
    digests: dict[str, str] = field(default_factory=dict)
    kept: bool = True


@dataclass(frozen=True)
class FileRead:
    """A file that a request has read, as its bytes were."""

    path: str
    digest: str
    size: int
    kept: bool = True


@dataclass(frozen=True)
class Request:
    """A request as its worker saw it. `outcome` is None for one that never ended."""

    process: Header
    id: str
    request_id: str | None
    method: str
    step: int | None
    stage: str | None
    start_ns: int
    args: Value
    state: dict[str, Any]
    rng: dict[str, str]
    source: Path
    line: int
    end_ns: int | None = None
    outcome: str | None = None  # "ok" or "error"
    result: Value | None = None
    error_type: str | None = None
    error: str | None = None
    after: dict[str, Any] = field(default_factory=dict)
    files: tuple[FileRead, ...] = ()

    @property
    def role(self) -> str:
        return self.process.role

    @property
    def rank(self) -> int | None:
        return self.process.rank

    @property
    def host(self) -> str:
        return self.process.host

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def attempt(self) -> int:
        return self.process.attempt


@dataclass(frozen=True)
class Call:
    """A request as its caller saw it; `role` and `rank` are the worker's. `outcome` is None where nothing came, neither answer nor error."""

    process: Header  # of the caller
    id: str
    request_id: str | None
    role: str
    rank: int | None
    method: str
    step: int | None
    stage: str | None
    group: str | None
    start_ns: int
    sent: Value
    source: Path
    line: int
    end_ns: int | None = None
    outcome: str | None = None
    arrived: Value | None = None
    error_type: str | None = None
    error: str | None = None

    @property
    def attempt(self) -> int:
        return self.process.attempt


@dataclass
class Recording:
    """All that was recorded of a run. `gaps` says what is missing or damaged."""

    folder: Path
    headers: list[Header] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)  # by start
    calls: list[Call] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    _packed: dict[str, dict[str, tuple[Path, int, int | None]]] = field(default_factory=dict, repr=False)  # process -> blob -> where

    @classmethod
    def read(cls, folder: Path) -> Recording:
        """The recording of a run: RUN, RUN/recording, or the folder of a played scenario. Raises RcaError, which names the file and what is wrong with it."""
        from rca.replay.lines import Process

        at = where(Path(folder))
        found = cls(at)
        processes: dict[str, list[Path]] = {}
        for path in sorted(at.glob(f"*{ENDING}")):
            if not path.is_file():  # a pipe would be waited for, for ever
                found.gap(f"{path}: no file")
                continue
            processes.setdefault(_stem(path), []).append(path)
        for stem, paths in processes.items():
            Process(found, stem, paths).read()
        if not found.headers:
            raise RcaError("the header is missing: no process has written one", where=str(next(iter(processes.values()))[0] if processes else at), hint=HINT)
        found.requests.sort(key=lambda request: (request.start_ns, request.process.name, request.id))
        found.calls.sort(key=lambda call: (call.start_ns, call.process.name, call.id))
        return found

    def gap(self, text: str) -> None:
        """Tell that something is missing."""
        if len(self.gaps) < GAPS_MAX:
            self.gaps.append(text)
        elif len(self.gaps) == GAPS_MAX:
            self.gaps.append("and more")

    # -- blobs --------------------------------------------------------------------------------------------------------------

    def has(self, digest: str | None, process: Header | str | None = None, ending: str = TENSORS) -> bool:
        """Whether there is a blob of that name."""
        return digest is not None and self._place(digest, process, ending) is not None

    def tensors(self, digest: str | None, process: Header | str | None = None) -> dict[str, Any]:
        """The tensors of a blob by name, of torch; of no blob, none. Raises RcaError for one that is missing or not what its name says."""
        torch = import_module("torch")
        found = {}
        for name, array in self.arrays(digest, process).items():
            kind = getattr(torch, array.dtype, None)
            if kind is None:
                raise RcaError(f"this torch has no numbers of type `{array.dtype}`", where=str(self.folder), hint="use the version of torch that recorded")
            found[name] = torch.frombuffer(bytearray(array.data), dtype=kind).reshape(array.shape) if array.data else torch.empty(array.shape, dtype=kind)
        return found

    def arrays(self, digest: str | None, process: Header | str | None = None) -> dict[str, content.Array]:
        """The same as types, shapes and bytes, without torch."""
        if digest is None:
            return {}
        path, data = self._read(digest, process, TENSORS)
        try:
            found = safetensors.parse(data)
        except ValueError as error:
            raise RcaError(f"a damaged blob: {error}", where=str(path), hint=HINT) from error
        if content.digest(found) != digest:
            raise RcaError("a damaged blob: it does not hold what its name says", where=str(path), hint=HINT)
        return found

    def bytes(self, digest: str, process: Header | str | None = None) -> bytes:
        """The bytes of a file. Raises RcaError for one that is missing or not what its name says."""
        path, data = self._read(digest, process, BYTES)
        if content.digest_bytes(data) != digest:
            raise RcaError("a damaged blob: it does not hold what its name says", where=str(path), hint=HINT)
        return data

    def _read(self, digest: str, process: Header | str | None, ending: str) -> tuple[Path, bytes]:
        found = self._place(digest, process, ending)
        if found is None:
            name = process.name if isinstance(process, Header) else process or "*"
            raise RcaError("a blob of the recording is missing: it was not kept, or taken away for newer steps", where=str(self.folder / "blobs" / name / f"{digest}{ending}"), hint="`record_steps` and `record_bytes` say how much of a run is kept")
        path, start, size = found
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2) if size is None else size
                if size > BLOB_MAX:
                    raise RcaError(f"a blob of {size} bytes", where=str(path))
                file.seek(start)
                return path, file.read(size)
        except OSError as error:
            raise RcaError(f"cannot read a blob: {(error.strerror or str(error)).lower()}", where=str(path)) from error

    def _place(self, digest: str, process: Header | str | None, ending: str) -> tuple[Path, int, int | None] | None:
        """Where a blob lies, with its process or with another that has the same: the file, and where in it; a size of None is the whole file."""
        if not DIGEST.match(str(digest)):
            raise RcaError(f"no digest: `{str(digest)[:80]}`", where=str(self.folder))
        name = process.name if isinstance(process, Header) else process
        for stem in dict.fromkeys([*([name] if name else []), *(header.name for header in self.headers)]):
            if not STEM.match(stem):
                continue
            folder = self.folder / "blobs" / stem
            if (path := folder / f"{digest}{ending}").is_file():
                return path, 0, None
            if stem not in self._packed:
                self._packed[stem] = packs.index(folder)
            if (packed := self._packed[stem].get(f"{digest}{ending}")) is not None:
                return packed
        return None


def where(folder: Path) -> Path:
    """The folder with the files of requests. Raises RcaError where there is none."""
    for at in (folder, folder / "recording"):
        if at.is_dir() and any(at.glob(f"*{ENDING}")):
            return at
    if not folder.exists():
        raise RcaError(f"no such folder: `{folder}`")
    above = folder.absolute().parent / "recording"
    raise RcaError(f"no recording here: no file `*{ENDING}`", where=str(folder), hint=f"the run is the folder above, with {above}" if above.is_dir() else HINT)


def _stem(path: Path) -> str:
    """The process whose file, or whose later segment, it is."""
    stem = path.name.removesuffix(ENDING)
    match = SEGMENT.match(stem)
    return match[1] if match else stem
