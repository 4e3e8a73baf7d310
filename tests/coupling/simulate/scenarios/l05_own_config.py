"""Looks like 05: train complains of the batch size, but all samples arrived: the sizes were configured so that they do not divide."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "05", ("divide",)
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 2, "ref_host": False}
NEEDS = {"kernel", "host"}
REFERENCE = False


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.open_step()
    c.weights_update()
    c.rollout()
    c.begin("train")
    moment = c.wait(0.5, 2)
    micro = rng.choice((3, 5, 6, 12))
    local = w.batch // len(w.role("train"))
    kind, text = rng.choice((
        ("AssertionError", f"mini_batch_size {local} is not divisible by micro_batch_size {micro}"), ("ValueError", f"train_batch_size ({w.batch}) must be a multiple of dp_size * micro_batch ({len(w.role('train'))} * {micro})"),
        ("AssertionError", f"batch size {w.batch} % {micro * len(w.role('train'))} != 0, check trainer.micro_batch"),
    ))  # fmt: skip
    for who in w.role("train"):
        c.say(who, "exc", dt=rng.uniform(0, 0.2), type=kind, text=text, at="train_batch")
    c.wait(0.3, 0.5)
    c.call_failed(w.role("train")[0], "train_batch", f"{kind}: {text}")
    c.give_up(f"{kind}: {text}", peer=w.role("train")[0])
    w.tell("sw.config", ("sw.shape", "sw.bug", "sw.rank_exception"), t=moment, cause_stage="train", symptom_stage="train", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why="All samples arrived in the first step already; the configured sizes do not divide.")  # fmt: skip
