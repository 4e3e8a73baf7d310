"""Lightning (`lightning` and `pytorch_lightning`): spans for fit, epochs, steps and evaluation, checkpoints with manifests, and the error that ended a run.

    trainer = Trainer(..., callbacks=[RcaCallback()])
"""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from typing import Any

from rca.trace_inject import checkpoints, guard, spans
from rca.trace_inject.integrations import methods, metrics
from rca.trace_inject.integrations.open_spans import Open, of_step

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class RcaCallback:
    """Makes the callback of the package that the user's program has imported; of both where it has both."""

    def __new__(cls) -> Any:
        loaded = tuple(name for name in PACKAGES if name in sys.modules)
        return _callback(loaded or (_installed(),))()


def _installed() -> str:
    """The first of the packages that is there. Raises ImportError."""
    for name in PACKAGES[:-1]:
        try:
            import_module(name)
            return name
        except ImportError:
            continue
    return PACKAGES[-1]


@functools.cache
def _callback(packages: tuple[str, ...]) -> type:
    bases = tuple(dict.fromkeys(import_module(name).Callback for name in packages))
    return type("RcaCallback", (Hooks, *bases), {"__module__": __name__, "__doc__": Hooks.__doc__})


class Hooks:
    """Leave evidence of a run of Lightning's Trainer; see the module."""

    def __init__(self) -> None:
        super().__init__()
        self._open = Open()
        self._onset = metrics.Onset()

    @guard.quiet()
    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """A run begins: the last moment before a checkpoint is read."""
        self._open.end()
        self._open.begin("run", spans.span(str(getattr(stage, "value", stage) or "fit")))
        methods.wrap(trainer, "save_checkpoint", lambda path=None, *a, **k: spans._inner("save_checkpoint", {"rca.path": path}, stage="save", step=trainer.global_step),
                     lambda result, path=None, *a, **k: self._saved(trainer, k.get("filepath", path)))  # fmt: skip
        methods.wrap(getattr(trainer, "strategy", None), "load_checkpoint", lambda path=None, *a, **k: self._resume(trainer, k.get("checkpoint_path", path)))

    def _resume(self, trainer: Any, path: Any) -> Any:
        """Verify a checkpoint before it is read."""
        with spans._inner("verify", {"rca.path": path}, stage="recover"):
            if path and getattr(trainer, "is_global_zero", True):
                checkpoints.checkpoint_loaded(path)
        return spans._inner("load_checkpoint", {"rca.path": path}, stage="recover")

    def _saved(self, trainer: Any, path: Any) -> None:
        """Write the manifest of a checkpoint: one file, or the folder of a sharded one, which Lightning has synchronised."""
        if path and getattr(trainer, "is_global_zero", True):
            checkpoints.checkpoint_saved(path, step=trainer.global_step)

    @guard.quiet()
    def teardown(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """A run is over."""
        self._open.end()

    @guard.quiet()
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """An error ends the run, and all that is open."""
        self._open.end(None, exception)

    @guard.quiet()
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._open.begin("epoch", spans._inner("epoch", {"epoch": int(trainer.current_epoch)}, stage="train"))

    @guard.quiet()
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._open.end("epoch")

    @guard.quiet()
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, *more: Any) -> None:
        self._open.begin("step", of_step(int(trainer.global_step) + 1, "train", batch=int(batch_idx)))

    @guard.quiet()
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, *more: Any) -> None:
        step = int(trainer.global_step)
        self._onset.take(outputs, step)
        every = int(getattr(trainer, "log_every_n_steps", 50) or 50)
        if step and step % every == 0:
            numbers = dict(getattr(trainer, "callback_metrics", {}))
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            metrics.record(numbers | ({"loss": loss} if loss is not None and "loss" not in numbers else {}), **{"rca.step": step})
        self._open.end("step")

    def _evaluation(self, trainer: Any, name: str) -> None:
        self._open.begin("eval", spans._inner(name, {"sanity": True} if getattr(trainer, "sanity_checking", False) else {}, stage="eval"))

    @guard.quiet()
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._evaluation(trainer, "validate")

    @guard.quiet()
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._evaluation(trainer, "test")

    @guard.quiet()
    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self._evaluation(trainer, "predict")

    @guard.quiet()
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._open.end("eval")

    on_test_end = on_predict_end = on_validation_end
