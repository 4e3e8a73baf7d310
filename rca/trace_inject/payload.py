"""What a payload is, in a few facts: how many items, which shapes and types, and a checksum of its bytes.

The checksum goes over the bytes of all arrays and texts in order, and is the same for the same numbers in a torch tensor on any device, a NumPy array or
bytes. Of more than `WHOLE_BYTES` in one array only blocks spread over it count, so that a checksum costs a millisecond whatever the size. Of a tensor on a
GPU just these blocks are copied, on a stream of their own and without waiting: the value is there when somebody asks later.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from typing import Any

DEPTH_MAX = 6
PARTS_MAX = 4096
WHOLE_BYTES = 1 << 20
BLOCKS = 64
ITEMS_MAX = 100_000  # numbers of a plain list


def parts(value: Any, depth: int = 0) -> Iterator[Any]:
    """The arrays, bytes and texts in a payload: those of a dictionary by its sorted keys, those of a sequence in order."""
    if isinstance(value, dict):
        if depth < DEPTH_MAX:
            for key in sorted(value, key=str):
                yield from parts(value[key], depth + 1)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(v, int | float | bool) for v in value[:8]):
            yield repr(list(value[:ITEMS_MAX]))
        elif depth < DEPTH_MAX:
            for item in value:
                yield from parts(item, depth + 1)
    elif value is not None:
        yield value


def _first(value: Any) -> list[Any]:
    return [part for _, part in zip(range(PARTS_MAX), parts(value), strict=False)]


def count_of(value: Any) -> int | None:
    """How many items: the rows of a batch of tensors, the length of a list; None for what has none.

    >>> count_of([1, 2, 3]), count_of({"ids": [1, 2], "mask": [0, 1]}), count_of(5)
    (3, 2, None)
    """
    if isinstance(value, dict):
        counts = {c for v in value.values() if (c := count_of(v)) is not None}
        return counts.pop() if len(counts) == 1 else len(value)
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    return len(value) if isinstance(value, list | tuple | bytes | str) or hasattr(value, "__len__") else None


def shape_of(value: Any) -> str | None:
    """Shapes, as in `[64, 512]`, or `ids[64, 512] mask[64, 512]` for a dictionary."""
    if isinstance(value, dict):
        return " ".join(f"{k}{list(v.shape)}" for k, v in sorted(value.items(), key=lambda kv: str(kv[0])) if hasattr(v, "shape"))[:300] or None
    return str(list(value.shape))[:300] if hasattr(value, "shape") else None


def dtype_of(value: Any) -> str | None:
    """Types of numbers, each once: `float32,int64`."""
    return ",".join(sorted({str(v.dtype).removeprefix("torch.") for v in _first(value) if hasattr(v, "dtype")}))[:100] or None


class Checksum:
    """The checksum of a payload: what lies on a GPU is on its way when this is made, and complete once `done`.

    >>> Checksum({"b": b"two", "a": b"one"}).text() == Checksum([b"one", b"two"]).text() == f"crc32:{zlib.crc32(b'onetwo'):08x}"
    True
    """

    def __init__(self, value: Any) -> None:
        self._pieces = [_piece(part) for part in _first(value)]

    def done(self) -> bool:
        """Whether `text` need not wait."""
        return all(piece.done() for piece in self._pieces if isinstance(piece, _Copy))

    def text(self) -> str:
        """`crc32:1a2b3c4d`."""
        crc = 0
        for piece in self._pieces:
            crc = zlib.crc32(piece.bytes() if isinstance(piece, _Copy) else piece, crc)
        return f"crc32:{crc:08x}"


def _piece(part: Any) -> Any:
    """The bytes that count of one part, or the copy that brings them."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(part, torch.Tensor):
        return _tensor(torch, part)
    if isinstance(part, bytes | bytearray | memoryview):
        view = memoryview(part).cast("B")
    elif hasattr(part, "tobytes") and hasattr(part, "dtype"):
        view = memoryview(part.tobytes())
    else:
        view = memoryview((part if isinstance(part, str) else repr(part)).encode("utf-8", "surrogatepass"))
    if view.nbytes <= WHOLE_BYTES:
        return view
    return b"".join(bytes(view[start:stop]) for start, stop in _blocks(view.nbytes))


def _blocks(size: int) -> list[tuple[int, int]]:
    """Where the blocks of a long array lie: the first and the last byte are always in one."""
    block = WHOLE_BYTES // BLOCKS
    return [(start, start + block) for start in ((size - block) * i // (BLOCKS - 1) for i in range(BLOCKS))]


def _tensor(torch: Any, tensor: Any) -> Any:
    with torch.no_grad():
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        if flat.numel() > WHOLE_BYTES:
            flat = torch.cat([flat[start:stop] for start, stop in _blocks(flat.numel())])
        if flat.device.type != "cuda":
            return _host_bytes(flat.cpu())
        return _Copy(torch, flat)


class _Copy:
    """Bytes of a GPU's memory on their way to the host, beside what the trainer computes."""

    def __init__(self, torch: Any, flat: Any) -> None:
        stream = torch.cuda.Stream(flat.device)
        stream.wait_stream(torch.cuda.current_stream(flat.device))
        with torch.cuda.stream(stream):
            self._host = torch.empty(flat.shape, dtype=torch.uint8, pin_memory=True)
            self._host.copy_(flat, non_blocking=True)
            flat.record_stream(stream)
            self._event = torch.cuda.Event()
            self._event.record(stream)

    def done(self) -> bool:
        return self._event.query()

    def bytes(self) -> bytes:
        self._event.synchronize()
        return _host_bytes(self._host)


def _host_bytes(flat: Any) -> bytes:
    import ctypes

    return ctypes.string_at(flat.data_ptr(), flat.numel())  # without NumPy, which torch may lack
