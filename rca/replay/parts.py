"""From the recording to what the bed plays: arguments, state, random states and files of a request, at the places that the bed has for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay.bed import Bed, Part
from rca.replay.cases import Case
from rca.replay.recording import Call, Recording, Request
from rca.replay.values import groups, random_states, value
from rca.replay_trainer.checkpoints import KEPT
from rca.replay_trainer.config import Config
from rca.replay_trainer.launch import TEMPORARY

#: What comes of a request whose recording is damaged: its values are of any form.
UNUSABLE = (RcaError, OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError, RuntimeError)
METHOD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


class Places:
    """Where the recorded run had its checkpoints, and where the bed has them."""

    def __init__(self, config: Config, seen: Path, bed: Bed) -> None:
        self.bed = bed.run
        self.moved = sorted(((str(config.folder_of(seen, kind)), str(bed.config.folder_of(bed.run, kind))) for kind in KEPT), key=lambda pair: -len(pair[0]))
        self.moved.append((str(seen), str(bed.run)))

    def there(self, value: Any) -> Any:
        """A value with the paths in it as the bed has them."""
        if isinstance(value, str):
            return next((new + value[len(old) :] for old, new in self.moved if value == old or value.startswith(old + "/")), value)
        if isinstance(value, Mapping):
            return {name: self.there(inner) for name, inner in value.items()}
        return [self.there(inner) for inner in value] if isinstance(value, list) else value

    def back(self, text: str) -> str:
        """A text of the bed with the paths in it as the recorded run had them."""
        for old, new in self.moved:
            text = text.replace(new, old)
        return text

    def file(self, path: str) -> Path | None:
        """A file of the recording in the bed; None for one that lay elsewhere, which the bed does not write, and for the files by which the bed itself lives."""
        found = Path(self.there(path))
        if ".." in found.parts or not found.is_relative_to(self.bed):
            return None
        inside = found.relative_to(self.bed).parts
        return found if len(inside) > 1 and inside[0] not in TEMPORARY else None


def part(recording: Recording, request: Request, places: Places) -> Part:
    """A request as the bed takes it. Raises RcaError that names the blob which is missing or damaged."""
    arguments = value(recording, request.args, request.process)
    files = [(place, recording.bytes(read.digest, request.process)) for read in request.files if (place := places.file(read.path)) is not None]
    return Part(
        request.role,
        rank_of(request),
        request.method,
        places.there(arguments),
        state(recording, request, request.state),
        random_states(recording, request),
        files,
    )


def rank_of(side: Request | Call) -> int:
    """Raises RcaError for a process that has none, and for what is no call of a worker."""
    if not METHOD.match(side.method):
        raise RcaError(f"no call of a worker: `{side.method[:80]}`", where=f"{side.source}:{side.line}")
    if side.rank is None:
        raise RcaError(f"which {side.role} it was is not recorded", where=f"{side.source}:{side.line}")
    return side.rank


def unreceived(recording: Recording, case: Case, all_cases: Iterable[Case], places: Places) -> Part:
    """A request that never reached its worker, as its caller sent it, in the state that the worker had then. Raises RcaError."""
    assert case.call is not None
    call = case.call
    mine = [other for other in all_cases if other.request is not None and (other.attempt, other.worker) == (case.attempt, case.worker)]
    ended = [other for other in mine if other.ended_ns is not None and other.ended_ns <= case.begun_ns]
    earlier = max(ended, key=lambda other: other.ended_ns or 0).request if ended else None
    if earlier is None:
        raise RcaError(f"nothing was recorded of {call.role}/{call.rank} before {call.method}", where=f"{call.source}:{call.line}")
    return Part(
        call.role,
        rank_of(call),
        call.method,
        places.there(value(recording, call.sent, call.process)),
        state(recording, earlier, {**earlier.state, **earlier.after}),
        random_states(recording, earlier),
    )


def state(recording: Recording, request: Request, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of a state: tensors for those that are blobs, plain values as they are."""
    found = groups(recording, recorded, request.process)
    if not found:
        raise RcaError(f"the state of {request.role}/{request.rank} before {request.method} was not recorded", where=f"{request.source}:{request.line}")
    return found


def expected(recording: Recording, request: Request | None, places: Places) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The recorded result and the state after it; None for what was not recorded."""
    if request is None or request.outcome != "ok" or request.result is None:
        return None, None
    result = places.there(value(recording, request.result, request.process))
    return result, groups(recording, {**request.state, **request.after}, request.process) or None


def rows(recording: Recording, case: Case, name: str) -> tuple[int, int] | None:
    """How many rows of a tensor of an answer were made, and how many arrived; None where that is not recorded."""
    sizes = []
    for recorded, side in ((case.request and case.request.result, case.request), (case.call and case.call.arrived, case.call)):
        try:
            tensor = recording.tensors(recorded.tensors, side.process).get(name) if recorded and side else None
        except RcaError:
            return None
        if tensor is None or not tensor.dim():
            return None
        sizes.append(len(tensor))
    return sizes[0], sizes[1]
