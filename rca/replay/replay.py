"""Replay a recorded run: choose requests, play their gangs, compare, follow a failure to where its input was damaged, and say what it means."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay import parts, result
from rca.replay.alike import differences
from rca.replay.answer import Answer
from rca.replay.bed import PATIENCE_S, Bed, Part
from rca.replay.cases import OK, Case, cases, failed
from rca.replay.compare import CANNOT_TELL, DIVERGES, REPRODUCES, first_difference
from rca.replay.files import broken_file
from rca.replay.gangs import after, gangs, inseparable, lacking
from rca.replay.handovers import first_broken
from rca.replay.outcome import Replayed, blamed, judged
from rca.replay.recording import FileRead, Recording
from rca.replay.step import play_step, save_again
from rca.replay.verdict import NotPlayed, decide
from rca.replay_trainer.config import METRICS, NAME, Config
from rca.replay_trainer.launch import LOCK

SAY_EVERY_S = 2.0
RANKS_MAX = 256
PATIENT = 10.0  # times as long as the slowest of its kind has taken: what has not ended then hangs


@dataclass(frozen=True)
class Choice:
    """Which requests: one by its id, those of a step, those that failed, or all; where `failed` is None, those that failed, if the run did."""

    request: str | None = None
    step: int | None = None
    failed: bool | None = None


def replay(
    run: Path, choice: Choice, *, swap: Mapping[str, int] | None = None, patience_s: float = PATIENCE_S, other_versions: bool = False,
    say: Callable[[str], Any] = lambda text: None, prepared: Callable[[Bed], Any] | None = None,
) -> result.Outcome:  # fmt: skip
    """Play recorded requests again and write `replay.rca.jsonl` beside the run; with other devices or faults nothing is written. Raises RcaError for a recording that cannot be used, naming the file."""
    import torch

    torch.set_num_threads(1)  # what is compared is small, and the workers need the cores
    recording = Recording.read(run)
    config, told = settings(run), failure(run)
    others = differences(recording, other_versions)
    all_cases = cases(recording)
    chosen, of_failure = _chosen(all_cases, choice, told, run)
    notes = [*recording.gaps, *([f"other numbers are no evidence here: {'; '.join(others)}"] if others else [])]
    seen = Path(next((header.folder for header in recording.headers if header.folder), str(run)))
    roles = {case.side.role for case in chosen} | ({"train", "rollout", "reference"} if of_failure is not None else set())
    bed = Bed(config, {*roles, "meta_server"}, say, patience_s, slots=_slots(swap, config))
    if prepared is not None:
        bed.prepared = prepared
    with bed:
        played = _play(recording, chosen, bed, parts.Places(config, seen, bed), say, all_cases)
        broken, verdict = None, None
        if of_failure is not None:
            places = parts.Places(config, seen, bed)
            if of_failure:
                again = [case for case in of_failure if any(one.case is case and one.outcome == REPRODUCES for one in played)]
                broken = broken_file(again, all_cases, functools.partial(_file_again, recording, bed, places)) or first_broken(
                    all_cases, max(of_failure, key=lambda case: case.begun_ns), functools.partial(parts.rows, recording)
                )
            verdict = decide(told, of_failure, played, broken, all_cases, lambda: play_step(recording, beside(run, NAME).parent, told, all_cases, bed, places, say), not others)
        elif any(one.outcome == DIVERGES for one in played):
            verdict = decide(told, [], played, None, all_cases, None, not others)
    file, unwritten = None, None
    if swap or prepared is not None:  # what follows another device, or a fault that was made, says nothing of the run
        verdict = None
    else:
        file = result.place(run, f"step-{choice.step}" if choice.step is not None else f"request-{choice.request}" if choice.request is not None else None)
        try:
            result.write(file, result.header(not others), played, broken, verdict.record() if verdict is not None else None)
        except RcaError as error:  # what was found is told all the same
            file, unwritten = None, error
    return result.Outcome(played, broken, verdict, file, notes, unwritten)


def _play(recording: Recording, chosen: Sequence[Case], bed: Bed, places: parts.Places, say: Callable[[str], Any], all_cases: Sequence[Case]) -> list[Replayed]:
    """The chosen requests, with the gangs that they are in."""
    case_of = {id(case.side): case for case in all_cases}
    wanted = {id(case) for case in chosen}
    all_gangs = [[case_of[id(side)] for side in gang] for gang in gangs(case.side for case in all_cases) if any(id(case_of[id(side)]) in wanted for side in gang)]
    usual = _usual(recording)
    found: list[Replayed] = []
    said = time.monotonic()
    for number, gang in enumerate(all_gangs, 1):
        found += [one for one in _play_gang(recording, gang, all_cases, bed, places, usual) if id(one.case) in wanted]
        if number == len(all_gangs) or time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            say(f"{number} of {len(all_gangs)} played: {gang[0].where}")
    return sorted(found, key=lambda one: one.case.order)


def _play_gang(
    recording: Recording, gang: Sequence[Case], all_cases: Sequence[Case], bed: Bed, places: parts.Places, usual: Mapping[str, float]
) -> list[Replayed]:
    """The requests of a gang, played together, those of them that can be; what cannot is told with the reason."""
    sides = [case.side for case in gang]
    if missing := lacking(sides, bed.config):
        return [
            Replayed(case, "unfinished", CANNOT_TELL, f"{case.where} cannot be played: it needs {', '.join(missing[:3])}, of which nothing was recorded")
            for case in gang
        ]
    found: list[Replayed] = []
    ready: list[tuple[Case, Part]] = []
    for case in gang:
        try:
            ready.append((case, parts.part(recording, case.request, places) if case.request is not None else parts.unreceived(recording, case, all_cases, places)))
        except parts.UNUSABLE as error:  # a blob that was not kept, or is damaged
            found.append(_not_played(case, error))
    if found and inseparable(sides, bed.config):
        return found + [
            Replayed(case, "unfinished", CANNOT_TELL, f"{case.where} cannot be played without {found[0].case.worker}: {found[0].text}") for case, _ in ready
        ]
    together = [case for case, _ in ready]
    for case, part in ready:
        earlier = after(case, together)
        part.waits_for = [number for number, other in enumerate(together) if any(other is one for one in earlier)]
    try:
        answers = bed.play([part for _, part in ready]) if ready else []
    except parts.UNUSABLE as error:
        return found + [_not_played(case, error) for case, _ in ready]
    judged_ = [
        _judge(recording, case, answer, places, bed.patience_s >= PATIENT * usual.get(case.side.method, 0.0))
        for (case, _), answer in zip(ready, answers, strict=True)
    ]
    judged_ = blamed(judged_)
    return found + (_stable(judged_, answers, [part for _, part in ready], bed) if any(one.outcome == DIVERGES for one in judged_) else judged_)


def _stable(judged_: Sequence[Replayed], answers: Sequence[Answer], ready: Sequence[Part], bed: Bed) -> list[Replayed]:
    """Other numbers are evidence only where they are the same others each time: played once more. On other devices the numbers are theirs."""
    if bed.slots:
        return list(judged_)
    try:
        more = bed.play(ready)
    except parts.UNUSABLE:
        return list(judged_)
    return [
        dataclasses.replace(one, outcome=CANNOT_TELL, text=f"{one.text}; played once more, it gives others again: here it is not the same twice")
        if one.outcome == DIVERGES and other.outcome == OK and first_difference({**first.values, "after": first.after}, {**other.values, "after": other.after}) is not None else one
        for one, first, other in zip(judged_, answers, more, strict=True)
    ]  # fmt: skip


def _not_played(case: Case, error: Exception) -> Replayed:
    where = f" ({error.where})" if isinstance(error, RcaError) and error.where else ""
    return Replayed(case, "unfinished", CANNOT_TELL, f"{case.where} cannot be played: {error}{where}")


def _usual(recording: Recording) -> dict[str, float]:
    """How long the slowest request of each method that went well has taken, seconds."""
    found: dict[str, float] = {}
    for request in recording.requests:
        if request.outcome == OK and request.end_ns is not None:
            found[request.method] = max(found.get(request.method, 0.0), (request.end_ns - request.start_ns) / 1e9)
    return found


def _file_again(recording: Recording, bed: Bed, places: parts.Places, writer: Case, file: FileRead) -> Path | None:
    """Where a file lies that a save has written once more; None where it cannot be."""
    try:
        save_again(recording, writer, bed, places)
    except (RcaError, NotPlayed):
        return None
    return places.file(file.path)


def _judge(recording: Recording, case: Case, answer: Answer, places: parts.Places, patient: bool) -> Replayed:
    try:
        expected, left = parts.expected(recording, case.request, places)
    except parts.UNUSABLE as error:
        return Replayed(case, answer.outcome, CANNOT_TELL, f"{case.where}: what came of it then cannot be read: {error}")
    return judged(case, dataclasses.replace(answer, error=places.back(answer.error)), expected, left, patient)


def _chosen(all_cases: Sequence[Case], choice: Choice, told: dict[str, Any] | None, run: Path) -> tuple[list[Case], list[Case] | None]:
    """The cases to play, and, where the failure is asked for, those that it consists of. Raises RcaError where there are none."""
    if choice.request is not None:
        found = [case for case in all_cases if case.side.request_id == choice.request]
        if not found:
            raise RcaError(f"no such request: `{choice.request}`", where=str(run), hint="`rca replay RUN --list` names them")
        return found, None
    if choice.step is not None:
        found = [case for case in all_cases if case.side.step == choice.step]
        if not found:
            steps = sorted({case.side.step for case in all_cases if case.side.step is not None})
            raise RcaError(f"nothing was recorded of step {choice.step}", where=str(run), hint=f"there are steps {steps[0]} to {steps[-1]}" if steps else "the recording has no steps")
        return found, None
    if choice.failed and going_on(run):
        raise RcaError("the run is going on: it has not failed", where=str(run), hint="without --failed, all requests are replayed")
    of_failure = [] if choice.failed is None and (finished(run) or going_on(run)) else failed(all_cases, told)
    if choice.failed is False or (choice.failed is None and not of_failure and told is None):
        return list(all_cases), None
    if not of_failure and told is None:
        raise RcaError("nothing failed in this recording", where=str(run), hint="without --failed, all requests are replayed")
    places = {(case.attempt, case.side.step) for case in of_failure}
    # The rest of the step as well: what gives the same bits shows that the numbers can be trusted.
    return [case for case in all_cases if case.recorded != OK or (case.attempt, case.side.step) in places], of_failure


def settings(run: Path) -> Config:
    """The settings of the recorded run. Raises RcaError that names the file which is missing, or asks for more workers than a replay can start."""
    file = beside(run, NAME)
    if not file.exists():
        raise RcaError("no settings of `rca train` are here", where=str(file), hint="requests of a trainer of your own are played by `rca.replay.own.play`: docs/replay.md")
    config = Config.read(file)
    if (ranks := config.train_ranks + config.rollout_ranks + config.reference_ranks) > RANKS_MAX:
        raise RcaError(f"the run had {ranks} workers, and a replay starts at most {RANKS_MAX}", where=str(file))
    return config


def failure(run: Path) -> dict[str, Any] | None:
    """What ended the run, as it said itself: `error`, and `step` and `stage` or None; None where it did not."""
    try:
        found = json.loads(beside(run, "failed.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    error, step, stage = found.get("error"), found.get("step"), found.get("stage")
    return {"error": error if isinstance(error, str) else "", "step": step if type(step) is int else None, "stage": stage if isinstance(stage, str) else None}


def finished(run: Path) -> bool:
    """Whether the run did all its steps: then requests that failed on the way were no failure of the run."""
    if failure(run) is not None:
        return False
    try:
        rows = beside(run, METRICS).read_bytes().splitlines()
        return bool(rows) and int(json.loads(rows[-1])["step"]) >= settings(run).steps
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def going_on(run: Path) -> bool:
    """Whether a process has the run: what has not ended may end yet."""
    import fcntl

    try:
        with beside(run, LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def beside(run: Path, name: str) -> Path:
    """A file of the run, in its folder or, in a played scenario, with the recording."""
    return next((path for path in (run / name, run / "recording" / name, run.parent / name) if path.exists()), run / name)


def _slots(swap: Mapping[str, int] | None, config: Config) -> dict[str, int]:
    """Who has whose device: with `rollout=1`, rollout 0 and 1 have each other's."""
    found: dict[str, int] = {}
    for role, rank in (swap or {}).items():
        ranks = {"train": config.train_ranks, "rollout": config.rollout_ranks, "reference": config.reference_ranks}.get(role)
        if ranks is None or not 0 <= rank < ranks:
            raise RcaError(f"no such worker: {role}={rank}", hint=f"the run had {config.train_ranks} train, {config.rollout_ranks} rollout and {config.reference_ranks} reference ranks")
        others = [each for each in range(ranks) if each != rank]
        for first in others[:1]:
            found |= {f"{role}-{first}": rank, f"{role}-{rank}": first}
    return found


