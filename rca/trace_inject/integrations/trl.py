"""TRL's online trainers (`GRPOTrainer`, `RLOOTrainer`): the stages inside a step, and the generated batch from where it is made to where it is trained on.

    trace_grpo(trainer)

A step is generation and rewards (stage `rollout`), log-probabilities of the old policy and the reference (`reference`), loss, gradient and optimizer (`train`), and with
vLLM the transfer of weights (`weights_update`). Releases name their methods differently: what is not there is not recorded.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any

from rca.trace_inject import guard, handovers, spans
from rca.trace_inject.integrations import methods

#: Methods by the stage that they are, in any release; the first of a row that is there is recorded.
STAGES = (
    ("rollout", ("_generate_and_score_completions",)),
    ("rollout", ("_generate", "_generate_single_turn")),
    ("rollout", ("_calculate_rewards",)),
    ("reference", ("_get_per_token_logps_and_entropies", "_get_per_token_logps")),
    ("weights_update", ("_move_model_to_vllm", "_sync_weights")),
)
_in_loss: ContextVar[bool] = ContextVar("rca_in_loss", default=False)


def trace_grpo(trainer: Any) -> Any:
    """Record what an online trainer does from here on, steps and checkpoints included; gives the callback. Idempotent, and without effect on what is trained."""
    from rca.trace_inject.integrations.transformers import trace_trainer

    callback = trace_trainer(trainer)
    watch(trainer)
    return callback


@guard.quiet()
def watch(trainer: Any) -> None:
    """Record around the methods of this trainer that are stages."""
    batches = trainer.__dict__.setdefault("_rca_batches", Batches(trainer))
    for stage, names in STAGES:
        name = next((n for n in names if callable(getattr(trainer, n, None))), None)
        if name is None:
            continue
        before = (lambda model=None, *a, _name=name, **k: _logprobs(trainer, model, _name)) if stage == "reference" else (lambda *a, _name=name, _stage=stage, **k: _stage_of(_name, _stage))
        methods.wrap(trainer, name, before, batches.made if name == "_generate_and_score_completions" else None)
    if not hasattr(trainer, "_generate_and_score_completions") and _own(trainer, "_prepare_inputs"):  # early releases generate in there
        batches.always = True
        methods.wrap(trainer, "_prepare_inputs", lambda *a, **k: _stage_of("prepare_inputs", "rollout"), batches.prepared)
    else:
        methods.wrap(trainer, "_prepare_inputs", lambda *a, **k: None, batches.prepared)
    methods.wrap(trainer, "compute_loss", lambda model=None, inputs=None, *a, **k: _Loss(batches, inputs))
    engine = getattr(trainer, "vllm_generation", None)
    if engine is not None:
        where = _address(getattr(engine, "vllm_client", None))
        methods.wrap(engine, "sync_weights", lambda *a, **k: spans._inner("sync_weights", where, stage="weights_update"))
        methods.wrap(engine, "generate", lambda *a, **k: spans._inner("vllm.generate", where, stage="rollout"))
    functions = getattr(trainer, "reward_funcs", None)
    if isinstance(functions, list):
        for number, function in enumerate(functions):
            if callable(function) and not hasattr(function, "parameters") and not getattr(function, "__rca__", False):  # a model is asked for its type, and stays as it is
                name = getattr(function, "__name__", type(function).__name__)
                functions[number] = spans.traced(f"reward {name}", stage="rollout")(function)
                functions[number].__rca__ = True


def _own(trainer: Any, name: str) -> bool:
    """Whether a method is not the one that every Trainer has."""
    return getattr(getattr(type(trainer), name, None), "__qualname__", f"Trainer.{name}") != f"Trainer.{name}"


def _stage_of(name: str, stage: str) -> spans.Span:
    return spans._inner(name.lstrip("_"), {}, stage=stage)


def _logprobs(trainer: Any, model: Any, name: str) -> spans.Span | None:
    """The span of a pass for log-probabilities; None inside the loss, where it is the pass that is trained."""
    if _in_loss.get():
        return None
    of = "reference" if model is not None and model is getattr(trainer, "ref_model", None) else "policy"
    return spans._inner(name.lstrip("_"), {"model": of}, stage="reference")


def _address(client: Any) -> dict[str, Any]:
    """Where a server of vLLM listens; empty for an engine in this process."""
    host, port = getattr(client, "host", None), getattr(client, "server_port", None)
    return {"server.address": host, "server.port": port} if isinstance(host, str) else {}


class _Loss:
    """The computation of the loss: the batch has arrived, and passes for log-probabilities are those of training."""

    def __init__(self, batches: Batches, inputs: Any) -> None:
        batches.arrived(inputs)
        self._span = _stage_of("compute_loss", "train")

    def __enter__(self) -> None:
        self._token = _in_loss.set(True)
        self._span.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._span.__exit__(*error)
        _in_loss.reset(self._token)


class Batches:
    """The hand-over of what was generated: told when it is cut into the batches of training, and again when each of these is trained on."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._made = 0
        self._prefix = os.urandom(4).hex()  # of this process: other ranks have batches of the same numbers
        self._fresh = False
        self.always = False  # whether every batch of training was generated just now
        self._keys: dict[int, str] = {}  # of a batch by its identity, which holds as long as the trainer keeps it

    def made(self, *args: Any, **kwargs: Any) -> None:
        """A batch was generated."""
        self._made += 1
        self._fresh = True

    def prepared(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """What the trainer keeps to train on, after it was generated; `result` is the first of it."""
        if self.always:
            self.made()
        if not self._fresh:
            return
        self._fresh = False
        kept = getattr(self._trainer, "_buffered_inputs", None)
        listed = kept if isinstance(kept, list) and any(batch is result for batch in kept) else [result]
        self._keys = {}
        with spans._inner("hand over", {}, stage="rollout"):
            for number, batch in enumerate(listed):
                if isinstance(batch, dict):
                    self._keys[id(batch)] = key = f"rollout-{self._prefix}-{self._made}-{number}"
                    handovers.handoff("rollout_batch", _tensors(batch), key=key, to="train")

    @guard.quiet()
    def arrived(self, inputs: Any) -> None:
        """A batch is about to be trained on."""
        if (key := self._keys.get(id(inputs))) is not None:
            handovers.handoff("rollout_batch", _tensors(inputs), key=key, received=True)


def _tensors(batch: dict[Any, Any]) -> dict[Any, Any]:
    """The rows of a batch, without single numbers about it, so that its count is that of the rows."""
    return {k: v for k, v in batch.items() if getattr(v, "shape", None)}
