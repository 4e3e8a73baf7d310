"""The storage of the checkpoints is full: a file without a name takes what was left, so that the next write really fails with ENOSPC on every host."""

from __future__ import annotations

from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted, storage_of

KIND = "real"
NEEDS = ("mount namespaces",)


def make(scene: Scene, role: str = "train", rank: int = 0, seconds: float | None = None) -> Undo:
    storage = storage_of(scene)
    storage.fill()
    noted(scene)
    return for_a_while(storage.free, seconds)
