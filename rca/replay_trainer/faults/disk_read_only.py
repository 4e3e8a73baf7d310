"""The storage of the checkpoints turns read-only: its superblock is remounted, so that every host really gets EROFS."""

from __future__ import annotations

from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted, storage_of

KIND = "real"
NEEDS = ("mount namespaces",)


def make(scene: Scene, role: str = "train", rank: int = 0, seconds: float | None = None) -> Undo:
    storage = storage_of(scene)
    storage.read_only()
    noted(scene)
    return for_a_while(storage.writable, seconds)
