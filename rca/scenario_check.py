"""Compare what the analyzer says of a scenario's logs with what really broke. Only a copy of `logs/` is given to it, under a name that tells nothing."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rca.errors import RcaError

#: Names of one stage in different programs.
SAME_STAGES = ({"init", "load"}, {"save", "latest_recover_save", "periodic_recover_save"}, {"recover", "load"})
CONFIDENT = 0.8
VERDICTS = ("failed", "healthy", "inconclusive")
#: What replaying the run's requests gives; the fourth is for runs in which none failed.
REPLAYS = ("reproduces", "does not reproduce", "diverges", "healthy")
REPLAYED = "replay.rca.jsonl"  # the result of `rca replay`, among the logs


@dataclass(frozen=True)
class Checked:
    """One answer against the truth. `cause` is True or False where a cause was there to be named and an answer was given, None otherwise."""

    answer: str
    problems: tuple[str, ...]
    cause: bool | None = None
    abstained: bool = False  # said `inconclusive` where something had broken
    sure_and_wrong: bool = False  # a cause or a place, at 0.8 or more, that is not the true one

    @property
    def right(self) -> bool:
        return not self.problems


def compare(folder: Path) -> Checked:
    """Analyze `folder/logs` and compare with `folder/truth.json`. Raises RcaError where one of them cannot be read or is no truth."""
    import rca

    file = folder / "truth.json"
    try:
        truth = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RcaError(f"cannot read the truth: {error}", where=str(file)) from error
    if (what := _malformed(truth)) is not None:
        raise RcaError(f"this is no truth: {what}", where=str(file))
    if not (folder / "logs").is_dir():
        raise RcaError("there are no logs beside the truth", where=str(folder))
    if truth.get("finishes") and (folder / "logs" / REPLAYED).exists():  # what the logs alone cannot tell, a replay does
        truth = {name: value for name, value in truth.items() if name != "verdict_accept"}
    with tempfile.TemporaryDirectory(prefix="rca-check-") as scratch:
        logs = Path(scratch) / "logs"
        shutil.copytree(folder / "logs", logs)
        report = rca.analyze(str(logs)).document
    return judge(report, truth)


def _malformed(truth: Any) -> str | None:
    """What a truth lacks."""
    if not isinstance(truth, dict):
        return "it is not an object"
    if truth.get("verdict_expected") not in VERDICTS:
        return f"`verdict_expected` must be one of {', '.join(VERDICTS)}"
    if truth["verdict_expected"] == "failed" and not isinstance(truth.get("root_cause_class"), str):
        return "it has no `root_cause_class`"
    if truth.get("replay", REPLAYS[0]) not in REPLAYS:
        return f"`replay` must be one of {', '.join(REPLAYS)}"
    if not isinstance(truth.get("faulty_entity") or {}, dict):
        return "`faulty_entity` must be an object"
    lists = ("accept", "verdict_accept", "cause_stage_accept", "symptom_stage_accept")
    return next((f"`{name}` must be a list" for name in lists if not isinstance(truth.get(name, []), list)), None)


def judge(report: dict[str, Any], truth: dict[str, Any]) -> Checked:
    """A report against a truth in the form of labelled cases."""
    problems = []
    verdict, wanted = report["verdict"], truth.get("verdict_accept") or [truth["verdict_expected"]]
    broken = truth["verdict_expected"] == "failed"
    if verdict not in wanted:
        problems.append(f"verdict {verdict}, it is {' or '.join(wanted)}")
    if verdict == "healthy" and report["hypotheses"]:
        problems.append("healthy, with hypotheses")
    first = report["hypotheses"][0] if report["hypotheses"] and verdict == "failed" else None
    answer = verdict if first is None else f"{first['cause']} {first['confidence']:.2f} {_where(first['entity'])}, {first['cause_stage']} step {first['cause_step']} -> {first['symptom_stage']} step {first['symptom_step']}"
    if first is None or not broken:
        missed = verdict == "healthy" and "healthy" not in wanted
        return Checked(answer, tuple(problems), False if broken and missed else None, broken and verdict == "inconclusive", first is not None and first["confidence"] >= CONFIDENT)
    accepted = list(dict.fromkeys([truth["root_cause_class"], *truth.get("accept", [])]))
    cause = first["cause"] in accepted
    if not cause:
        problems.append(f"cause {first['cause']}, it is {' or '.join(accepted)}")
    for name in ("cause", "symptom"):
        if (true := truth.get(f"{name}_stage")) and not _same_stage(first[f"{name}_stage"], [true, *truth.get(f"{name}_stage_accept", [])]):
            problems.append(f"{name}_stage {first[f'{name}_stage']}, it is {true}")
        step = truth.get(f"{name}_step")
        if isinstance(step, int) and first[f"{name}_step"] != step:
            problems.append(f"{name}_step {first[f'{name}_step']}, it is {step}")
    misplaced = _misplaced(first["entity"], truth.get("faulty_entity") or {})
    elsewhere = any(" None, " not in place for place in misplaced)  # a place that is left open is no wrong one
    return Checked(answer, (*problems, *misplaced), cause, False, (not cause or elsewhere) and first["confidence"] >= CONFIDENT)


def _misplaced(said: dict[str, Any], true: dict[str, Any]) -> list[str]:
    """What of the place is wrong: everything that the truth names, but a role or a rank that the report leaves open where host or device say enough."""
    enough = said.get("host") is not None and said.get("host") == true.get("host")
    found = []
    for name in ("host", "gpu", "rank", "role"):
        if true.get(name) is not None and said.get(name) != true[name] and not (enough and name in ("role", "rank") and said.get(name) is None):
            found.append(f"{name} {said.get(name)}, it is {true[name]}")
    return found


def _same_stage(said: str | None, true: list[str]) -> bool:
    return any(said == one or any(said in group and one in group for group in SAME_STAGES) for one in true)


def _where(entity: dict[str, Any]) -> str:
    return " ".join(f"{name} {entity[name]}" for name in ("host", "role", "rank", "gpu", "path") if entity.get(name) is not None) or "nowhere"
