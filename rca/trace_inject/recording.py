"""The recording of this process: on, off, its file of requests and its store.

    FOLDER/<role>-<rank>-<host>-<pid>.requests.jsonl      a line when a request begins, another when it ends
    FOLDER/blobs/<role>-<rank>-<host>-<pid>/<digest>.safetensors

`record_requests()` switches it on; so does `RCA_RECORDING=FOLDER` in the environment, at the first request. `RCA_RECORDING_OFF=1` forbids it. The lines go the way of the
journal: one write each, nothing in memory that SIGKILL could lose. Format `rca.recording/1`: docs/tracing.md.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import sys
import time
from typing import Any

from rca.trace_inject import guard, identity, recorder
from rca.trace_inject.blobs import Blobs
from rca.trace_inject.content import Array, digest, digest_bytes
from rca.trace_inject.journal import RECORD_MAX, Journal
from rca.trace_inject.safetensors import pieces

SCHEMA = "rca.recording/1"
FOLDER, OFF = "RCA_RECORDING", "RCA_RECORDING_OFF"
STEPS, SIZE = "RCA_RECORDING_STEPS", "RCA_RECORDING_BYTES"
STEPS_KEPT = 16
SIZE_MAX = 256 << 20  # bytes of one process
LINES_SHARE = 8  # of that: an eighth for the lines
TENSORS, BYTES = ".safetensors", ".bin"
#: Settings of the environment that change what numbers come out.
ENVIRONMENT = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MKL_CBWR", "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "PYTHONHASHSEED",
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NCCL_ALGO", "NCCL_PROTO",
)  # fmt: skip


class Lines(Journal):
    """The file of requests."""

    ending = ".requests.jsonl"

    def __init__(self, folder: str, about: dict[str, Any], more: dict[str, Any], size_max: int) -> None:
        self.more = more
        super().__init__(folder, about, size_max)

    def _renew(self) -> None:
        super()._renew()
        if "attempt" in self.more:
            self.about["attempt"] = self.more["attempt"]

    def _header(self) -> bytes:
        head = {"schema": SCHEMA, **self.about, **self.more, "start": identity.born(), "clock": {"wall": time.time_ns(), "monotonic": time.monotonic_ns()}, "versions": versions(), "facts": facts()}
        if self.segment:
            head["segment"] = self.segment
        data = json.dumps(head, separators=(",", ":")).encode()
        if len(data) >= RECORD_MAX:
            data = json.dumps({**head, "facts": {}, "versions": {}}, separators=(",", ":")).encode()
        return data + b"\n"

    def _reopen(self, anew: bool = False, but: bytes = b"") -> None:
        super()._reopen(anew, but)
        if self._newline:
            raise OSError(errno.ENOSPC, "half a header: nobody would know whose lines follow")

    def stem(self) -> str:
        return identity.file_name(self.about, ending="")


class Recording:
    """Lines and blobs of one process."""

    def __init__(self, folder: str, about: dict[str, Any], more: dict[str, Any], steps: int, size_max: int) -> None:
        self.folder, self.steps, self.size_max = folder, steps, size_max
        more = {**more, "limits": {"steps": steps, "bytes": size_max}}
        self.lines = Lines(folder, about, more, size_max // LINES_SHARE)
        self.blobs = self._store()
        self.last: dict[str, tuple[Any, str]] = {}  # random states: what they were, and their digest

    def _store(self) -> Blobs:
        return Blobs(os.path.join(self.folder, "blobs"), self.lines.stem(), self.steps, self.size_max - self.size_max // LINES_SHARE)

    def tensors(self, arrays: dict[str, Array], step: int | None, name: str | None = None) -> tuple[str, bool]:
        """Keep arrays; gives their digest and whether they are kept."""
        name = name or digest(arrays)
        return name, self.blobs.keep(name + TENSORS, lambda: pieces(arrays), sum(len(array.data) for array in arrays.values()), step)

    def bytes(self, data: Any, step: int | None) -> tuple[str, bool]:
        """Keep raw bytes; gives their digest and whether they are kept."""
        name = digest_bytes(data)
        return name, self.blobs.keep(name + BYTES, lambda: (data,), len(data), step)

    def put(self, record: dict[str, Any], step: int | None, key: str = "") -> None:
        """Write one line; what is too long for it goes into the store, the longest part first. With `key`, the record stays open."""
        data = encode(record)
        if len(data) >= RECORD_MAX:
            sizes = {name: len(encode(value)) for name, value in record.items() if isinstance(value, dict | str) and name not in ("e", "id")}
            record = dict(record)
            for name in sorted(sizes, key=lambda name: -sizes[name]):
                where, kept = self.bytes(encode(record[name]), step)
                record[name] = {"$in": where} if kept else {"$in": where, "kept": False}
                if len(data := encode(record)) < RECORD_MAX:
                    break
        data += b"\n"
        if key:
            self.lines.open[key] = data
        self.lines.put(data)

    def forked(self) -> None:
        """In a child: files of its own at its first record."""
        self.lines.forked()
        self.blobs.packs.leave()
        self.blobs = self._store()
        self.last = {}


encode_text = json.JSONEncoder(separators=(",", ":"), default=str).encode


def encode(value: Any) -> bytes:
    return encode_text(value).encode("ascii")


current_recording: Recording | None = None
_asked = _stopped = False


@guard.quiet()
def record_requests(
    folder: str | os.PathLike[str] | None = None, *, role: str | None = None, rank: int | None = None, run: str | None = None, attempt: int | None = None,
    steps: int | None = None, size_max: int | None = None, program: str | None = None, base: str | os.PathLike[str] | None = None,
) -> str | None:  # fmt: skip
    """Record the requests of this process from now on; gives the folder, or None where `RCA_RECORDING_OFF` is set or no folder is named.

    `folder` is `RCA_RECORDING` otherwise. `steps` is how many of the newest steps keep their tensors and files, 16 by default; `size_max` bounds the bytes of this process,
    256 MiB by default. `program` says who can run a request again, `base` is the folder that the program works in. Role, rank and run as in `install`.
    """
    global current_recording, _asked, _stopped
    _asked = True
    if os.environ.get(OFF, "0") not in ("", "0"):
        return None
    folder = os.fspath(folder) if folder else os.environ.get(FOLDER)
    if not folder:
        return None
    folder = os.path.abspath(os.path.expanduser(folder))
    journal = recorder.journal
    asked = dict(journal.asked) if journal is not None else {}
    asked |= {k: v for k, v in (("role", role), ("rank", rank), ("run", run)) if v is not None}
    more: dict[str, Any] = {k: v for k, v in (("attempt", attempt), ("program", program), ("folder", os.fspath(base) if base else None)) if v is not None}
    stop()
    _stopped = False
    current_recording = Recording(folder, asked, more, max(1, steps or _number(STEPS) or STEPS_KEPT), max(1 << 16, size_max or _number(SIZE) or SIZE_MAX))
    if stop not in guard.stops:
        guard.stops.append(stop)
    return folder


def current() -> Recording | None:
    """The recording of this process, if there is one."""
    if current_recording is None and not _asked and not _stopped:
        record_requests()
    return current_recording


def stop() -> None:
    """Record no more."""
    global current_recording, _stopped
    _stopped = True
    if current_recording is not None:
        current_recording.lines.close()
        current_recording = None


def _number(name: str) -> int | None:
    said = os.environ.get(name, "")
    return int(said) if said.isdecimal() and len(said) < 19 else None


def versions() -> dict[str, str]:
    """Of what computes."""
    import rca

    torch = sys.modules.get("torch")
    found = {"rca": getattr(rca, "__version__", ""), "python": platform.python_version()}
    return found | ({"torch": str(torch.__version__)} if torch is not None and hasattr(torch, "__version__") else {})


def facts() -> dict[str, Any]:
    """What else decides which bits come out."""
    found: dict[str, Any] = {"machine": platform.machine(), "environment": {name: os.environ[name][:200] for name in ENVIRONMENT if name in os.environ}}
    torch = sys.modules.get("torch")
    if torch is not None:
        for name, get in (
            ("threads", lambda: torch.get_num_threads()), ("cpu_capability", lambda: torch.backends.cpu.get_cpu_capability()),
            ("deterministic", lambda: bool(torch.are_deterministic_algorithms_enabled())), ("device", lambda: torch.cuda.get_device_name(0) if torch.cuda.is_initialized() else None),
        ):  # fmt: skip
            try:
                value = get()
            except Exception:  # another version of torch
                continue
            if value is not None:
                found[name] = value
    return found


def _in_child() -> None:
    try:
        if current_recording is not None:
            current_recording.forked()
    except Exception as error:
        guard.fault("fork", error)


os.register_at_fork(after_in_child=_in_child)
