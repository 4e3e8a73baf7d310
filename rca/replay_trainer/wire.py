"""Bodies of calls: tensors as safetensors, everything else as JSON in its metadata. Nothing that arrives is ever executed.

    pack({"answers": LongTensor [B, N], "step": 3}) -> bytes,  unpack(bytes) -> the same

Format: https://github.com/huggingface/safetensors#format (8 bytes of header length, a JSON header, the data).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

LENGTH = struct.Struct("<Q")
HEADER_MAX = 1 << 20  # a header that says it is longer is damaged
FRAME_MAX = 1 << 30
#: What the libraries raise for bytes that are not what they say: KeyError for an unknown type of numbers, RecursionError for JSON that is too deep.
DAMAGE = (struct.error, SafetensorError, ValueError, AttributeError, TypeError, KeyError, IndexError, OverflowError, RecursionError, RuntimeError, MemoryError)


def pack(values: dict[str, Any]) -> bytes:
    """Tensors and plain JSON values by name, as bytes."""
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()  # memory that is in it already: the format wants each name to have its own
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            plain = value.detach().cpu().contiguous()
            tensors[name] = plain.clone() if plain.untyped_storage().data_ptr() in seen else plain
            seen.add(plain.untyped_storage().data_ptr())
    rest = {k: v for k, v in values.items() if k not in tensors}
    return safetensors.torch.save(tensors, {"values": json.dumps(rest)})


def unpack(data: bytes) -> dict[str, Any]:
    """What `pack` was given. Raises ValueError, which says what is wrong with the bytes."""
    try:
        (size,) = LENGTH.unpack_from(data)
        if size > min(HEADER_MAX, len(data) - LENGTH.size):
            raise ValueError(f"a header of {size} bytes in {len(data)} bytes")
        header = json.loads(data[LENGTH.size : LENGTH.size + size])
        rest = json.loads(header.get("__metadata__", {}).get("values", "{}"))
        return {**safetensors.torch.load(data), **rest}
    except DAMAGE as error:
        raise ValueError(f"not a complete payload of {len(data)} bytes: {error}") from error


def frames(parts: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Parts of an answer, each with its length before it, so that they can be used as they come."""
    for part in parts:
        body = pack(part)
        yield LENGTH.pack(len(body)) + body


class Frames:
    """Takes bytes as they arrive and gives the parts that are complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The parts that `data` completes. Raises ValueError."""
        self._data += data
        while len(self._data) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._data)
            if size > FRAME_MAX:
                raise ValueError(f"a part of {size} bytes")
            if len(self._data) < LENGTH.size + size:
                return
            body = bytes(self._data[LENGTH.size : LENGTH.size + size])
            del self._data[: LENGTH.size + size]
            yield unpack(body)

    @property
    def left(self) -> int:
        """Bytes of a part that is not complete."""
        return len(self._data)
