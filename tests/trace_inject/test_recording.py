"""The recording of requests: what stands in it, and that it is a guest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch

from rca import trace_inject as rt
from rca.replay.recording import Recording
from rca.trace_inject import content, guard, recording
from rca.trace_inject.safetensors import parse, pieces


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Path]:
    """This process is recorded into the folder."""
    folder = tmp_path / "recording"
    assert rt.record_requests(folder, role="train", rank=0, attempt=1, steps=3, size_max=8 << 20) == str(folder)
    yield folder
    recording.stop()
    assert not guard.faults


EVERY = {
    "float64": torch.rand(2, 3, dtype=torch.float64), "bfloat16": torch.rand(3).bfloat16(), "half": torch.rand(3).half(), "bool": torch.tensor([True, False]), "scalar": torch.tensor(7),
    "turned": torch.arange(12, dtype=torch.int32).reshape(3, 4).t(), "part": torch.arange(10)[::3], "empty": torch.zeros(0, 4), "byte": torch.arange(5, dtype=torch.uint8), "short": torch.arange(3, dtype=torch.int16),
}  # fmt: skip


def test_a_store_file_is_a_safetensors_file() -> None:
    """The package of the format reads what is written, every type and layout, and its own files are read here."""
    arrays = content.arrays(EVERY)
    data = b"".join(pieces(arrays))
    theirs = safetensors.torch.load(data)
    assert theirs.keys() == EVERY.keys()
    for name, value in EVERY.items():
        assert theirs[name].dtype == value.dtype and torch.equal(theirs[name], value)
    assert parse(data) == arrays
    assert parse(safetensors.torch.save({name: value.contiguous() for name, value in EVERY.items()})) == arrays


def test_a_request_is_there_with_all_it_was_given(recorded: Path) -> None:
    """Arguments, state before and after, random state, files and result are read back as they were."""
    model = torch.nn.Linear(3, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    with rt.step(4), rt.stage("train"), rt.recorded("train_batch", {"ids": EVERY["turned"], "lr": 0.1, "nested": {"mask": EVERY["bool"]}}, lambda: {"weights": model.state_dict, "held": 5}) as request:
        rt.recorded_file("data.bin", b"some bytes")
        with torch.no_grad():
            model.weight += 1
        assert request.result({"loss": torch.tensor(0.5), "rows": 3})["rows"] == 3
    found = Recording.read(recorded)
    (one,) = found.requests
    assert (one.role, one.rank, one.attempt, one.method, one.step, one.stage, one.outcome, found.gaps) == ("train", 0, 1, "train_batch", 4, "train", "ok", [])
    assert one.args.values == {"lr": 0.1, "nested": {"mask": {"$array": "nested.mask"}}}
    given = found.tensors(one.args.tensors, one.process)
    assert torch.equal(given["ids"], EVERY["turned"]) and torch.equal(given["nested.mask"], EVERY["bool"])
    assert all(torch.equal(value, before[name]) for name, value in found.tensors(one.state["weights"], one.process).items()) and one.state["held"] == 5
    assert torch.equal(found.tensors(one.rng["torch"])["state"], random)
    assert one.after.keys() == {"weights"} and torch.equal(found.tensors(one.after["weights"])["weight"], model.weight)
    assert one.result is not None and one.result.values == {"rows": 3} and found.tensors(one.result.tensors)["loss"] == 0.5
    (file,) = one.files
    assert (file.path, found.bytes(file.digest)) == ("data.bin", b"some bytes")


def test_an_error_and_a_request_without_an_end_are_told(recorded: Path) -> None:
    """What a request raises goes on, and stands in its outcome; one that never ends has none."""
    with pytest.raises(ValueError, match="no such token"), rt.recorded("generate", {"n": 1}):
        raise ValueError("no such token")
    rt.recorded("generate", {"n": 2}).__enter__()
    assert [(r.outcome, r.error_type, r.error) for r in Recording.read(recorded).requests] == [("error", "ValueError", "no such token"), (None, None, None)]


def test_both_sides_of_a_call_have_the_same_digests(recorded: Path) -> None:
    """What the caller sent is what the worker got, by request id and by digest."""
    with rt.request(), rt.recorded_call("rollout/1", "generate", {"prompts": EVERY["turned"], "step": 2}, "g") as call:
        with rt.recorded("generate", {"prompts": EVERY["turned"].contiguous(), "step": 2}) as request:
            answer = request.result({"answers": EVERY["float64"]})
        call.result(answer)
    found = Recording.read(recorded)
    (one,), (other,) = found.requests, found.calls
    assert (other.role, other.rank, other.group, other.request_id, other.outcome) == ("rollout", 1, "g", one.request_id, "ok")
    assert one.args == other.sent and one.result == other.arrived and one.step == 2


def test_parts_of_an_answer_are_one_outcome(recorded: Path) -> None:
    """A streamed answer ends the request when its last part was taken; one that is left has no outcome."""
    for taken in (2, 1):
        with rt.recorded("logprobs", {}) as request:
            parts = request.result({"x": torch.full((1,), i)} for i in range(2))
        assert [part["x"].item() for part, _ in zip(parts, range(taken), strict=False)] == list(range(taken))
        if taken == 2:
            assert not list(parts)
    found = Recording.read(recorded)
    whole, left = found.requests
    assert whole.result is not None and whole.result.values == {"parts": 2} and found.tensors(whole.result.tensors)["x"].tolist() == [0, 1]
    assert left.outcome is None


def test_the_newest_steps_are_kept(recorded: Path) -> None:
    """What older steps needed is taken away, what is still needed stays; their lines stay."""
    weights = {"w": torch.arange(4.0)}
    for step in range(1, 8):
        with rt.step(step), rt.recorded("train", {"ids": torch.full((2,), step)}, lambda: {"weights": weights}):
            pass
    found = Recording.read(recorded)
    assert [found.has(request.args.tensors) for request in found.requests] == [False] * 4 + [True] * 3
    assert all(found.has(request.state["weights"]) for request in found.requests)


def test_any_trainer_can_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decorator on a method of a plain class, switched on by the environment."""
    monkeypatch.setenv("RCA_RECORDING", str(tmp_path / "r"))
    monkeypatch.setattr(recording, "_asked", False)
    monkeypatch.setattr(recording, "_stopped", False)

    class Trainer:
        def __init__(self) -> None:
            self.weights = torch.zeros(2)

        @rt.recorded(state=lambda trainer: {"weights": {"w": trainer.weights}})
        def fit(self, rows: torch.Tensor, lr: float = 0.1) -> torch.Tensor:
            self.weights += rows.sum() * lr
            return self.weights

        @rt.recorded
        def plain(self, a: int) -> int:
            return a + 1

    trainer = Trainer()
    assert trainer.fit(torch.ones(3), lr=2.0).tolist() == [6.0, 6.0] and trainer.plain(1) == 2
    recording.stop()
    found = Recording.read(tmp_path / "r")
    fit, plain = found.requests
    assert fit.method.endswith("Trainer.fit") and fit.args.values == {"lr": 2.0} and found.tensors(fit.args.tensors)["rows"].tolist() == [1, 1, 1]
    assert found.tensors(fit.state["weights"])["w"].tolist() == [0, 0] and found.tensors(fit.after["weights"])["w"].tolist() == [6, 6]
    assert fit.result is not None and found.tensors(fit.result.tensors)["value"].tolist() == [6, 6]
    assert plain.args.values == {"a": 1} and plain.result is not None and plain.result.values == {"value": 2}


