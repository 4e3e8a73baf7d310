"""The device behind the storage of the checkpoints fails: the block layer reports I/O errors, the journal aborts, the file system turns read-only; fsync gives EIO."""

from __future__ import annotations

from rca.replay_trainer.faults import Scene, noted, storage_of

KIND = "real"
NEEDS = ("mount namespaces", "loop devices")


def make(scene: Scene, role: str = "train", rank: int = 0, reads: bool = True) -> None:
    """With `reads` false only writes fail."""
    storage = storage_of(scene)
    device = storage.device
    storage.break_device(reads)
    noted(scene, device=device)
