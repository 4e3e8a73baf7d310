"""The connections of one worker misbehave: a proxy before it delays, stalls, resets, drops or cuts what passes. Takes no rights; see `proxy` for the commands."""

from __future__ import annotations

from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted
from rca.replay_trainer.proxy import tell
from rca.replay_trainer.wires import control_of

KIND = "real"
NEEDS: tuple[str, ...] = ()


def make(scene: Scene, role: str, rank: int, command: str = "drop", seconds: float | None = None) -> Undo:
    """`command` is a line as `cut 4000`. Raises RcaError for what is none."""
    control = control_of(scene.run, role, rank)
    control.parent.mkdir(exist_ok=True)
    tell(control, command)
    noted(scene, host=scene.host(role, rank).name, pid=scene.pid(role, rank), command=command)
    return for_a_while(lambda: tell(control, "pass"), seconds)
