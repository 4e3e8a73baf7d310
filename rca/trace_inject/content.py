"""What a value is made of: plain JSON, and arrays whose bytes are known by a digest.

    split({"step": 3, "batch": {"ids": tensor}}) -> {"step": 3, "batch": {"ids": {"$array": "batch.ids"}}}, {"batch.ids": Array}

The digest goes over names, types, shapes and bytes, not over a file's bytes: it is the same for a torch tensor on any device and a NumPy array of the same numbers.
An array is a copy: what the trainer does to its tensor afterwards changes nothing. Torch and NumPy are only looked up, never imported.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

DEPTH_MAX = 8
ITEMS_MAX = 200_000  # of all containers of one value
TEXT_MAX = 1000  # characters of what is no JSON
DIGEST_DIGITS = 32
ARRAY, BYTES, TEXT = "$array", "$bytes", "$text"  # what stands in place of a nested tensor, of bytes, and of what can only be described
LOST = "$lost"  # what stands in place of a group of a state that could not be taken, and says why
PLAIN = (str, int, float, bool, type(None))


class Array(NamedTuple):
    """Numbers as they lie in memory, little endian, row by row; `dtype` is torch's name, as in `bfloat16`."""

    dtype: str
    shape: tuple[int, ...]
    data: Any  # bytes, or a view of them
    owner: Any = None  # whose memory a view shows


def digest(arrays: Mapping[str, Array]) -> str:
    """The name of some arrays: the first 32 hexadecimal digits of SHA-256.

    >>> digest({"a": Array("int8", (2,), b"ab")}) == digest_bytes(b"a int8 [2]" + chr(10).encode() + b"ab")
    True
    """
    known = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        known.update(f"{name} {array.dtype} {list(array.shape)}\n".encode("utf-8", "surrogatepass"))
        known.update(array.data)
    return known.hexdigest()[:DIGEST_DIGITS]


def digest_bytes(data: Any) -> str:
    """The name of raw bytes."""
    return hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]


def is_array(value: Any) -> bool:
    """Whether `array` can take it: a tensor of torch or an array of NumPy."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, "ndarray", ())) and not value.dtype.hasobject


def array(value: Any, copied: bool = True) -> Array:
    """A tensor or an array; a copy, or a view where that will do. Raises what torch raises for one that has no numbers, such as one on `meta`."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        if value.dtype.byteorder == ">" or (value.dtype.byteorder == "=" and sys.byteorder == "big"):
            value = value.astype(value.dtype.newbyteorder("<"))
        return Array(str(value.dtype.name), tuple(value.shape), value.tobytes())
    if (type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter) or not value.is_cpu or value.layout is not torch.strided or not value.is_contiguous() or value.is_neg() or value.is_conj():
        value = _made_simple(torch, value)
    size = value.numel() * value.element_size()
    name = _names.get(value.dtype) or _names.setdefault(value.dtype, str(value.dtype).removeprefix("torch."))
    if not size:
        return Array(name, tuple(value.shape), b"")
    if copied:
        return Array(name, tuple(value.shape), ctypes.string_at(value.data_ptr(), size))
    return Array(name, tuple(value.shape), _view(value.data_ptr(), size, 0x100), value)


#: PyMemoryView_FromMemory(address, size, PyBUF_READ): a type of `ctypes` for each size would cost twenty times as much.
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_names: dict[Any, str] = {}  # of torch's types


def _made_simple(torch: Any, value: Any) -> Any:
    """A tensor whose numbers lie row by row in this process's memory."""
    with torch.no_grad():
        value = value.detach()
        if hasattr(value, "to_local"):  # what this rank has of a distributed tensor
            value = value.to_local()
        if value.layout is not torch.strided:
            value = value.to_dense()
        return value.cpu().resolve_conj().resolve_neg().contiguous()


def arrays(tensors: Mapping[str, Any], copied: bool = True) -> dict[str, Array]:
    """Tensors by name. Raises TypeError, which names it, for anything else."""
    found = {}
    for name, value in tensors.items():
        if not is_array(value) and not hasattr(value, "dtype"):
            raise TypeError(f"`{name}` is no tensor but {type(value).__name__}")
        found[str(name)] = array(value, copied)
    return found


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Plain JSON and arrays of the values of a call. An array at the top is not among the plain ones; of a nested one there stands where it is found."""
    plain: dict[str, Any] = {}
    found: dict[str, Array] = {}
    left = [ITEMS_MAX]
    for key, value in values.items():
        name = str(key)
        if is_array(value):
            try:
                found[name] = array(value)
                continue
            except Exception as error:
                value = f"{type(value).__name__} that cannot be read: {error}"
        plain[name] = _plain(value, name, found, left, DEPTH_MAX)
    return plain, found


def _plain(value: Any, name: str, found: dict[str, Array], left: list[int], depth: int) -> Any:
    """A value as JSON; its arrays go into `found` under their path."""
    kind = type(value)
    if kind in PLAIN:
        return value
    left[0] -= 1
    if depth and left[0] > 0:
        if kind is list or kind is tuple:
            if all(type(item) in PLAIN for item in value):
                return list(value)
            return [_plain(item, f"{name}.{i}", found, left, depth - 1) for i, item in enumerate(value)]
        if isinstance(value, Mapping):
            return {str(key): _plain(item, f"{name}.{key}", found, left, depth - 1) for key, item in value.items()}
        if isinstance(value, bytes | bytearray | memoryview):
            found[name] = Array("uint8", (memoryview(value).nbytes,), bytes(value))
            return {BYTES: name}
        if is_array(value):
            try:
                found[name] = array(value)
                return {ARRAY: name}
            except Exception:
                return {TEXT: f"{kind.__name__} that cannot be read"}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, f"{name}.{i}", found, left, depth - 1) for i, item in enumerate(value)]
        if isinstance(value, bool | int | float | str):  # of a class of its own, as in an enumeration
            return next(base(value) for base in (bool, int, float, str) if isinstance(value, base))
        if hasattr(value, "item") and getattr(value, "shape", None) == ():  # one number of NumPy
            return _plain(value.item(), name, found, left, 0)
    return {TEXT: f"{kind.__qualname__}: {str(value)[:TEXT_MAX]}"}
