"""Recordings that are damaged, of another version, or none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rca import trace_inject as rt
from rca.errors import RcaError
from rca.replay.recording import Recording
from rca.trace_inject import recording


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A recording of three requests, in a run's folder."""
    rt.record_requests(tmp_path / "recording", role="rollout", rank=1)
    for step in (1, 2, 3):
        with rt.recorded("generate", {"step": step, "prompts": torch.full((20_000,), step)}) as request:
            rt.recorded_file("model.bin", b"abc" * step * 30_000)
            request.result({"answers": torch.ones(2)})
    recording.stop()
    return tmp_path


def test_a_run_or_its_recording_can_be_named(whole: Path) -> None:
    """RUN and RUN/recording are the same."""
    assert len(Recording.read(whole).requests) == len(Recording.read(whole / "recording").requests) == 3


def lines_of(whole: Path) -> Path:
    (path,) = (whole / "recording").glob("*.requests.jsonl")
    return path


def test_no_recording_is_said(tmp_path: Path) -> None:
    """A folder without one, and no folder, are told by name."""
    with pytest.raises(RcaError, match=r"no recording here") as error:
        Recording.read(tmp_path)
    assert error.value.where == str(tmp_path) and error.value.hint
    with pytest.raises(RcaError, match="no such folder"):
        Recording.read(tmp_path / "nothing")


def test_another_version_is_named(whole: Path) -> None:
    """What was written by another version is not guessed at."""
    path = lines_of(whole)
    path.write_text(path.read_text().replace("rca.recording/1", "rca.recording/9"))
    with pytest.raises(RcaError, match=r"another version: `rca.recording/9`, where `rca.recording/1`") as error:
        Recording.read(whole)
    assert error.value.where == f"{path}:1"


def test_a_missing_header_is_named(whole: Path) -> None:
    """Lines of nobody are an error with the place."""
    path = lines_of(whole)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(RcaError, match="the header is missing") as error:
        Recording.read(whole)
    assert error.value.where == f"{path}:1"
    path.write_text("")
    with pytest.raises(RcaError, match="the header is missing"):
        Recording.read(whole)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged blob"),
        (lambda path: path.write_bytes(path.read_bytes()[:5]), "damaged blob"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"), "does not hold what its name says"),
        (lambda path: path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:]), "damaged blob"),
    ],
)
def test_a_blob_that_is_missing_or_damaged_is_named(whole: Path, damage: Callable[[Path], object], said: str) -> None:
    """The error says which file."""
    found = Recording.read(whole)
    request = found.requests[0]
    path = whole / "recording" / "blobs" / request.process.name / f"{request.args.tensors}.safetensors"
    damage(path)
    with pytest.raises(RcaError, match=said) as error:
        found.tensors(request.args.tensors, request.process)
    assert error.value.where == str(path) and error.value.hint


def test_a_damaged_pack_is_named(whole: Path) -> None:
    """Small blobs lie behind each other: one that is damaged is told with its pack, one that was cut is missing, those before it are whole."""
    found = Recording.read(whole)
    result = [request.result.tensors for request in found.requests if request.result is not None]
    (pack,) = (whole / "recording" / "blobs").glob("*/*.pack")
    data = pack.read_bytes()
    assert result[0] is not None and found.tensors(result[0])["answers"].tolist() == [1, 1] and len(set(result)) == 1
    at = data.index(result[0].encode())
    pack.write_bytes(data[: at + 60] + b"?" + data[at + 61 :])
    with pytest.raises(RcaError, match="damaged blob") as error:
        Recording.read(whole).tensors(result[0])
    assert error.value.where == str(pack)
    pack.write_bytes(data[: at + 60])
    cut = Recording.read(whole)
    with pytest.raises(RcaError, match="is missing") as error:
        cut.tensors(result[0])
    assert error.value.where and result[0] in error.value.where
    assert at == 0 or cut.tensors(found.requests[0].rng["torch"])


def test_a_damaged_file_is_named(whole: Path) -> None:
    """Raw bytes are compared with their name too."""
    found = Recording.read(whole)
    (read,) = found.requests[0].files
    path = whole / "recording" / "blobs" / found.requests[0].process.name / f"{read.digest}.bin"
    path.write_bytes(b"abd")
    with pytest.raises(RcaError, match="does not hold") as error:
        found.bytes(read.digest)
    assert error.value.where == str(path)


def test_a_name_leads_nowhere_else(whole: Path) -> None:
    """A digest that is none is refused before it is a path."""
    found = Recording.read(whole)
    for name in ("../../../etc/passwd", "a" * 31, "A" * 32, "a" * 32 + "\n", ""):
        with pytest.raises(RcaError, match="no digest"):
            found.tensors(name)


def test_damaged_lines_are_gaps(whole: Path) -> None:
    """Whatever stands in the lines, it is read, or told as a gap with its place, or an RcaError; and the lines around it count."""
    path = lines_of(whole)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b'{"e":"request"}\n', b"[1]\n", b'{"e":"request","t":"x","id":[],"n":1,"args":3}\n', b"x" * 40_000 + b"\n", b"[" * 5000 + b"\n", *lines[1:-1], lines[-1][:20]]))
    found = Recording.read(whole)
    assert [r.outcome for r in found.requests] == ["ok", "ok", None]
    assert [gap.removeprefix(str(path)).split(":")[1] for gap in found.gaps] == ["2", "3", "4", "5", "6", str(6 + len(lines) - 1)]


def test_any_bytes_are_an_error_or_a_recording(whole: Path) -> None:
    """Five hundred files with random damage: never a traceback."""
    path, luck = lines_of(whole), random.Random(7)
    intact = path.read_bytes()
    for _ in range(500):
        data = bytearray(intact)
        for _ in range(luck.randint(1, 8)):
            at = luck.randrange(len(data))
            if luck.random() < 0.5:
                data[at] = luck.choice(b'{}[]",:0a9\n\x00\xff')
            else:
                del data[at : at + luck.randint(1, 200)]
        path.write_bytes(data)
        try:
            found = Recording.read(whole)
            for request in found.requests:
                found.tensors(request.args.tensors, request.process)
        except RcaError as error:
            assert error.where


def test_two_processes_of_one_name_are_two(whole: Path) -> None:
    """A container that was started again has the same name and the same pid: its ids begin anew."""
    path = lines_of(whole)
    text = path.read_text()
    head, rest = text.split("\n", 1)
    path.write_text(text + json.dumps({**json.loads(head), "start": 1, "attempt": 2}) + "\n" + rest)
    found = Recording.read(whole)
    assert len(found.requests) == 6 and sorted({r.attempt for r in found.requests}) == [1, 2]
