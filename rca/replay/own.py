"""Replay in a trainer of your own: your script builds what the recorded run had, and its recorded requests are played to it, in this process.

    from rca.replay.own import play

    trainer = Trainer()
    play("runs/7", {"train_batch": trainer.train_batch}, restore=trainer.load_state)

Under torchrun each rank plays its own requests, `RANK` says which. What cannot be told here, whether an input had come to harm on its way, is left open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay import result
from rca.replay.alike import differences
from rca.replay.answer import Answer
from rca.replay.cases import OK, Case, cases
from rca.replay.compare import CANNOT_TELL, DIVERGES
from rca.replay.outcome import Replayed, judged
from rca.replay.recording import Recording
from rca.replay.values import as_recorded, groups, random_states, value
from rca.replay.verdict import decide
from rca.replay_trainer.again import set_random
from rca.trace_inject.requests import joined


def play(
    run: str | Path, methods: Mapping[str, Callable[..., Any]], *, restore: Callable[[dict[str, Any]], Any] | None = None, role: str | None = None, rank: int | None = None,
    step: int | None = None, other_versions: bool = False,
) -> result.Outcome:  # fmt: skip
    """Play this worker's recorded requests in their order, and write `replay-<role>-<rank>.rca.jsonl` beside the run; gives what came of them.

    `methods` has what each recorded method is called with its recorded values by name; `restore` is given the recorded state before each, group -> tensors by name, or a
    plain value. `role` and `rank` are those of this process (`RCA_ROLE`, `RANK`) where the recording has more than one. Requests whose state cannot be brought back because there is no `restore`
    are played in the state that the one before left. Raises RcaError for a recording that cannot be used, naming the file.
    """
    folder = Path(run)
    recording = Recording.read(folder)
    others = differences(recording, other_versions)
    all_cases = cases(recording)
    role, rank = _who(all_cases, role, rank, folder)
    mine = [case for case in all_cases if case.request is not None and (case.side.role, case.side.rank) == (role, rank) and step in (None, case.side.step)]
    played = [_one(recording, case, methods, restore) for case in mine]
    of_failure = [case for case in mine[-1:] if case.recorded != OK]  # what failed before was survived
    verdict = decide(None, of_failure, played, None, all_cases, None, not others) if of_failure or any(one.outcome == DIVERGES for one in played) else None
    file = result.place(folder, f"{role}-{rank}")
    result.write(file, result.header(not others), played, None, verdict.record() if verdict is not None else None)
    return result.Outcome(played, None, verdict, file, list(recording.gaps))


def _who(all_cases: list[Case], role: str | None, rank: int | None, folder: Path) -> tuple[str, int | None]:
    """Whose requests are played. Raises RcaError where several could be meant."""
    role = role or os.environ.get("RCA_ROLE")
    said = os.environ.get("RANK", "")
    rank = rank if rank is not None else int(said) if said.isdecimal() else None
    there = sorted({(case.side.role, case.side.rank) for case in all_cases if case.request is not None}, key=str)
    fitting = [who for who in there if role in (None, who[0]) and rank in (None, who[1])]
    if len(fitting) != 1:
        raise RcaError(f"whose requests? {', '.join(f'{who[0]}/{who[1]}' for who in there[:8])} are recorded", where=str(folder), hint="play(..., role=..., rank=...) says it")
    return fitting[0]


def _one(recording: Recording, case: Case, methods: Mapping[str, Callable[..., Any]], restore: Callable[[dict[str, Any]], Any] | None) -> Replayed:
    request = case.request
    assert request is not None
    method = methods.get(request.method) or methods.get(request.method.rpartition(".")[2])
    if method is None:
        return Replayed(case, "unfinished", CANNOT_TELL, f"{case.where} is not among the methods that were given")
    try:
        values = value(recording, request.args, request.process)
        expected = value(recording, request.result, request.process) if request.outcome == OK and request.result is not None else None
        if restore is not None:
            restore(groups(recording, request.state, request.process))
        set_random(random_states(recording, request))
    except RcaError as error:
        return Replayed(case, "unfinished", CANNOT_TELL, f"{case.where} cannot be played: {error}" + (f" ({error.where})" if error.where else ""))
    if request.outcome == OK and request.result is None:
        expected = {}
    try:
        given = method(**values)
    except Exception as error:
        return judged(case, Answer("error", error=str(error)), expected, None)
    return judged(case, Answer(OK, _named(given)), expected, None)


def _named(given: Any) -> dict[str, Any]:
    """A result as the recording has it."""
    if isinstance(given, Iterator):
        given = joined(list(given))
    return {} if given is None else as_recorded(given if isinstance(given, Mapping) else {"value": given})
