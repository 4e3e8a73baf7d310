"""Play one step whole: the real controller, on fresh workers in the state that they had when the step began."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rca.errors import RcaError
from rca.replay import files, parts
from rca.replay.bed import Bed
from rca.replay.cases import Case
from rca.replay.recording import Recording
from rca.replay.verdict import NotPlayed
from rca.replay_trainer import controller
from rca.replay_trainer.config import Config
from rca.replay_trainer.rpc import Caller


def play_step(recording: Recording, config: Config, told: Mapping[str, Any] | None, all_cases: Sequence[Case], bed: Bed, places: parts.Places, say: Callable[[str], Any]) -> str | None:
    """The error with which the failing step ends now, or None if it ends well. Raises NotPlayed."""
    step = told.get("step") if told else None
    attempt = max((case.attempt for case in all_cases), default=0)
    say(f"playing {'the recovery' if step is None else f'step {step}'} whole, by the controller")
    bed.renew()
    assert bed.caller is not None
    caller = Caller(bed.config, bed.caller.workers)
    loop = controller.Loop(bed.config, bed.run, caller)
    try:
        if step is None:
            _make_again(recording, all_cases, attempt, bed, places)
            loop.recover()
        else:
            _restore(recording, all_cases, attempt, int(step), bed)
            loop.step(int(step))
    except NotPlayed:
        raise
    except RcaError as error:
        raise NotPlayed(str(error)) from error
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        caller.close()
        bed.close_workers()
    return None


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
