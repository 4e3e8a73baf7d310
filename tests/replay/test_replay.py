"""A real run, recorded, killed and run again: every healthy request gives the same bits, and the one whose worker was killed succeeds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rca import cli
from rca.replay.cases import cases
from rca.replay.recording import Recording
from rca.replay_trainer.config import Config
from rca.replay_trainer.holds import release, until
from rca.replay_trainer.launch import System

pytestmark = pytest.mark.real
SMALL = {"steps": 3, "prompts": 4, "group": 4, "weight_sync": "disk"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose second rollout worker is killed while it samples in step 2."""
    run = tmp_path_factory.mktemp("killed") / "run"
    with System(run, Config.of({**SMALL, "hold_at": ["rollout@2"]}), sampled=False) as system:
        assert until(run, "rollout@2", 120, lambda: system.poll() is None)
        pid = system.pid("rollout", 1)
        os.kill(pid, signal.SIGSTOP)  # so that it has begun nothing when it is killed, or just begun: both happen
        release(run, "rollout@2")
        time.sleep(0.5)
        os.kill(pid, signal.SIGKILL)
        assert system.wait() == 1
    return run


def _lines(run: Path, name: str = "replay.rca.jsonl") -> list[dict]:
    return [json.loads(line) for line in (run / "logs" / name).read_text("utf-8").splitlines()]


def test_the_failure_does_not_reproduce_and_the_rest_gives_the_same_bits(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", str(killed), "--patience", "60"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "DOES NOT REPRODUCE" in said
    told = _lines(killed)
    assert told[0]["schema"] == "rca.replay/1" and told[0]["same_environment"] is True
    verdict = told[-1]
    assert (verdict["e"], verdict["verdict"], verdict["step"], verdict["stage"]) == ("verdict", "does not reproduce", 2, "rollout")
    healthy = next(line for line in told[1:] if line["e"] == "healthy")
    assert healthy["count"] == healthy["identical"] >= 4
    assert any(line["e"] == "request" and line["role"] == "rollout" and line["rank"] == 1 and line["method"] == "generate" for line in told[1:])


def test_every_recorded_request_of_a_step_gives_the_same_bits(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", str(killed), "--step", "1"]) == 0, capsys.readouterr().err
    told = _lines(killed, "replay-step-1.rca.jsonl")
    count = len([case for case in cases(Recording.read(killed)) if case.side.step == 1])
    assert told[-1] == {"e": "healthy", "count": count, "identical": count}


def test_a_number_that_was_changed_in_the_recording_is_the_one_that_is_named(killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other numbers than those of the recording are found, tensor and element: here, because the recorded ones are others."""
    import torch

    from rca.trace_inject import content, safetensors

    run = tmp_path / "run"
    shutil.copytree(killed, run)
    recording = Recording.read(run)
    case = next(case for case in cases(recording) if case.side.method == "generate" and case.side.step == 1 and case.side.rank == 0)
    result = case.request.result
    tensors = recording.tensors(result.tensors, case.request.process)
    tensors["logprobs"][3, 1] += 0.5
    arrays = content.arrays(tensors)
    new = content.digest(arrays)
    (run / "recording" / "blobs" / case.request.process.name / f"{new}.safetensors").write_bytes(b"".join(safetensors.pieces(arrays)))
    file = case.request.source
    for path in (file, *(run / "recording").glob("controller*.jsonl")):
        text = path.read_text("utf-8").replace(result.tensors, new).replace(result.digests["logprobs"], content.digest({"logprobs": arrays["logprobs"]}))
        path.write_text(text, "utf-8")
    assert cli.main(["replay", str(run), "--request", case.request.request_id]) == 0, capsys.readouterr().err
    assert "logprobs[3, 1]" in capsys.readouterr().out
    (found,) = [line for line in _lines(run, f"replay-request-{case.request.request_id}.rca.jsonl")[1:] if line["e"] == "request"]
    assert (found["outcome"], found["tensor"], found["element"]) == ("diverges", "logprobs", [3, 1])
    assert found["expected"] == pytest.approx(found["got"] + 0.5) and isinstance(torch.tensor(found["got"]).item(), float)


def test_what_cannot_be_replayed_is_told_by_file(killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other versions, missing files, and nothing at all: exit code 2, and which file it is."""
    assert cli.main(["replay", str(tmp_path)]) == 2
    assert "no recording here" in capsys.readouterr().err
    for change, word in ((('"torch":"', '"torch":"1.13.'), "recorded with torch 1.13."), (("rca.recording/1", "rca.recording/7"), "rca.recording/7")):
        run = tmp_path / str(len(word))
        shutil.copytree(killed, run)
        for path in (run / "recording").glob("*.requests.jsonl"):
            path.write_text(path.read_text("utf-8").replace(*change), "utf-8")
        assert cli.main(["replay", str(run)]) == 2
        said = capsys.readouterr().err
        assert word in said and ".requests.jsonl" in said and "hint:" in said
    run = tmp_path / "settings"
    shutil.copytree(killed, run)
    (run / "config.json").unlink()
    assert cli.main(["replay", str(run)]) == 2
    assert "config.json" in capsys.readouterr().err


def test_requests_are_listed_without_playing_them(killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", str(killed), "--list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(cases(Recording.read(killed))) and any("generate" in row and "rollout/1" in row and row.split()[-1] in ("lost", "unfinished") for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "99"], "nothing was recorded of step 99"),
        (["--request", "no-such"], "no such request"),
        (["--swap", "rollout"], "ROLE=RANK"),
        (["--swap", "rollout=9"], "no such worker"),
        (["--step", "1", "--failed"], "exclude each other"),
        (["--with-fault"], "truth.json"),
    ],
)
def test_wrong_usage_is_told(killed: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert cli.main(["replay", str(killed), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_run_has_both_sides_of_every_request(killed: Path) -> None:
    """What a caller sent is what its worker got, and what arrived is what was answered; the call whose worker was killed has an error, and its worker's side no outcome, if it began at all."""
    found = Recording.read(killed)
    assert not [gap for gap in found.gaps if "ends within a line" not in gap]
    workers = {(request.request_id, request.role, request.rank): request for request in found.requests}
    lost = [call for call in found.calls if call.outcome != "ok"]
    assert [(call.role, call.rank, call.method, call.step, call.outcome) for call in lost] == [("rollout", 1, "generate", 2, "error")] and lost[0].error
    assert len(found.calls) - 1 <= len(found.requests) <= len(found.calls)
    for call in found.calls:
        request = workers.get((call.request_id, call.role, call.rank))
        if call.outcome == "ok":
            assert request is not None and request.outcome == "ok" and request.args == call.sent and (request.step, request.stage) == (call.step, call.stage)
            assert request.result is not None and call.arrived is not None and request.result.digests == call.arrived.digests
        elif request is not None:
            assert request.outcome is None and request.args == call.sent
    trained = [request for request in found.requests if request.method == "train_batch"]
    assert trained and all(found.tensors(request.state["optimizer"], request.process) and request.after.keys() >= {"weights", "optimizer"} for request in trained)
    assert any(read.path.endswith("model.safetensors") and found.bytes(read.digest, request.process) for request in found.requests for read in request.files)
