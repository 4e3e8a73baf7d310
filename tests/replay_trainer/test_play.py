"""Scenarios played for real: what broke is found out from the logs alone; and the recorded bundles that come with the program."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import rca
from rca import cli
from rca.replay_trainer import scenario
from rca.replay_trainer.play import cannot
from rca.scenario_check import compare

#: Of the ten, those that are played in every run of the tests: a file system, a control group, a program's own failure and a process that hangs. `RCA_SCENARIOS=all` plays all.
PLAYED = scenario.names() if os.environ.get("RCA_SCENARIOS") == "all" else [name for name in scenario.names() if name[:2] in ("04", "05", "06", "10")]


@pytest.mark.real
@pytest.mark.parametrize("name", PLAYED)
def test_a_scenario_is_played_and_found_out(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`rca scenarios run` leaves logs, a recording and the truth; `rca scenarios check` is right about it; its replay says what is true, and makes the analyzer surer."""
    if reason := cannot(scenario.load(name)):
        pytest.skip(reason)
    assert cli.main(["scenarios", "run", name, "-o", str(tmp_path)]) == 0, capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["logs", "recording", "truth.json"]
    assert cli.main(["scenarios", "check", name, "-o", str(tmp_path)]) == 0, capsys.readouterr().out
    truth = json.loads((tmp_path / name / "truth.json").read_text("utf-8"))
    before = _confidence(tmp_path / name, truth)
    assert cli.main(["replay", str(tmp_path / name)]) == 0, capsys.readouterr().err
    told = [json.loads(line) for line in (tmp_path / name / "logs" / "replay.rca.jsonl").read_text("utf-8").splitlines()[1:]]
    (healthy,) = (line for line in told if line["e"] == "healthy")
    assert healthy["count"] == healthy["identical"] or truth["replay"] == "diverges", capsys.readouterr().out
    if truth["replay"] != "healthy":
        assert told[-1]["verdict"] == truth["replay"], told[-1]
        assert _confidence(tmp_path / name, truth) > before


def _confidence(folder: Path, truth: dict[str, Any]) -> float:
    accepted = {truth["root_cause_class"], *truth["accept"]} if "root_cause_class" in truth else set()
    return sum(h["confidence"] for h in rca.analyze(str(folder / "logs")).document["hypotheses"] if h["cause"] in accepted)


@pytest.mark.parametrize("name", [path.parent.name for path in sorted(scenario.root().glob("*/truth.json"))])
def test_a_bundle_is_found_out(name: str) -> None:
    """The small recorded logs of each scenario: cause, stages and place."""
    assert compare(scenario.root() / name).problems == ()


def test_bundles_say_nothing_of_the_machine_that_they_were_made_on() -> None:
    """Their paths are neutral, and the kernel's release is left out."""
    for path in scenario.root().glob("*/logs/**/*"):
        text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
        assert not any(word in text for word in ("/root/", "/home/", "/work/", "/tmp/", "/var/folders", platform.release())), path
