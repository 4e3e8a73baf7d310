"""Make a scenario's fault again: the whole run in hosts of its own, or, where only a device was at fault, on the bed that replays requests."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay.bed import Bed
from rca.replay.cases import OK, cases
from rca.replay.compare import same_error
from rca.replay.recording import Recording
from rca.replay.replay import failure
from rca.replay_trainer.hosts import Here

ON_A_DEVICE = ("device_fault", "device_leak", "wrong_results")


@dataclass(frozen=True)
class Faulty:
    """What came of a run with its fault made again: whether it failed the same, and lines for people."""

    same: bool
    lines: tuple[str, ...]


def truth_of(run: Path) -> dict[str, Any]:
    """What broke in a played scenario. Raises RcaError for a run that is none."""
    file = run / "truth.json"
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RcaError(f"the fault is not known: {error.strerror if isinstance(error, OSError) else error}", where=str(file), hint="--with-fault takes a scenario that `rca scenarios run` played") from error
    if not isinstance(found, dict):
        raise RcaError("this is no truth: it is not an object", where=str(file))
    return found


def play_again(run: Path, say: Callable[[str], Any] = lambda text: None) -> Faulty:
    """Play the scenario again with the same faults, and compare how it ends and what every request gave. Raises RcaError."""
    from rca.replay_trainer.play import NotMade, cannot, play
    from rca.replay_trainer.scenario import again

    scenario = again(truth_of(run))
    if reason := cannot(scenario):
        raise RcaError(f"the fault cannot be made here: {reason}", hint="`rca scenarios list` says what this machine allows")
    with tempfile.TemporaryDirectory(prefix="rca-faulty-") as scratch:
        out = Path(scratch) / "again"
        try:
            play(scenario, out, say)
        except NotMade as error:
            return Faulty(False, (f"with the fault made again, the run does not end as it did: {error}",))
        then, now = failure(run), failure(out)
        count, identical = _same_requests(Recording.read(run), Recording.read(out))
    told = [(f"{found.get('stage')}, step {found.get('step')}: {found.get('error')}" if found else "finished") for found in (then, now)]
    same = (then is None) == (now is None) and (then is None or (then.get("stage"), same_error(then.get("error"), now.get("error") if now else "")) == (now.get("stage") if now else None, True))
    bits = f"{identical} of {count} requests that went well both times gave the same bits"
    if same:
        return Faulty(True, ("reproduces with the fault: the run ends the same way", f"  {told[1]}", bits))
    return Faulty(False, ("does not reproduce with the fault: the run ends otherwise", f"  then: {told[0]}", f"  now:  {told[1]}", bits))


def _same_requests(one: Recording, other: Recording) -> tuple[int, int]:
    """How many requests went well in both, and how many of those gave the same bits."""
    results = [{_name(case): case.request.result.digests for case in cases(found) if case.request is not None and case.request.result is not None and case.recorded == OK} for found in (one, other)]
    both = results[0].keys() & results[1].keys()
    return len(both), sum(results[0][name] == results[1][name] for name in both)


def _name(case: Any) -> tuple[Any, ...]:
    side = case.side
    return (case.attempt, side.step, side.stage, side.role, side.rank, side.method)


class _Scene:
    """A bed, as a fault of a device sees it."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.run = bed, bed.run

    def device(self, role: str, rank: int) -> Path:
        from rca.replay_trainer.train import device_folder

        return device_folder(self.bed.config, self.bed.run, role, rank)

    def host(self, role: str, rank: int) -> Here:
        return Here()

    def remember(self, **facts: Any) -> None:
        """Nobody asks."""


def device_faults(run: Path) -> Callable[[Bed], Any]:
    """What makes a scenario's faults of devices on a bed. Raises RcaError for a scenario that broke nothing of that kind."""
    from rca.replay_trainer import faults
    from rca.replay_trainer.scenario import again

    acts = [act for act in again(truth_of(run)).acts if act.fault in ON_A_DEVICE]
    if not acts:
        raise RcaError("--swap with --with-fault takes a fault that stays with a device", where=str(run), hint=f"as {', '.join(ON_A_DEVICE)} do; without --swap, the whole run is played again")

    def prepare(bed: Bed) -> None:
        for act in acts:
            faults.load(act.fault).make(_Scene(bed), role=act.role, rank=act.rank, **act.how)

    return prepare
