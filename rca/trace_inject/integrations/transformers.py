"""Hugging Face's Trainer: spans for train, epoch, step, evaluate and save, checkpoints with manifests, and the numbers that it logs.

    trainer = Trainer(..., callbacks=[RcaCallback()])

That is all where the callback is given to the Trainer's constructor: it finds its trainer there, and records around the methods of that one object by which
it loads, saves and evaluates. `trace_trainer(trainer)` does it for a trainer that is there already. A trainer that generates (TRL's `GRPOTrainer`) gets its
stages, too: see `trl`.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Any

from rca.trace_inject import checkpoints, guard, spans
from rca.trace_inject.integrations import methods, metrics
from rca.trace_inject.integrations.open_spans import Open, Run, of_step

FRAMES_MAX = 12  # callers among which the trainer is looked for
#: The rank in the name of a file that every rank writes for itself: `rng_state_3.pth`, `__3_0.distcp`, `zero_pp_rank_3_mp_rank_00_model_states.pt`.
OF_RANK = re.compile(r"(?:rng_state_|^__|rank_?)(\d{1,6})(?=[_.])")


def __getattr__(name: str) -> Any:
    if name == "RcaCallback":
        return _callback()
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def trace_trainer(trainer: Any) -> Any:
    """Record what a Trainer does from here on; gives the callback that does it. Idempotent, and without effect on what is trained."""
    callback = next((c for c in getattr(getattr(trainer, "callback_handler", None), "callbacks", []) if type(c).__name__ == "RcaCallback"), None)
    if callback is None:
        callback = _callback()()
        trainer.add_callback(callback)
    callback.watch(trainer)
    return callback


class Recorder:
    """What the callback holds and does, apart from the class that transformers wants it to have."""

    def __init__(self) -> None:
        self.open = Open()
        self.onset = metrics.Onset()
        self.loaded: str | None = None  # the checkpoint that this run resumes from
        self._hooked = False

    @guard.quiet()
    def watch(self, trainer: Any) -> None:
        """Record around those methods of this trainer that no callback tells of, or only when it is too late."""
        if hasattr(trainer, "_generate_and_score_completions") or hasattr(trainer, "reward_funcs"):  # again at each start: a part of it is made after the trainer
            from rca.trace_inject.integrations import trl

            trl.watch(trainer)
        if getattr(trainer, "_rca_watched", None) is self:
            return
        trainer._rca_watched = self
        methods.wrap(trainer, "train", self._train)
        methods.wrap(trainer, "_load_from_checkpoint", lambda path=None, *a, **k: self._resume(path, "load_model"))
        methods.wrap(trainer, "_load_optimizer_and_scheduler", lambda path=None, *a, **k: self._resume(path, "load_optimizer") if path is not None else None)
        methods.wrap(trainer, "_load_best_model", lambda *a, **k: spans.stage("load"))
        methods.wrap(trainer, "_save_checkpoint", lambda *a, **k: spans._inner("save_checkpoint", {"rca.path": _folder(trainer.args, trainer.state)}, stage="save", step=trainer.state.global_step))
        for name in ("evaluate", "predict"):
            methods.wrap(trainer, name, lambda *a, _name=name, **k: spans._inner(_name, {}, stage="eval"))
        methods.wrap(trainer, "training_step", lambda *a, **k: None, lambda loss, *a, **k: self.onset.take(loss, trainer.state.global_step + 1))

    def _train(self, *args: Any, **kwargs: Any) -> Run:
        self.loaded = None
        return Run(self.open, spans.span("train"))

    def _resume(self, path: Any, name: str) -> Any:
        self.load(path)
        return spans._inner(name, {"rca.path": path}, stage="recover")

    def load(self, path: Any) -> None:
        """Verify the checkpoint that is about to be read, once a run."""
        if path and path != self.loaded:
            self.loaded = path
            with spans._inner("verify", {"rca.path": path}, stage="recover"):
                checkpoints.checkpoint_loaded(path)

    def find(self) -> None:
        """Watch the trainer that calls the callback right now."""
        frame = sys._getframe(1)
        for _ in range(FRAMES_MAX):
            if frame is None:
                return
            trainer = frame.f_locals.get("self")
            if self in [getattr(c, "_rca", None) for c in getattr(getattr(trainer, "callback_handler", None), "callbacks", None) or []]:
                self.watch(trainer)
                return
            frame = frame.f_back

    def hook(self) -> None:
        """Close what is open when an error ends the process: for a trainer whose `train` was called before it was found."""
        if self._hooked:
            return
        self._hooked, previous = True, sys.excepthook

        def hook(kind: Any, error: Any, trace: Any) -> None:
            self.open.end(None, error)
            previous(kind, error, trace)

        sys.excepthook = hook

    def saved(self, args: Any, state: Any) -> None:
        """Write the manifest of the checkpoint that was just saved: of this rank's own files, and on the first rank of all that are nobody's."""
        folder, rank = _folder(args, state), int(getattr(args, "process_index", 0) or 0)
        if not os.path.isdir(folder):
            return
        first = bool(getattr(state, "is_local_process_zero" if getattr(args, "save_on_each_node", False) else "is_world_process_zero", rank == 0))
        if int(getattr(args, "world_size", 1) or 1) <= 1:
            checkpoints.checkpoint_saved(folder, step=state.global_step)
            return
        own = [f for f in checkpoints.files_of(folder) if (int(m[1]) == rank if (m := OF_RANK.search(os.path.basename(f))) else first)]
        if own:
            checkpoints.checkpoint_saved(folder, files=own, step=state.global_step, shard=rank)


def _folder(args: Any, state: Any) -> str:
    return os.path.join(str(args.output_dir), f"checkpoint-{state.global_step}")


@functools.cache
def _callback() -> type:
    from transformers import TrainerCallback

    class RcaCallback(TrainerCallback):
        """Leave evidence of a run of Hugging Face's Trainer; see the module."""

        def __init__(self) -> None:
            self._rca = Recorder()

        def watch(self, trainer: Any) -> None:
            """Record around the methods of this trainer, too."""
            self._rca.watch(trainer)

        @guard.quiet()
        def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """The trainer is there: the only moment at which it can be found before it loads a checkpoint."""
            self._rca.find()

        @guard.quiet()
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """A run begins, or goes on from a checkpoint."""
            rca = self._rca
            if "run" in rca.open:  # what an earlier one left, which ran out of memory and was started again
                rca.open.end()
            rca.find()
            rca.hook()
            if state.global_step and rca.loaded is None and os.path.isdir(_folder(args, state)):
                rca.load(_folder(args, state))
            rca.open.begin("run", spans._inner("fit", {"rca.epochs": state.num_train_epochs, "rca.steps": state.max_steps, "rca.resumed": state.global_step or None}, stage="train"))

        @guard.quiet()
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._rca.open.begin("epoch", spans.span("epoch", epoch=int(state.epoch or 0)))

        @guard.quiet()
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._rca.open.begin("step", of_step(state.global_step + 1, "train"))

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._rca.open.end("step")

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._rca.open.end("epoch")

        @guard.quiet()
        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._rca.open.end("run")

        @guard.quiet()
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            with spans._inner("manifest", {}, stage="save", step=state.global_step):
                self._rca.saved(args, state)

        @guard.quiet()
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            said = dict(logs or {})
            if self._rca.onset.bad and "loss" in said and getattr(args, "logging_nan_inf_filter", False):
                said["loss"] = float("nan")  # what stands in the log is the average of earlier ones
            if "train_runtime" not in said:  # the averages at the end are no step's
                metrics.record(said, **{"rca.step": state.global_step})

    # Found again by its name when it is pickled, as hyperparameter searches do.
    RcaCallback.__module__, RcaCallback.__qualname__ = __name__, "RcaCallback"
    return RcaCallback
