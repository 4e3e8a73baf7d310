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
from rca.replay.bed import PATIENCE_S, Bed
from rca.replay.cases import OK, Case, cases, failed
from rca.replay.compare import CANNOT_TELL, REPRODUCES
from rca.replay.files import broken_file
from rca.replay.gangs import gangs
from rca.replay.handovers import first_broken
from rca.replay.outcome import Replayed, judged
from rca.replay.recording import FileRead, Recording
from rca.replay.step import play_step, save_again
from rca.replay.verdict import NotPlayed, decide
from rca.replay_trainer.config import METRICS, NAME, Config

SAY_EVERY_S = 2.0


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
                broken = broken_file(again, all_cases, functools.partial(_file_again, recording, bed, places)) or first_broken(all_cases, max(of_failure, key=lambda case: case.side.start_ns), functools.partial(parts.rows, recording))
            verdict = decide(told, of_failure, played, broken, all_cases, lambda: play_step(recording, config, told, all_cases, bed, places, say), not others)
        elif any(one.outcome == "diverges" for one in played):
            verdict = decide(told, [], played, None, all_cases, None, not others)
    file = None
    if swap or prepared is not None:  # what follows another device, or a fault that was made, says nothing of the run
        verdict = None
    else:
        file = result.place(run, f"step-{choice.step}" if choice.step is not None else f"request-{choice.request}" if choice.request is not None else None)
        result.write(file, result.header(not others), played, broken, verdict.record() if verdict is not None else None)
    return result.Outcome(played, broken, verdict, file, notes)


def _play(recording: Recording, chosen: Sequence[Case], bed: Bed, places: parts.Places, say: Callable[[str], Any], all_cases: Sequence[Case]) -> list[Replayed]:
    """The chosen requests, with the gangs that they are in."""
    requests = [case.request for case in all_cases if case.request is not None]
    case_of = {id(case.request): case for case in all_cases if case.request is not None}
    wanted = {id(request) for request in requests if any(case_of[id(request)] is case for case in chosen)}
    all_gangs: list[list[Any]] = [gang for gang in gangs(requests) if any(id(request) in wanted for request in gang)]
    all_gangs += [[case] for case in chosen if case.request is None]
    found: list[Replayed] = []
    said = time.monotonic()
    for number, gang in enumerate(all_gangs, 1):
        of_gang = [one if isinstance(one, Case) else case_of[id(one)] for one in gang]
        try:
            played = [parts.unreceived(recording, case.call, requests, places) if case.request is None else parts.part(recording, case.request, places, gang) for case in of_gang]  # type: ignore[arg-type]
            answers = bed.play(played)
            found += [_judge(recording, case, answer, places) for case, answer in zip(of_gang, answers, strict=True) if case.request is None or id(case.request) in wanted]
        except RcaError as error:  # of one gang: a blob that was not kept, or is damaged
            where = f" ({error.where})" if error.where else ""
            found += [Replayed(case, "unfinished", CANNOT_TELL, f"{case.where} cannot be played: {error}{where}") for case in of_gang if case.request is None or id(case.request) in wanted]
        if number == len(all_gangs) or time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            say(f"{number} of {len(all_gangs)} played: {of_gang[0].where}")
    return sorted(found, key=lambda one: (one.case.side.start_ns, one.case.worker))


def _file_again(recording: Recording, bed: Bed, places: parts.Places, writer: Case, file: FileRead) -> Path | None:
    """Where a file lies that a save has written once more; None where it cannot be."""
    try:
        save_again(recording, writer, bed, places)
    except (RcaError, NotPlayed):
        return None
    return places.file(file.path)


def _judge(recording: Recording, case: Case, answer: Answer, places: parts.Places) -> Replayed:
    try:
        expected, after = parts.expected(recording, case.request, places)
    except RcaError as error:
        return Replayed(case, answer.outcome, CANNOT_TELL, f"{case.where}: what came of it then cannot be read: {error}")
    return judged(case, dataclasses.replace(answer, error=places.back(answer.error)), expected, after)


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
    of_failure = [] if choice.failed is None and finished(run) else failed(all_cases, told)
    if choice.failed is False or (choice.failed is None and not of_failure and told is None):
        return list(all_cases), None
    if not of_failure and told is None:
        raise RcaError("nothing failed in this recording", where=str(run), hint="without --failed, all requests are replayed")
    places = {(case.attempt, case.side.step) for case in of_failure}
    # The rest of the step as well: what gives the same bits shows that the numbers can be trusted.
    return [case for case in all_cases if case.recorded != OK or (case.attempt, case.side.step) in places], of_failure


def settings(run: Path) -> Config:
    """The settings of the recorded run. Raises RcaError that names the file which is missing."""
    return Config.read(beside(run, NAME))


def failure(run: Path) -> dict[str, Any] | None:
    """What ended the run, as it said itself; None where it did not."""
    try:
        found = json.loads(beside(run, "failed.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def finished(run: Path) -> bool:
    """Whether the run did all its steps: then requests that failed on the way were no failure of the run."""
    if failure(run) is not None:
        return False
    try:
        rows = beside(run, METRICS).read_bytes().splitlines()
        return bool(rows) and int(json.loads(rows[-1])["step"]) >= settings(run).steps
    except (OSError, ValueError, KeyError, TypeError):
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


