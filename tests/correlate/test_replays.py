"""A replay is made after the run, and changes nothing of what is known of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import replays

import rca

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
#: What a replay may change: who is judged how, what it says itself, that a file more was read.
MOVED = ("hypotheses", "unknown_probability", "summary", "replay", "stats", "coverage")


def analyzed(folder: Path) -> dict[str, Any]:
    """The report on a folder, as it is printed."""
    return json.loads(json.dumps(rca.analyze(folder, workers=1).document))


@pytest.mark.parametrize("name", ["06_cleanup_masks_oom", "08_periodic_save_corrupts_recover", "11_healthy"])
def test_the_run_stays_what_it_was(tmp_path: Path, name: str) -> None:
    """Its end, times, hosts, ranks, steps, attempts, timeline, symptom and notes, whatever a replay names, and wherever it lies."""
    shutil.copytree(SCENARIOS / name / "logs", tmp_path / "logs")
    before = analyzed(tmp_path / "logs")
    stranger = {"t": replays.MADE_NS, "role": "critic", "rank": 99, "host": "elsewhere", "step": 900, "stage": "eval", "attempt": 7}
    lines = [replays.request("diverges", **stranger), replays.request("reproduces", **stranger), replays.hand_over(**{**stranger, "from": "critic/99"}), replays.healthy()]
    replays.write(tmp_path / "logs", *lines, replays.verdict("cannot tell", **stranger), name="worker-99.log")
    after = analyzed(tmp_path / "logs")
    assert {k: v for k, v in after.items() if k not in MOVED} == {k: v for k, v in before.items() if k not in MOVED}
    assert [s for s in after["coverage"]["sources"] if s["file"] != "worker-99.log"] == before["coverage"]["sources"]
    assert {k: after["coverage"][k] for k in ("missing", "clock_offsets")} == {k: before["coverage"][k] for k in ("missing", "clock_offsets")}
    assert after["hypotheses"] == before["hypotheses"] and after["unknown_probability"] == before["unknown_probability"]


def test_its_own_source_has_no_place_in_the_run(tmp_path: Path) -> None:
    """It is listed as read, without host, rank or time."""
    shutil.copytree(SCENARIOS / "06_cleanup_masks_oom" / "logs", tmp_path / "logs")
    replays.write(tmp_path / "logs", replays.verdict())
    (source,) = [s for s in analyzed(tmp_path / "logs")["coverage"]["sources"] if s["format"] == "rca_replay"]
    assert (source["host"], source["rank"], source["first_time"], source["last_time"]) == (None, None, None, None)


def test_alone_it_is_no_run(tmp_path: Path) -> None:
    """What was replayed failed somewhere, and nothing of that is here."""
    replays.write(tmp_path, replays.verdict())
    document = analyzed(tmp_path)
    assert document["verdict"] == "inconclusive" and not document["hypotheses"]
