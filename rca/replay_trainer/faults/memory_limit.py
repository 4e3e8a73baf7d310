"""The memory limit of a process's control group is lowered to what it uses and a little: its next growth is a real out-of-memory kill, with the kernel's report.

Page cache does not count as used: the kernel would give that up first, and the process would live for steps.
"""

from __future__ import annotations

import time

from rca.errors import RcaError
from rca.replay_trainer.control_groups import UNLIMITED
from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted

KIND = "real"
NEEDS = ("memory control groups",)
TRIES, PAUSE_S = 50, 0.02  # a group that grows while its limit is set is refused, and asked again


def make(scene: Scene, role: str, rank: int, slack_bytes: int = 1 << 20, limit_bytes: int | None = None, seconds: float | None = None) -> Undo:
    """`limit_bytes` sets the limit itself: growth up to it goes well. Raises RcaError if the group never takes it."""
    group = scene.group(role, rank)
    for left in reversed(range(TRIES)):
        limit = limit_bytes if limit_bytes is not None else group.memory_bytes - group.cache_bytes + slack_bytes
        try:
            group.limit(memory_bytes=limit)
            break
        except RcaError:
            if not left:
                raise
            time.sleep(PAUSE_S)
    noted(scene, host=scene.host(role, rank).name, pid=scene.pid(role, rank), limit_bytes=limit)
    return for_a_while(lambda: group.limit(memory_bytes=UNLIMITED), seconds)
