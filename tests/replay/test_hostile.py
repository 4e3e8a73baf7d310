"""Recordings that somebody changed: whatever stands in them, there is an answer or an error that names the file, and nothing outside of the replay is touched."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from replay.sides import request

from rca import trace_inject as rt
from rca.errors import RcaError
from rca.replay import files, parts, result
from rca.replay.bed import Bed
from rca.replay.cases import cases, changed, failed
from rca.replay.compare import CANNOT_TELL
from rca.replay.gangs import gangs, lacking
from rca.replay.handovers import first_broken
from rca.replay.outcome import Replayed
from rca.replay.recording import FileRead, Recording
from rca.replay.replay import failure, finished, settings
from rca.replay.verdict import decide
from rca.replay_trainer.config import Config
from rca.trace_inject import recording

ODD: list[Any] = [
    None, True, -1, 10**30, 1e999, float("nan"), "", "x\x1b[31m\x00y", "../../etc/passwd", "/etc/passwd", "\ud800", "a" * 300, [], [1], [[1, 2]], {}, {"$array": ["x"]}, {"$array": "prompts"},
    {"$in": "0" * 32}, {"tensors": 3}, {"tensors": "0" * 32, "digests": [1]}, {"values": 7}, "0" * 32, "rollout/999999999999", "step-99999999999",
]  # fmt: skip


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A recording of a worker and its caller."""
    run = tmp_path / "run"
    for role in ("rollout", "controller"):
        rt.record_requests(run / "recording", role=role, rank=1 if role == "rollout" else None)
        for step in (1, 2):
            values = {"step": step, "kind": "latest", "path": "/run/latest/step-000001", "prompts": torch.full((4,), step)}
            if role == "controller":
                with rt.recorded_call("rollout/1", "generate", values) as call:
                    call.result({"answers": torch.ones(2)})
                continue
            with rt.recorded("generate", values, lambda: {"weights": {"a": torch.ones(2)}, "held": 3}) as request:
                rt.recorded_file("model.bin", b"abc" * step)
                request.result({"answers": torch.ones(2)})
        recording.stop()
    (run / "config.json").write_text(Config().to_json())
    return run


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for name, each in inner for place in _places(each, (*at, name)))]


def _change(line: str, draw: random.Random) -> str:
    """A line with another value somewhere, without one, or torn."""
    record = json.loads(line)
    place = draw.choice([place for place in _places(record) if place])
    holder = record
    for name in place[:-1]:
        holder = holder[name]
    if draw.random() < 0.2 and isinstance(holder, dict):
        del holder[place[-1]]
    else:
        holder[place[-1]] = draw.choice(ODD)
    text = json.dumps(record)
    return text[: draw.randrange(len(text))] if draw.random() < 0.05 else text


def _all_of_it(run: Path) -> None:
    """What a replay does with a recording but start workers."""
    found = Recording.read(run)
    config, told = settings(run), failure(run)
    all_cases = cases(found)
    bed = Bed(config, {"rollout"})
    bed.run = Path("/nowhere/run")
    places = parts.Places(config, Path(next((header.folder for header in found.headers if header.folder), str(run))), bed)
    for gang in gangs(case.side for case in all_cases):
        lacking(gang, config)
    of_failure = failed(all_cases, told)
    for case in all_cases:
        changed(case)
        files.writers([case], all_cases)
        files.broken_file([case], all_cases, lambda writer, file: None)
        try:
            part = parts.part(found, case.request, places) if case.request is not None else parts.unreceived(found, case, all_cases, places)
            parts.expected(found, case.request, places)
        except parts.UNUSABLE:
            continue
        assert all(path.is_relative_to(bed.run) and ".." not in path.parts for path, _ in part.files)
    broken = first_broken(all_cases, of_failure[-1] if of_failure else None, lambda case, name: parts.rows(found, case, name))
    played = [Replayed(case, "ok", CANNOT_TELL, case.where) for case in all_cases]
    verdict = decide(told, of_failure, played, broken, all_cases, None)
    result.write(run / "replay.rca.jsonl", {}, played, broken, verdict.record())
    finished(run)


@pytest.mark.parametrize("seed", range(150))
def test_changed_lines_are_told_or_left_out(whole: Path, seed: int) -> None:
    draw = random.Random(seed)
    for path in sorted((whole / "recording").glob("*.requests.jsonl")):
        lines = path.read_text("utf-8").splitlines()
        for number in draw.sample(range(len(lines)), 3):
            if number or draw.random() < 0.3:  # without a header there is no more to see
                lines[number] = _change(lines[number], draw)
        path.write_text("\n".join(lines) + "\n", "utf-8")
    (whole / "failed.json").write_text(json.dumps(draw.choice([{"error": draw.choice(ODD), "step": draw.choice(ODD), "stage": draw.choice(ODD)}, draw.choice(ODD)])))
    (whole / "metrics.jsonl").write_text(json.dumps({"step": draw.choice(ODD)}))
    try:
        _all_of_it(whole)
    except RcaError as error:
        assert error.where


def test_values_within_values_have_a_bound(whole: Path) -> None:
    path = next((whole / "recording").glob("rollout*.requests.jsonl"))
    deep = path.read_text("utf-8").replace('"kind":"latest"', '"kind":' + "[" * 900 + "]" * 900)
    path.write_text(deep, "utf-8")
    assert any("a damaged line" in gap for gap in Recording.read(whole).gaps)


def test_a_pipe_is_not_waited_for(whole: Path) -> None:
    os.mkfifo(whole / "recording" / "train-0-host-1.requests.jsonl")
    assert any("no file" in gap for gap in Recording.read(whole).gaps)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../x", "/seen/../../x", "/seen/checkpoints/../../../x", "", "/seenx/a", "checkpoints/a", "/seen/config.json", "/seen/addresses/train-0.json"])
def test_files_lie_in_the_replay_or_nowhere(path: str) -> None:
    bed = Bed(Config(), ())
    bed.run = Path("/nowhere/run")
    assert parts.Places(Config(), Path("/seen"), bed).file(FileRead(path, "", 0).path) is None


def test_what_is_no_call_is_not_called() -> None:
    for method in ("a b", "../stop", "x\x00", "", "a" * 99):
        with pytest.raises(RcaError, match="no call of a worker"):
            parts.rank_of(request(method, "train", 0, 1))


def test_more_workers_than_a_machine_has_are_not_started(whole: Path) -> None:
    (whole / "config.json").write_text(json.dumps({"prompts": 10**6, "train_ranks": 10**6}))
    with pytest.raises(RcaError, match="at most") as error:
        settings(whole)
    assert error.value.where == str(whole / "config.json")
