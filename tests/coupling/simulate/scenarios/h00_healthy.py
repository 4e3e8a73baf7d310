"""A run that reaches its end. With many decoys it is the test of whether noise is taken for a failure."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = None, ("separate", "colocated")
LAYOUT = {"separate": {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": True}, "colocated": {"colocated": True, "train_hosts": 2, "ref_host": False}}
NEEDS = {"kernel"}


def play(w: World, variant: str) -> None:
    c = Course(w)
    c.boot()
    count = w.rng.randrange(3, 6)
    w.steps = w.step0 + count - 1
    c.healthy(count)
    c.done()
    w.tell("sw.false_alarm", why="The run did its last step, saved, and said that it is done.", verdict_expected="healthy", cause_stage=None, symptom_stage=None)
