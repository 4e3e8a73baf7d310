"""A process hangs: SIGSTOP. Its sockets stay open and the kernel goes on to acknowledge what is sent to it."""

from __future__ import annotations

import contextlib
import os
import signal

from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted

KIND = "real"
NEEDS = ()


def make(scene: Scene, role: str, rank: int, seconds: float | None = None) -> Undo:
    """With `seconds` it goes on by itself after that."""
    pid = scene.pid(role, rank)
    os.kill(pid, signal.SIGSTOP)
    noted(scene, host=scene.host(role, rank).name, pid=pid)

    def undo() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return for_a_while(undo, seconds)
