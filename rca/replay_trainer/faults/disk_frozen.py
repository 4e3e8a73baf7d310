"""The storage of the checkpoints hangs: fsfreeze. A writer sleeps uninterruptibly, as on an NFS server that does not answer; after two minutes the kernel says so."""

from __future__ import annotations

from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted, storage_of

KIND = "real"
NEEDS = ("mount namespaces", "loop devices", "freezable file system")


def make(scene: Scene, role: str = "train", rank: int = 0, seconds: float | None = None) -> Undo:
    storage = storage_of(scene)
    storage.freeze()
    noted(scene)
    return for_a_while(storage.thaw, seconds)
