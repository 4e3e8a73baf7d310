"""What a run keeps of its requests, over its attempts."""

from __future__ import annotations

import json
from pathlib import Path

from rca.replay_trainer import recorded


def attempt(run: Path, number: int) -> str:
    """A process of an attempt, with a blob."""
    name = f"train-0-host-{100 + number}"
    folder = run / "recording" / "blobs" / name
    folder.mkdir(parents=True)
    (folder / "1.safetensors").write_bytes(b"x")
    (run / "recording" / f"{name}.requests.jsonl").write_text(json.dumps({"schema": "rca.recording/1", "attempt": number}, separators=(",", ":")) + "\n")
    return name


def test_a_run_that_is_resumed_for_ever_has_a_bound(tmp_path: Path) -> None:
    """Before attempt 12 begins, only attempt 11 has blobs, and the newest seven have lines; what is no recording stays."""
    names = [attempt(tmp_path, number) for number in range(1, 12)]
    (tmp_path / "recording" / "config.json").write_text("{}")
    recorded.forget(tmp_path, 12)
    assert sorted(path.name for path in (tmp_path / "recording" / "blobs").iterdir()) == names[-1:]
    assert {path.name.removesuffix(".requests.jsonl") for path in (tmp_path / "recording").glob("*.requests.jsonl")} == set(names[-7:])
    assert (tmp_path / "recording" / "config.json").exists()


def test_a_process_of_the_same_name_is_of_its_last_attempt(tmp_path: Path) -> None:
    """A container that is started again has the same pid: its newest header counts."""
    name = attempt(tmp_path, 1)
    path = tmp_path / "recording" / f"{name}.requests.jsonl"
    path.write_text(path.read_text() + "\n" + json.dumps({"schema": "rca.recording/1", "attempt": 5}, separators=(",", ":")) + "\nhalf")
    recorded.forget(tmp_path, 6)
    assert (tmp_path / "recording" / "blobs" / name).exists()
    recorded.forget(tmp_path, 7)
    assert not (tmp_path / "recording" / "blobs" / name).exists()


def test_what_is_damaged_is_left_alone(tmp_path: Path) -> None:
    """A file without a header, and a run without a recording."""
    recorded.forget(tmp_path, 3)
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "x.requests.jsonl").write_text('{"schema"\n')
    recorded.forget(tmp_path, 30)
    assert (tmp_path / "recording" / "x.requests.jsonl").exists()
