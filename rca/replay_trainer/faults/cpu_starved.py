"""A process gets next to no CPU time: the quota of its control group is 2 % of one core, as a wrong limit or a greedy neighbour leaves it."""

from __future__ import annotations

from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted

KIND = "real"
NEEDS = ("cpu control groups",)


def make(scene: Scene, role: str, rank: int, cpus: float = 0.02, seconds: float | None = None) -> Undo:
    group = scene.group(role, rank)
    group.limit(cpus=cpus)
    noted(scene, host=scene.host(role, rank).name, pid=scene.pid(role, rank), cpus=cpus)
    return for_a_while(lambda: group.limit(cpus=0), seconds)
