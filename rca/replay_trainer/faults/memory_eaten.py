"""A second process in the control group of a process grows until the group's limit is reached, and the kernel takes the first one.

Which process is taken is the kernel's choice: the victim's `oom_score_adj` is raised, as a container platform does with the pods that it values least.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted

KIND = "real"
NEEDS = ("memory control groups",)
GROW = """
import sys, time
held, size, pause = [], int(sys.argv[1]), float(sys.argv[2])
while size > 0:
    held.append(b"\\1" * min(size, 1 << 20))
    size -= 1 << 20
    time.sleep(pause)
time.sleep(1e6)
"""
UNLOVED = 500  # of 1000


def make(scene: Scene, role: str, rank: int, eaten_bytes: int = 1 << 30, pause_s: float = 0.0, victim_score: int | None = UNLOVED, python: str = sys.executable) -> Undo:
    """Eats 1 MiB, waits `pause_s`, and so on up to `eaten_bytes`; the group needs a limit below that. `python` is a path on the host."""
    host, group, pid = scene.host(role, rank), scene.group(role, rank), scene.pid(role, rank)
    if victim_score is not None:
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(victim_score))
    eater = host.start([python, "-I", "-S", "-c", GROW, str(eaten_bytes), str(pause_s)], env={"PATH": os.defpath}, within=group)
    noted(scene, host=host.name, pid=pid, eater_pid=eater.pid)
    return for_a_while(lambda: _end(eater), None)


def _end(eater: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        eater.send_signal(signal.SIGKILL)
    eater.wait()
