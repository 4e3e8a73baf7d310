"""Looks like 09 and 06: several roles fail at once and stops time out, because the scheduler took the machines away."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "09", ("preempted",)
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 1, "ref_host": True}
NEEDS = {"sched"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(1, 4))
    c.open_step()
    c.weights_update()
    c.begin("rollout", want=w.batch)
    for who in w.role("rollout"):
        c.say(who, "gen_begin", dt=0.1, n=w.batch // len(w.role("rollout")))
    moment = c.wait(15, 40)
    w.sched.append((moment, "preempt", {"by": f"urgent-{rng.randrange(100, 999)}"}))
    for who in w.workers:
        c.say(who, "sigterm", dt=rng.uniform(0.1, 0.9))
    c.wait(2, 4)
    c.give_up("SIGTERM", error="sigterm", stops_time_out=[rng.choice(w.role("train"))])
    w.tell("host.preempt", t=moment, cause_stage=None, symptom_stage=None, cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why="The scheduler preempted the job; every process got SIGTERM at once, the time-outs of the stops are its tail.")  # fmt: skip
