"""Looks like 06: error 500, handler, stops that time out; but what the train worker raised first is a plain Python bug."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "06", ("bug",)
LAYOUT = {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": True}
NEEDS = {"gpu"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(1, 3))
    rank = rng.choice(w.role("train"))
    c.open_step()
    c.weights_update()
    c.rollout()
    c.reference()
    c.begin("train")
    moment = c.wait(3, 9)
    kind, text = rng.choice((("KeyError", "'advantages'"), ("TypeError", "unsupported operand type(s) for *: 'NoneType' and 'float'"), ("ZeroDivisionError", "division by zero"), ("UnboundLocalError", "cannot access local variable 'loss_mask' where it is not associated with a value")))
    c.say(rank, "exc", type=kind, text=text, at="train_batch")
    c.wait(0.2, 0.6)
    c.call_failed(rank, "train_batch", f"{kind}: {text}")
    stuck = rng.choice([x for x in w.role("train") if x is not rank])
    c.give_up(f"{kind}: {text}", error=None, peer=rank, stops_time_out=[stuck])
    w.tell("sw.rank_exception", ("sw.bug", "sw.shape"), t=moment, entity={"host": rank.host.name, "rank": rank.rank, "role": "train"}, cause_stage="train", symptom_stage="cleanup", symptom_stage_accept=["train"], cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why=f"Train rank {rank.rank} raised {kind} in train of step {c.step}; device memory was far from full; the stop time-outs follow.")  # fmt: skip
