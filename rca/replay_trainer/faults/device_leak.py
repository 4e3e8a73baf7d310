"""A worker does not give memory of its device back: each batch leaves `leak_bytes` behind, until the device is full (the stand-in of `device`).

Synthetic: there is no GPU.
"""

from __future__ import annotations

from rca.replay_trainer.device import LEAK
from rca.replay_trainer.faults import Scene

KIND = "synthetic"
NEEDS: tuple[str, ...] = ()


def make(scene: Scene, role: str, rank: int, leak_bytes: int = 16 << 20) -> None:
    (scene.device(role, rank) / f"{role}-{rank}.{LEAK}").write_text(str(leak_bytes))
