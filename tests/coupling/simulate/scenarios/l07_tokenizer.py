"""Looks like 07: the KL term does not fit, but every row arrived: reference and policy have different vocabularies."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "07", ("vocabulary",)
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 1, "ref_host": True}
NEEDS = {"net", "ping"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.open_step()
    c.weights_update()
    c.rollout()
    refs = w.role("reference")
    c.begin("reference")
    for who in refs:
        rows = w.batch // len(refs)
        c.say(who, "logp_begin", dt=0.1, rows=rows)
        c.say(who, "logp_end", dt=20, rows=rows, secs=19.8)
        c.say(w.controller, "logp_in", dt=20.3, peer=who, rows=rows, bytes=rows * 4 * 2048)
    c.wait(21)
    c.finish()
    c.begin("train")
    moment = c.wait(0.5, 2)
    text = rng.choice(("The size of tensor a (152064) must match the size of tensor b (151936) at non-singleton dimension 2", "The size of tensor a (128256) must match the size of tensor b (128264) at non-singleton dimension 2"))
    for who in w.role("train"):
        c.say(who, "exc", dt=rng.uniform(0, 0.2), type="RuntimeError", text=text, at="train_batch")
    c.wait(0.3, 0.5)
    c.call_failed(w.role("train")[0], "train_batch", f"RuntimeError: {text}")
    c.give_up(f"RuntimeError: {text}", peer=w.role("train")[0])
    w.tell("sw.shape", ("sw.config", "sw.bug"), t=moment, cause_stage="train", symptom_stage="train", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why="All rows arrived, in the first step already: the vocabularies of policy and reference differ by some entries.")  # fmt: skip
