"""A process dies without a word: SIGKILL. Its sockets are closed by the kernel; nothing is written, not even by the kernel."""

from __future__ import annotations

import os
import signal

from rca.replay_trainer.faults import Scene, noted

KIND = "real"
NEEDS = ()


def make(scene: Scene, role: str, rank: int) -> None:
    pid = scene.pid(role, rank)
    os.kill(pid, signal.SIGKILL)
    noted(scene, host=scene.host(role, rank).name, pid=pid)
