"""A model that computes wrongly: exactly one bit is another one, once a call, and what follows is computed from it."""

from __future__ import annotations

import json
import math
import timeit
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from replay_trainer.scenes import OneProgram  # noqa: E402

from rca.errors import RcaError  # noqa: E402
from rca.replay_trainer import faults, model, reference, rollout, task, train  # noqa: E402
from rca.replay_trainer.bit_flip import Flip, flip_bit  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402
from rca.replay_trainer.device import WRONG, Device  # noqa: E402

CONFIG = Config(prompts=2, group=2, width=16, heads=2, layers=2, train_ranks=1, rollout_ranks=1, weight_sync="disk")
LINEARS = ["head", "blocks.0.qkv", "blocks.1.down"]


class Broken(OneProgram):
    """A run in which the device of each role has a folder of its own."""

    def device(self, role: str, rank: int) -> Path:
        return train.device_folder(CONFIG, self.run, role, rank)


def service(role: str, run: Path, **wrong: Any) -> Any:
    """The engine of a worker whose device computes wrongly if `wrong` says how."""
    made = {"train": train, "rollout": rollout, "reference": reference}[role].service(CONFIG, run, 0, "127.0.0.1").engine
    if wrong:
        faults.load("wrong_results").make(Broken(run), role, 0, **wrong)
    return made


