"""A worker computes wrongly, and nothing says so: one bit of one element in the output of one Linear of its model is flipped while it computes (`bit_flip`).

Synthetic: no hardware is broken. The wrong number is real, and so is all that is computed from it: samples, log-probabilities, gradients, weights. The bit must leave the number
finite if nothing is to be said of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rca.errors import RcaError
from rca.replay_trainer.device import WRONG
from rca.replay_trainer.faults import Scene, Undo, for_a_while, noted

KIND = "synthetic"
NEEDS: tuple[str, ...] = ()
CALLS = ("generate", "train_batch", "compute_logprobs")  # that compute with a model
BITS = 32  # of a number


def make(
    scene: Scene, role: str, rank: int, touched_by: Sequence[str] = (), linear: str = "head", element: int = -1, bit: int = 22, nth: int = 0, probability: float = 1.0, seed: int = 0,
    seconds: float | None = None,
) -> Undo:  # fmt: skip
    """In each of the calls `touched_by` (none means all), with this probability, once. Raises RcaError for calls or bits that there are not."""
    from rca.replay_trainer.bit_flip import Flip

    if not (set(touched_by) <= set(CALLS) and 0 <= bit < BITS and nth >= 0 and 0 < probability <= 1):
        raise RcaError(
            f"no such wrong result: `{', '.join(touched_by)}`, bit {bit}, matmul {nth}, probability {probability:g}",
            hint=f"calls are {', '.join(CALLS)}; bits 0 to {BITS - 1}; a probability is above 0 and at most 1",
        )
    flip = Flip(tuple(touched_by), linear, element, bit, nth, probability, seed)
    file = scene.device(role, rank) / WRONG
    aside = file.with_name(f".{WRONG}")
    aside.write_text(flip.to_json())
    aside.replace(file)
    noted(scene, host=scene.host(role, rank).name, linear=linear, element=element, bit=bit)
    return for_a_while(lambda: file.unlink(missing_ok=True), seconds)
