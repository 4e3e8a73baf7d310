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


@dataclass(frozen=True)
class Checked:
    answer: str
    problems: tuple[str, ...]
    cause: bool = True  # the cause is right, or there is none to find and none was named
    confident_and_wrong: bool = False

    @property
    def right(self) -> bool:
        return not self.problems


def compare(folder: Path) -> Checked:
    """Analyze `folder/logs` and compare with `folder/truth.json`. Raises RcaError where one of them cannot be read."""
    import rca

    try:
        truth = json.loads((folder / "truth.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RcaError(f"cannot read the truth: {error}", where=str(folder / "truth.json")) from error
    with tempfile.TemporaryDirectory(prefix="rca-check-") as scratch:
        logs = Path(scratch) / "logs"
        shutil.copytree(folder / "logs", logs)
        report = rca.analyze(str(logs)).document
    return judge(report, truth)


def judge(report: dict[str, Any], truth: dict[str, Any]) -> Checked:
    """A report against a truth in the form of labelled cases."""
    problems = []
    verdict, wanted = report["verdict"], truth.get("verdict_accept") or [truth["verdict_expected"]]
    if verdict not in wanted:
        problems.append(f"verdict {verdict}, it is {' or '.join(wanted)}")
    first = report["hypotheses"][0] if report["hypotheses"] and verdict == "failed" else None
    answer = verdict if first is None else f"{first['cause']} {first['confidence']:.2f} {_where(first['entity'])}, {first['cause_stage']} step {first['cause_step']} -> {first['symptom_stage']}"
    confident_and_wrong = first is not None and truth["verdict_expected"] != "failed" and first["confidence"] >= CONFIDENT
    cause = verdict in wanted
    if first is not None and truth["verdict_expected"] == "failed":
        accepted = [truth["root_cause_class"], *truth.get("accept", [])]
        if first["cause"] not in accepted:
            problems.append(f"cause {first['cause']}, it is {' or '.join(dict.fromkeys(accepted))}")
            confident_and_wrong, cause = first["confidence"] >= CONFIDENT, False
        for stage in ("cause_stage", "symptom_stage"):
            if truth.get(stage) and not _same_stage(first[stage], [truth[stage], *truth.get(f"{stage}_accept", [])]):
                problems.append(f"{stage} {first[stage]}, it is {truth[stage]}")
        problems += _misplaced(first["entity"], truth.get("faulty_entity") or {})
    return Checked(answer, tuple(problems), cause, confident_and_wrong)


def _misplaced(said: dict[str, Any], true: dict[str, Any]) -> list[str]:
    """What of the place is wrong: host and GPU where one is named, else host and rank, else the role."""
    names = ["host", "gpu"] if true.get("gpu") is not None else ["host", "rank"] if true.get("host") or true.get("rank") is not None else ["role"]
    return [f"{name} {said.get(name)}, it is {true[name]}" for name in names if true.get(name) is not None and said.get(name) != true[name]]


def _same_stage(said: str | None, true: list[str]) -> bool:
    return any(said == one or any(said in group and one in group for group in SAME_STAGES) for one in true)


def _where(entity: dict[str, Any]) -> str:
    return " ".join(f"{name} {entity[name]}" for name in ("host", "role", "rank", "gpu", "path") if entity.get(name) is not None) or "nowhere"
