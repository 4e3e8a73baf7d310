"""Play one step whole: the real controller, on fresh workers in the state that they had when the step began."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay import files, parts
from rca.replay.bed import Bed
from rca.replay.cases import Case
from rca.replay.recording import Recording
from rca.replay.values import value
from rca.replay.verdict import NotPlayed
from rca.replay_trainer import controller, data
from rca.replay_trainer.rpc import Caller

#: Stages before the first step that can be played.
RECOVERY = ("recover", "load")


def play_step(
    recording: Recording, run: Path, told: Mapping[str, Any] | None, all_cases: Sequence[Case], bed: Bed, places: parts.Places, say: Callable[[str], Any]
) -> str | None:
    """The error with which the failing step ends now, or None if it ends well. Raises NotPlayed."""
    step = told.get("step") if told else None
    if step is None and (told or {}).get("stage") not in RECOVERY:
        raise NotPlayed(f"the run failed outside of its steps, in stage `{(told or {}).get('stage')}`, which is not played")
    attempt = max((case.attempt for case in all_cases), default=0)
    say(f"playing {'the recovery' if step is None else f'step {step}'} whole, by the controller")
    try:
        bed.renew()
    except RcaError as error:
        raise NotPlayed(str(error)) from error
    assert bed.caller is not None
    caller = Caller(bed.config, bed.caller.workers)
    loop = controller.Loop(bed.config, bed.run, caller)
    try:
        _prepare(recording, run, all_cases, attempt, step, bed, places)
        if step is None:
            loop.recover()
        else:
            loop.step(step)
    except NotPlayed:
        raise
    except Exception as error:  # the controller ends at whatever is raised
        return f"{type(error).__name__}: {error}"[: controller.ERROR_MAX]  # as `failed.json` has it
    finally:
        caller.close()
        bed.close_workers()
    return None


def _prepare(recording: Recording, run: Path, all_cases: Sequence[Case], attempt: int, step: int | None, bed: Bed, places: parts.Places) -> None:
    """The state in which the step, or the recovery, began. Raises NotPlayed."""
    try:
        if step is None:
            _make_again(recording, all_cases, attempt, bed, places)
        else:
            _restore(recording, all_cases, attempt, step, bed)
            _prompts(recording, run, all_cases, attempt, step, bed)
    except parts.UNUSABLE as error:
        raise NotPlayed(str(error)) from error


def _prompts(recording: Recording, run: Path, all_cases: Sequence[Case], attempt: int, step: int, bed: Bed) -> None:
    """The prompts of the step: those that were prepared beside the run, or else what the rollout workers were given. Raises NotPlayed, RcaError."""
    theirs, mine = data.file_of(run, step), data.file_of(bed.run, step)
    given = {case.request.rank: case.request for case in all_cases if case.request is not None and (case.attempt, case.side.step, case.side.method) == (attempt, step, "generate")}
    try:
        mine.parent.mkdir(parents=True, exist_ok=True)
        if theirs.is_file():
            shutil.copyfile(theirs, mine)
        elif set(given) == set(range(bed.config.rollout_ranks)):
            rows = [row for _, request in sorted(given.items()) for row in value(recording, request.args, request.process)["prompts"].tolist()]  # [P, L]
            mine.write_text(json.dumps(rows), "utf-8")
    except OSError as error:
        raise NotPlayed(f"the prompts of the step cannot be read: {theirs}: {(error.strerror or str(error)).lower()}") from error


def _restore(recording: Recording, all_cases: Sequence[Case], attempt: int, step: int, bed: Bed) -> None:
    """Every worker in the state that it had before its first request of the step, or after its last one before."""
    assert bed.caller is not None
    states = {}
    for role, workers in bed.caller.workers.items():
        for worker in workers:
            mine = [case.request for case in all_cases if case.request is not None and (case.request.role, case.request.rank) == (role, worker.rank) and case.attempt == attempt]
            at = next((request for request in mine if request.step == step), None)
            before = [request for request in mine if request.step is None or request.step < step]
            if at is not None:
                states[role, worker.rank] = parts.state(recording, at, at.state)
            elif before:
                states[role, worker.rank] = parts.state(recording, before[-1], {**before[-1].state, **(before[-1].after or {})})
            else:
                raise NotPlayed(f"nothing was recorded of {worker.name} up to step {step}")
    bed.restore(states)


def _make_again(recording: Recording, all_cases: Sequence[Case], attempt: int, bed: Bed, places: parts.Places) -> None:
    """The checkpoints that the recovery read, written again by the requests that had saved them."""
    readers = [case for case in all_cases if case.attempt == attempt and case.side.step is None]
    saves = files.writers(readers, all_cases)
    if not saves:
        raise NotPlayed("which requests saved what the recovery read is not in the recording")
    for case in saves:
        save_again(recording, case, bed, places)


def save_again(recording: Recording, case: Case, bed: Bed, places: parts.Places) -> None:
    """Write a checkpoint of the recording into the bed. Raises NotPlayed."""
    assert case.request is not None
    answers = bed.play([parts.part(recording, case.request, places)], keep_files=True)
    if answers[0].outcome != "ok":
        raise NotPlayed(f"{case.where} fails: {answers[0].error}")
