"""What can go wrong in the system, by who says it: `TrainEngineError: UploadWeightsError: Status code: 500, ...` (docs/scenarios.md)."""

from __future__ import annotations


class TrainerError(RuntimeError):
    """A failure of the job. `RuntimeError` keeps the message as it is."""


class TrainEngineError(TrainerError):
    """A train worker could not do what it was asked."""


class InferenceEngineError(TrainerError):
    """A rollout worker could not do what it was asked."""


class RefEngineError(TrainerError):
    """A reference worker could not do what it was asked."""


class FrameworkError(TrainerError):
    """The controller itself could not go on."""


class SchedulerError(TrainerError):
    """Jobs could not be started or stopped."""


class RecoverError(TrainerError):
    """A run could not be taken up again."""


class CallError(TrainerError):
    """A call to a worker failed. `passing` says that a repetition may help: nothing was done yet."""

    def __init__(self, message: str, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


#: Who answers for a call: its error class, and the name of what failed.
OF_CALLS: dict[tuple[str, str], tuple[type[TrainerError], str]] = {
    ("train", "load"): (RecoverError, "Failed to load checkpoint"),
    ("train", "upload_weights"): (TrainEngineError, "UploadWeightsError"),
    ("train", "train_batch"): (TrainEngineError, "TrainBatchError"),
    ("train", "save"): (TrainEngineError, "SaveError"),
    ("rollout", "update_weights"): (InferenceEngineError, "UpdateWeightError"),
    ("rollout", "generate"): (InferenceEngineError, "RolloutError"),
    ("reference", "load"): (RefEngineError, "LoadError"),
    ("reference", "compute_logprobs"): (RefEngineError, "ComputeLogpError"),
}


def of_call(role: str, method: str, message: str) -> TrainerError:
    """The typed error of a call that failed."""
    kind, name = OF_CALLS.get((role, method), (FrameworkError, f"{method} of {role}"))
    return kind(f"{name}: {message}")
