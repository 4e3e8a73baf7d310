"""What a worker offers when requests are played to it again: the state of another process, put in place of its own.

`restore` takes groups as `Service.state` gives them, flat: `weights/NAME`, `optimizer/NAME`, `held`, and the random states `rng/torch`, `rng/python.words` and
`rng/python.gauss`. Only workers that `rca replay` starts offer it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch

REPLAYED = "RCA_REPLAYED"  # in the environment of such workers
RNG = "rng"
PYTHON_RANDOM = random.getstate()[0]  # the version of its state


def offered(service: Any) -> dict[str, Any]:
    """The further calls of a worker that is replayed, by name; none otherwise."""
    return {"restore": _restorer(service.restore), "state": lambda values: flat(service.state())} if os.environ.get(REPLAYED) else {}


def flat(groups: Mapping[str, Any]) -> dict[str, Any]:
    """Groups of tensors as one dictionary of them.

    >>> flat({"weights": {"a": 1}, "held": 2})
    {'weights/a': 1, 'held': 2}
    """
    found: dict[str, Any] = {}
    for group, said in groups.items():
        value = said() if callable(said) else said
        found |= {f"{group}/{name}": inner for name, inner in value.items()} if isinstance(value, Mapping) else {group: value}
    return found


def grouped(values: Mapping[str, Any]) -> dict[str, Any]:
    """The contrary of `flat`.

    >>> grouped({"weights/a": 1, "held": 2})
    {'weights': {'a': 1}, 'held': 2}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        group, slash, inner = name.partition("/")
        if slash:
            found.setdefault(group, {})[inner] = value
        else:
            found[name] = value
    return found


def set_random(states: Mapping[str, Any]) -> None:
    """Put this process's generators into such states: `torch`, `python.words` and `python.gauss`."""
    if isinstance(states.get("torch"), torch.Tensor):
        torch.set_rng_state(states["torch"])
    if isinstance(states.get("python.words"), torch.Tensor):
        gauss = states["python.gauss"].tolist()
        random.setstate((PYTHON_RANDOM, tuple(states["python.words"].tolist()), gauss[0] if gauss else None))


def _restorer(restore: Callable[[Mapping[str, Any]], None]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def call(values: dict[str, Any]) -> dict[str, Any]:
        groups = grouped(values)
        set_random(groups.pop(RNG, {}))
        restore(groups)
        return {}

    return call
