"""Recorded values as they were: plain ones and tensors together, states by groups, the states of random generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rca.errors import RcaError
from rca.replay.recording import DIGEST, Header, Recording, Request, Value
from rca.trace_inject import content
from rca.trace_inject.content import ARRAY, BYTES, LOST


def value(recording: Recording, recorded: Value, process: Header) -> dict[str, Any]:
    """Plain values and tensors together, as they were handed over."""
    return together(recorded.values, recording.tensors(recorded.tensors, process))


def together(values: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The contrary of `content.split`: nested tensors and bytes go where they were.

    >>> together({"step": 3, "batch": {"ids": {"$array": "batch.ids"}}}, {"batch.ids": 7, "mask": 8})
    {'step': 3, 'batch': {'ids': 7}, 'mask': 8}
    """
    nested: set[str] = set()

    def place(inner: Any) -> Any:
        if isinstance(inner, Mapping):
            for mark in (ARRAY, BYTES):
                name = inner.get(mark)
                if len(inner) == 1 and isinstance(name, str) and name in tensors:
                    nested.add(name)
                    return tensors[name] if mark == ARRAY else bytes(tensors[name].tolist())
            return {name: place(each) for name, each in inner.items()}
        return [place(each) for each in inner] if isinstance(inner, list) else inner

    placed = {name: place(inner) for name, inner in values.items()}
    return {**placed, **{name: tensor for name, tensor in tensors.items() if name not in nested}}


def as_recorded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a recording would give them back."""
    import torch

    plain, arrays = content.split(values)
    tensors = {name: torch.frombuffer(bytearray(array.data), dtype=getattr(torch, array.dtype)).reshape(array.shape) if array.data else torch.empty(array.shape, dtype=getattr(torch, array.dtype)) for name, array in arrays.items()}
    return together(plain, tensors)


def groups(recording: Recording, recorded: Mapping[str, Any], process: Header) -> dict[str, Any]:
    """A state as its process had it: a group that is a digest is its tensors. Raises RcaError for one that could not be kept."""
    for name, said in recorded.items():
        if isinstance(said, dict) and LOST in said:
            raise RcaError(f"its state `{name}` was not kept ({said[LOST]})", hint="`state` gives tensors by name for each group, not nested")
    return {name: recording.tensors(said, process) if isinstance(said, str) and DIGEST.fullmatch(said) else said for name, said in recorded.items()}


def random_states(recording: Recording, request: Request) -> dict[str, Any]:
    """The states of the generators that all of a process share, by the names that `again` knows."""
    found: dict[str, Any] = {}
    for name, digest in request.rng.items():
        for inner, tensor in recording.tensors(digest, request.process).items():
            found["torch" if (name, inner) == ("torch", "state") else f"{name}.{inner}"] = tensor
    return found
