"""Arrays as a safetensors file: 8 bytes of header length, a JSON header, the numbers. Written and read with the standard library alone.

What the format has no type for is kept as bytes, and `__metadata__` says what it was. Nothing that is read is trusted: every offset is checked, nothing is mapped.

Source: https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from rca.trace_inject.content import Array

LENGTH = struct.Struct("<Q")
HEADER_MAX = 64 << 20  # bytes
TENSORS_MAX = 1_000_000
#: torch's name of a type -> the format's name, bytes of a number.
TYPES = {
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2), "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1),
    "int64": ("I64", 8), "int32": ("I32", 4), "int16": ("I16", 2), "int8": ("I8", 1),
    "uint64": ("U64", 8), "uint32": ("U32", 4), "uint16": ("U16", 2), "uint8": ("U8", 1), "bool": ("BOOL", 1),
}  # fmt: skip
NAMES = {code: (name, size) for name, (code, size) in TYPES.items()}
OTHER = "rca.other"  # of the metadata: JSON of name -> [type, shape] of what is kept as bytes


def pieces(arrays: Mapping[str, Array]) -> list[Any]:
    """The file, piece by piece; nothing is copied. The widest numbers come first, so that all lie where their type wants them."""
    head: dict[str, Any] = {}
    other: dict[str, Any] = {}
    start = 0
    order = sorted(arrays, key=lambda name: (-TYPES.get(arrays[name].dtype, ("", 1))[1], name))
    for name in order:
        array = arrays[name]
        code, shape = TYPES.get(array.dtype, ("U8", 1))[0], list(array.shape)
        if array.dtype not in TYPES:
            other[name] = [array.dtype, shape]
            shape = [len(array.data)]
        head[name] = {"dtype": code, "shape": shape, "data_offsets": [start, start + len(array.data)]}
        start += len(array.data)
    if other:
        head["__metadata__"] = {OTHER: json.dumps(other)}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [LENGTH.pack(len(text)) + text, *(arrays[name].data for name in order)]


def parse(data: bytes) -> dict[str, Array]:
    """The arrays of a file. Raises ValueError, which says what is wrong with it."""
    if len(data) < LENGTH.size:
        raise ValueError(f"{len(data)} bytes are no safetensors file")
    (size,) = LENGTH.unpack_from(data)
    start = LENGTH.size + size
    if size > HEADER_MAX or start > len(data):
        raise ValueError(f"a header of {size} bytes in a file of {len(data)}")
    try:
        head = json.loads(data[LENGTH.size : start])
        said = head.pop("__metadata__", {})
        other = json.loads(said.get(OTHER, "{}")) if isinstance(said, dict) else {}
        if len(head) > TENSORS_MAX:
            raise ValueError(f"{len(head)} tensors")
        return {name: _array(name, about, other.get(name), data, start) for name, about in head.items()}
    except (AttributeError, KeyError, TypeError, IndexError, RecursionError, OverflowError) as error:
        raise ValueError(f"a damaged header: {type(error).__name__}: {error}") from error


def _array(name: str, about: Any, other: Any, data: bytes, start: int) -> Array:
    dtype, width = NAMES[about["dtype"]]
    shape, (first, last) = about["shape"], about["data_offsets"]
    for number in (first, last, *shape):
        if type(number) is not int or number < 0:
            raise ValueError(f"tensor `{name}` has no valid place: {str(about)[:200]}")
    count = 1
    for number in shape:
        count *= number
        if count > len(data) and 0 not in shape:
            raise ValueError(f"tensor `{name}` is larger than the file")
    if not first <= last <= len(data) - start or last - first != count * width:
        raise ValueError(f"tensor `{name}` of shape {shape} does not lie in the file of {len(data)} bytes")
    if other is not None:
        dtype, shape = str(other[0]), other[1]
    return Array(dtype, tuple(int(n) for n in shape), data[start + first : start + last])