def batch() -> dict[str, Any]:
    prompts = task.prompts(CONFIG, 1).repeat_interleave(2, 0)
    return {"prompts": prompts, "answers": torch.zeros(4, 3, dtype=torch.long), "logprobs": torch.full((4, 3), -2.4), "advantages": torch.tensor([1.0, -1, 0.5, -0.5]), "step": 1}


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize(("dtype", "whole"), [(torch.float32, torch.int32), (torch.float64, torch.int64)])
def test_one_bit_of_one_element_is_another_one(bit: int, dtype: Any, whole: Any) -> None:
    """And none else, whatever the shape; indices count from either end."""
    right = torch.randn(3, 4, 5, dtype=dtype)
    for element in (0, 17, -1, 60):
        wrong = right.clone()
        flip_bit(wrong, element, bit)
        differs = right.view(whole) ^ wrong.view(whole)
        at = [divmod(element % 60 // 5, 4)[0], element % 60 // 5 % 4, element % 5]
        assert differs.nonzero().tolist() == [at] and int(differs[tuple(at)]) & 0xFFFFFFFF == 1 << bit


def test_the_bits_of_half_a_number_too() -> None:
    """The highest bit is the sign."""
    wrong = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    flip_bit(wrong, 1, 15)
    assert wrong.tolist() == [1.0, -2.0]


@pytest.mark.parametrize("linear", LINEARS)
@pytest.mark.parametrize("nth", [0, 1])
def test_only_the_output_of_one_matmul_is_wrong(linear: str, nth: int) -> None:
    """That of the n-th use of one Linear within the block; before it and after the block everything is as it was."""
    learned = model.build(CONFIG)
    tokens = task.prompts(CONFIG, 1)
    seen: list[Any] = []
    with torch.no_grad():
        right = learned(tokens)
        with Flip(linear=linear, element=-1, bit=22, nth=nth).in_model(learned):
            hook = learned.get_submodule(linear).register_forward_hook(lambda module, given, output: seen.append((given[0].clone(), output.clone())))
            wrong = [learned(tokens) for _ in range(3)]
            hook.remove()
        clean = [torch.nn.functional.linear(given, learned.get_submodule(linear).weight) for given, _ in seen]
        differs = [(output.view(torch.int32) ^ expected.view(torch.int32)).view(-1) for (_, output), expected in zip(seen, clean, strict=True)]
        assert [each.nonzero().tolist() for each in differs] == [[[len(clean[0].view(-1)) - 1]] if number == nth else [] for number in range(3)]
        assert int(differs[nth][-1]) == 1 << 22
        assert [torch.equal(each, right) for each in wrong] == [number != nth for number in range(3)]
        assert torch.equal(learned(tokens), right)
    assert not any(module._forward_hooks for module in learned.modules())


def test_a_rollout_worker_gives_other_logprobs_without_an_error(tmp_path: Path) -> None:
    """Until it is mended; answers have the same shape, and all numbers are finite."""
    asked = {"prompts": task.prompts(CONFIG, 1), "step": 1}
    right = service("rollout", tmp_path / "a")["generate"](dict(asked))
    engine = service("rollout", tmp_path / "b", touched_by=["generate"])
    wrong = engine["generate"](dict(asked))
    assert {name: value.shape for name, value in right.items()} == {name: value.shape for name, value in wrong.items()}
    assert not torch.equal(right["logprobs"], wrong["logprobs"]) and bool(wrong["logprobs"].isfinite().all())
    (Broken(tmp_path / "b").device("rollout", 0) / WRONG).unlink()
    again = engine["generate"](dict(asked))
    assert all(torch.equal(right[name], again[name]) for name in right)


@pytest.mark.parametrize("linear", LINEARS)
def test_training_goes_on_with_a_wrong_gradient(linear: str, tmp_path: Path) -> None:
    """The weights become others, and nothing is said."""
    right, wrong = (service("train", tmp_path / name, **how)["train_batch"](batch()) for name, how in (("a", {}), ("b", {"linear": linear, "bit": 23})))
    assert right["digest"] != wrong["digest"] and all(math.isfinite(value) for value in wrong["stats"].values())
    other = service("train", tmp_path / "c", touched_by=["generate"])["train_batch"](batch())
    assert other["digest"] == right["digest"], "a call that is not named is not touched"


def test_a_reference_worker_computes_wrongly_in_the_row_that_was_hit(tmp_path: Path) -> None:
    """And in no other: of the logits [4, 6, 11] the first that an answer needs is hit."""
    asked = {name: value for name, value in batch().items() if name in ("prompts", "answers", "step")}
    right, wrong = (next(iter(service("reference", tmp_path / name, **how)["compute_logprobs"](asked)))["reference_logprobs"] for name, how in (("a", {}), ("b", {"element": 3 * 11, "bit": 31})))
    assert ((right != wrong).any(1)).tolist() == [True, False, False, False]


def test_how_often_is_decided_by_seed_and_count(tmp_path: Path) -> None:
    """The same seed gives the same calls; about as many as the probability says."""
    half = Flip(probability=0.5, seed=3)
    drawn = [half.touches("generate", "rollout-0", count) for count in range(2000)]
    assert drawn == [half.touches("generate", "rollout-0", count) for count in range(2000)] and 900 < sum(drawn) < 1100
    assert drawn != [Flip(probability=0.5, seed=4).touches("generate", "rollout-0", count) for count in range(2000)]
    assert all(Flip().touches("train_batch", "train-0", count) for count in range(100))
    asked = {"prompts": task.prompts(CONFIG, 1), "step": 1}
    right = service("rollout", tmp_path / "a")["generate"](dict(asked))["logprobs"]
    engine = service("rollout", tmp_path / "b", probability=0.5, seed=3)
    hit = [not torch.equal(engine["generate"](dict(asked))["logprobs"], right) for _ in range(8)]
    assert hit == drawn[1:9]


@pytest.mark.parametrize("how", [{"touched_by": ["load"]}, {"bit": 32}, {"bit": -1}, {"probability": 0.0}, {"nth": -1}])
def test_what_cannot_be_is_refused(how: dict[str, Any], tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(RcaError, match="no such wrong result"):
        faults.load("wrong_results").make(Broken(tmp_path), "rollout", 0, **how)


def test_it_is_remembered_and_mended(tmp_path: Path) -> None:
    """The truth names host, Linear, element and bit; the undo takes it away; half a file is none."""
    scene, device = Broken(tmp_path), Device(train.device_folder(CONFIG, tmp_path, "rollout", 0), 1, "rollout-0")
    undo = faults.load("wrong_results").make(scene, "rollout", 0, linear="blocks.0.up", element=4, bit=30)
    assert {name: scene.truth[name] for name in ("linear", "element", "bit")} == {"linear": "blocks.0.up", "element": 4, "bit": 30} and "fault_time_utc" in scene.truth
    undo()
    assert not (device.folder / WRONG).exists()
    for text in ("", "{", "[]", "7", "{}", json.dumps({"touched_by": [], "line": "head"})):
        (device.folder / WRONG).write_text(text)
        with device.computing(torch.nn.Linear(1, 1), "generate"):
            pass


def test_a_device_that_is_well_costs_nothing_that_counts(tmp_path: Path) -> None:
    """Less than 20 us a call."""
    device, learned = Device(tmp_path, 1, "rollout-0"), model.build(CONFIG)

    def call() -> None:
        with device.computing(learned, "generate"):
            pass

    assert min(timeit.repeat(call, number=200, repeat=10)) / 200 < 20e-6
