"""Recording around the methods and callbacks of trainers, without their libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from journals import records

from rca.trace_inject import context, guard, spans
from rca.trace_inject.integrations import methods, metrics, open_spans, trl
from rca.trace_inject.integrations.transformers import OF_RANK


def test_no_framework_is_imported() -> None:
    """The modules are there without their libraries, which come with the first use."""
    code = "import sys\nfrom rca.trace_inject.integrations import lightning, transformers, trl\nassert not {'torch', 'transformers', 'lightning', 'trl'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[2], capture_output=True, timeout=60).returncode == 0


class Worker:
    """Something with methods."""

    def save(self, path: str, fast: bool = False) -> str:
        """Gives back what it got, or raises."""
        if path == "bad":
            raise OSError(28, "No space left on device")
        return f"{path} {fast}"


def test_a_method_is_recorded_and_unchanged(folder: Path) -> None:
    """Arguments, result and error pass; a second wrap does nothing; other objects of the class are left alone; what is not there is no error."""
    worker, other = Worker(), Worker()
    results: list[Any] = []
    before = lambda path, fast=False: spans.span("save", path=path)  # noqa: E731
    assert methods.wrap(worker, "save", before, lambda result, *a, **k: results.append(result))
    assert not methods.wrap(worker, "save", before) and not methods.wrap(worker, "load", before)
    assert worker.save("x", fast=True) == "x True" and results == ["x True"]
    with pytest.raises(OSError, match="No space"):
        worker.save("bad")
    other.save("y")
    told = records(folder)
    assert [r["e"] for r in told] == ["start", "end", "start", "end"]
    assert told[-1]["a"]["exception.message"] == "[Errno 28] No space left on device"


def test_a_fault_of_ours_stays_ours(folder: Path) -> None:
    """What goes wrong before or after a method is kept from its caller."""
    worker = Worker()
    methods.wrap(worker, "save", lambda: None, lambda: None)  # neither takes the arguments
    assert worker.save("x") == "x False"
    assert len(guard.faults) == 2
    guard.faults.clear()


def test_an_error_ends_what_callbacks_left_open(folder: Path) -> None:
    """From within, each span with the error; and a span of the same kind that was left open ends when the next begins."""
    opened = open_spans.Open()
    with pytest.raises(RuntimeError), open_spans.Run(opened, spans.span("train")):
        opened.begin("epoch", spans.span("epoch"))
        opened.begin("step", open_spans.of_step(1, "train"))
        opened.begin("step", open_spans.of_step(2, "train"))
        opened.end("evaluation")  # never begun
        raise RuntimeError("out of luck")
    told = records(folder)
    names = {r["id"]: (r["n"], r.get("s")) for r in told if r["e"] == "start"}
    assert [names[r["id"]] for r in told if r["e"] == "end"] == [("step", 1), ("step", 2), ("epoch", None), ("train", None)]
    assert [r.get("a", {}).get("exception.message") for r in told if r["e"] == "end"] == [None, *["out of luck"] * 3]
    assert not opened and context.span_id() == ""


def test_numbers_of_a_log(folder: Path) -> None:
    """Numbers and texts of numbers are kept, `nan` as a word; the first loss that is no number is told once until one is good again."""
    metrics.record({"loss": "2.5", "grad_norm": float("nan"), "note": "hello", "done": True, "many": [1]}, **{"rca.step": 4})
    assert records(folder)[-1]["a"] == {"loss": 2.5, "grad_norm": "nan", "rca.step": 4}
    onset = metrics.Onset()
    for step, loss in enumerate([1.0, float("inf"), float("nan"), 0.5, float("nan")]):
        onset.take({"loss": loss}, step)
    assert [(r["a"]["loss"], r["a"]["rca.step"]) for r in records(folder)[1:]] == [("inf", 1), ("nan", 4)]


def test_stages_of_an_unknown_release(folder: Path) -> None:
    """Of a trainer that lacks most methods the others are recorded; logits of the loss are training, those outside of it reference; weights are sent in a stage of their own."""

    class Trainer:
        def __init__(self) -> None:
            self.ref_model, self.reward_funcs = object(), [lambda completions: [1.0]]

        def _get_per_token_logps(self, model: Any) -> int:
            return 3

        def compute_loss(self, model: Any, inputs: Any) -> int:
            return self._get_per_token_logps(model)

        def _move_model_to_vllm(self) -> None:
            return

    trainer = Trainer()
    trl.watch(trainer)
    trl.watch(trainer)
    assert trainer.reward_funcs[0](completions=[]) == [1.0] and trainer._get_per_token_logps(trainer.ref_model) == 3 and trainer.compute_loss(SimpleNamespace(), {}) == 3
    trainer._move_model_to_vllm()
    assert [(r["n"].split(" ")[0], r["st"]) for r in records(folder) if r["e"] == "start"] == [("reward", "rollout"), ("get_per_token_logps", "reference"), ("compute_loss", "train"), ("move_model_to_vllm", "weights_update")]
    assert guard.faults == []


def test_an_early_release_that_generates_while_it_prepares(folder: Path) -> None:
    """There the preparation of a batch is the rollout, and the batch is told by both sides."""

    class Early:
        reward_funcs: list[Any] = []

        def _prepare_inputs(self, inputs: Any) -> dict[str, Any]:
            return {"ids": b"abc", "items": 4}

        def compute_loss(self, model: Any, inputs: Any) -> int:
            return 3

    trainer = Early()
    trl.watch(trainer)
    assert trainer.compute_loss(None, trainer._prepare_inputs([])) == 3
    assert next((r["e"], r["n"], r.get("st")) for r in records(folder) if r["e"] != "end") == ("start", "prepare_inputs", "rollout")
    assert [r["a"]["rca.side"] for r in records(folder) if r["e"] == "handoff"] == ["sender", "receiver"]
    assert guard.faults == []


def test_an_engine_that_does_not_answer(folder: Path) -> None:
    """A call of vLLM's server says whom it called; its exception passes."""

    class Engine:
        vllm_client = SimpleNamespace(host="10.0.0.7", server_port=8000)

        def sync_weights(self) -> None:
            return

        def generate(self, prompts: Any) -> None:
            raise TimeoutError("no answer")

    trainer = SimpleNamespace(vllm_generation=Engine(), reward_funcs=[])
    trl.watch(trainer)
    trainer.vllm_generation.sync_weights()
    with pytest.raises(TimeoutError):
        trainer.vllm_generation.generate(prompts=[1])
    starts = [r for r in records(folder) if r["e"] == "start"]
    assert [(r["st"], r["a"]) for r in starts] == [("weights_update", {"server.address": "10.0.0.7", "server.port": 8000}), ("rollout", {"server.address": "10.0.0.7", "server.port": 8000})]


@pytest.mark.parametrize(("name", "rank"), [("rng_state_3.pth", 3), ("__12_0.distcp", 12), ("zero_pp_rank_3_mp_rank_00_model_states.pt", 3), ("rng_state.pth", None), ("model-00001-of-00004.safetensors", None)])
def test_files_of_one_rank(name: str, rank: int | None) -> None:
    """Which rank wrote a file of a checkpoint, so that no rank sums what another still writes."""
    found = OF_RANK.search(name)
    assert (int(found[1]) if found else None) == rank
