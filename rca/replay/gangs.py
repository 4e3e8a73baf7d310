"""Which requests need each other: the ranks of one world, and both ends of a weight update. A gang is played together, in the order in which its requests began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Calls that are two ends of one thing.
PAIRED = {"upload_weights": "weights_update", "update_weights": "weights_update"}
#: Calls that a role's ranks can only do all together: they reduce over the whole world.
COLLECTIVE = {("train", "train_batch")}


def gangs(requests: Iterable[Any]) -> list[list[Any]]:
    """Requests that belong together, by their beginning; each worker is in a gang once."""
    open_: dict[tuple[Any, ...], list[Any]] = {}
    found: list[list[Any]] = []
    for request in sorted(requests, key=lambda r: (r.start_ns, r.role, r.rank)):
        paired = PAIRED.get(request.method)
        key = (request.attempt, request.step, paired) if paired else (request.attempt, request.step, request.role, request.method)
        gang = open_.get(key)
        if gang is None or any((r.role, r.rank, r.method) == (request.role, request.rank, request.method) for r in gang):
            gang = open_[key] = []
            found.append(gang)
        gang.append(request)
    return found


def completed(chosen: Iterable[Any], all_requests: Iterable[Any]) -> list[list[Any]]:
    """The gangs that have a chosen request in them, whole."""
    wanted = {id(request) for request in chosen}
    return [gang for gang in gangs(all_requests) if any(id(request) in wanted for request in gang)]


def after(request: Any, gang: Iterable[Any]) -> list[Any]:
    """Those of a gang that had ended before this one began."""
    return [other for other in gang if other is not request and other.end_ns is not None and other.end_ns <= request.start_ns]
