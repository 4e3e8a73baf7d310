"""`disk`: the rollout workers read what the latest save left in the checkpoint path; a run's first weights are written for it."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from rca import trace_inject as rt
from rca.replay_trainer import checkpoints
from rca.replay_trainer.config import Config

KIND = "latest"


class Sender:
    def __init__(self, config: Config, run: Path, address: str) -> None:
        self.config, self.run = config, run

    def upload(self, version: int, weights: dict[str, Tensor]) -> None:
        """See that the weights of a version lie in the checkpoint path and can be read. Raises ValueError `Invalid checkpoint format`, OSError.

        What is written for this alone, where no save has left it, may be of an attempt before a recovery, with other settings: it is written again.
        """
        path = checkpoints.path_of(self.config, self.run, KIND, version)
        if not path.exists() or (self.config.whole_checkpoints and not (path / checkpoints.STATE).exists()):
            checkpoints.write(self.config, self.run, KIND, version, weights, {}, {})
        rt.checkpoint_loaded(path)
        try:
            found = checkpoints.read_weights(path)
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"Invalid checkpoint format: {error} ({path})") from error
        if found.keys() != weights.keys():
            raise ValueError(f"Invalid checkpoint format: {len(found)} tensors where the model has {len(weights)} ({path})")

    def close(self) -> None: ...


class Receiver:
    def __init__(self, config: Config, run: Path, rank: int) -> None:
        self.config, self.run = config, run

    def receive(self, version: int, like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of a version. Raises ValueError, OSError."""
        path = checkpoints.path_of(self.config, self.run, KIND, version)
        rt.checkpoint_loaded(path)
        return checkpoints.read_weights(path)

    def close(self) -> None: ...
