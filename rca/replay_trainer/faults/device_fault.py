"""A device goes bad: from then on, the operations that touch the bad part fail with a CUDA error, and go on failing (the stand-in of `device`).

Synthetic: there is no GPU. `touched_by` are calls of the workers: upload_weights, train_batch, generate; none means all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rca.replay_trainer.device import FAULT
from rca.replay_trainer.faults import Scene

KIND = "synthetic"
NEEDS: tuple[str, ...] = ()


def make(scene: Scene, role: str, rank: int, error: str = "device-side assert triggered", touched_by: Sequence[str] = ()) -> None:
    """There is no undo: a process that saw the error keeps it."""
    folder = scene.device(role, rank)
    aside = folder / ".fault"
    aside.write_text(json.dumps({"error": error, "touched_by": list(touched_by)}))
    aside.replace(folder / FAULT)