def test_what_is_too_long_for_a_line_is_not_lost(recorded: Path) -> None:
    """Long values, many tensors and a long error go into the store; no line is longer than what one write does whole."""
    long = {f"name-{i}": "x" * 50 for i in range(500)}
    with pytest.raises(ValueError), rt.recorded("m", {"long": long, **{f"t{i}": torch.tensor(i) for i in range(300)}}):
        raise ValueError("y" * 10_000)
    (file,) = recorded.glob("*.requests.jsonl")
    assert max(map(len, file.read_bytes().splitlines())) < 3500
    (one,) = Recording.read(recorded).requests
    assert one.args.values == {"long": long} and len(one.args.digests) == 300 and one.error == "y" * 10_000


def test_a_child_writes_files_of_its_own(recorded: Path) -> None:
    """After a fork parent and child record beside each other."""
    with rt.recorded("parent", {}):
        pid = os.fork()
        if pid == 0:
            with rt.recorded("child", {"x": torch.arange(3)}):
                pass
            os._exit(0)
        os.waitpid(pid, 0)
    found = Recording.read(recorded)
    assert [(r.method, r.pid, r.outcome) for r in found.requests] == [("parent", os.getpid(), "ok"), ("child", pid, "ok")] and found.gaps == []
    assert found.tensors(found.requests[1].args.tensors, found.requests[1].process)["x"].tolist() == [0, 1, 2]


def test_equal_contents_of_two_processes_are_one_file(recorded: Path) -> None:
    """What another process has stored is linked, and stays when that one takes its own name away."""
    x = torch.arange(100_000)
    with rt.recorded("a", {"x": x}):
        pass
    pid = os.fork()
    if pid == 0:
        with rt.recorded("b", {"x": x}):
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    name = content.digest(content.arrays({"x": x}))
    one, other = sorted(recorded.glob(f"blobs/*/{name}.safetensors"))
    assert one.stat().st_ino == other.stat().st_ino


def test_nothing_is_recorded_where_it_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`RCA_RECORDING_OFF=1` forbids it; without it and without a folder a request costs next to nothing and changes nothing."""
    recording.stop()
    monkeypatch.setenv("RCA_RECORDING_OFF", "1")
    assert rt.record_requests(tmp_path / "r") is None
    with rt.recorded("m", {"x": 1}) as request:
        assert request.result(3) == 3
    assert not (tmp_path / "r").exists()
