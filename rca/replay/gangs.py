"""Which requests need each other: the ranks of one world, and both ends of a weight update. A gang is played together, in the order in which its requests began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rca.replay.cases import Case, order

#: Calls that are two ends of one thing.
PAIRED = {"upload_weights": "weights_update", "update_weights": "weights_update"}
#: Calls that a role's ranks can only do all together: they reduce over the whole world.
COLLECTIVE = {("train", "train_batch")}


def gangs(requests: Iterable[Any]) -> list[list[Any]]:
    """Requests that belong together, by their beginning; each worker is in a gang once."""
    open_: dict[tuple[Any, ...], list[Any]] = {}
    found: list[list[Any]] = []
    for request in sorted(requests, key=order):
        paired = PAIRED.get(request.method)
        key = (request.attempt, request.step, paired) if paired else (request.attempt, request.step, request.role, request.method)
        gang = open_.get(key)
        if gang is None or any((r.role, r.rank, r.method) == (request.role, request.rank, request.method) for r in gang):
            gang = open_[key] = []
            found.append(gang)
        gang.append(request)
    return found


def lacking(gang: Iterable[Any], config: Any) -> list[str]:
    """Who is missing for a gang to be played: what waits for a peer that is not there fails for that alone, whatever failed then. As in `train_batch of train/1`."""
    there = {(r.role, r.rank, r.method) for r in gang}
    methods = {method for _, _, method in there}
    wanted: set[tuple[str, int, str]] = set()
    if "train_batch" in methods:
        wanted |= {("train", rank, "train_batch") for rank in range(config.train_ranks)}
    if "update_weights" in methods or (config.weight_sync == "collective" and ("train", 0, "upload_weights") in there):
        wanted.add(("train", 0, "upload_weights"))
        if config.weight_sync == "collective":
            wanted |= {("rollout", rank, "update_weights") for rank in range(config.rollout_ranks)}
    return [f"{method} of {role}/{rank}" for role, rank, method in sorted(wanted - there)]


def inseparable(gang: Iterable[Any], config: Any) -> bool:
    """Whether none of a gang can end well without the others."""
    return any((r.role, r.method) in COLLECTIVE or (r.method in PAIRED and config.weight_sync == "collective") for r in gang)


def after(case: Case, gang: Iterable[Case]) -> list[Case]:
    """Those of a gang that had ended before this one began. One that never reached its worker has not been done: nobody waited for it."""
    return [other for other in gang if other is not case and other.request is not None and other.ended_ns is not None and other.ended_ns <= case.begun_ns]
