"""Looks like 10: rollout runs out of device memory, but the hand-over was acknowledged and train has let go: the batch is simply too big."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "10", ("too_big",)
LAYOUT = {"colocated": True, "train_hosts": 2, "ref_host": True}
NEEDS = {"gpu"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(1, 3))
    c.open_step()
    c.weights_update()
    c.to_rollout()
    c.begin("rollout", want=w.batch)
    engine = rng.choice(w.role("rollout"))
    for who in w.role("rollout"):
        c.say(who, "gen_begin", dt=0.1, n=w.batch // len(w.role("rollout")))
    moment = c.wait(20, 60)
    rank = next(t for t in w.role("train") if t.host is engine.host and t.gpu == engine.gpu)
    rest = c.held[rank] / 1024
    mine = 79.15 - rest - rng.uniform(0.2, 0.8)
    c.hold(engine, mine * 1024, -8)
    text = real.torch_oom(rng, rng.choice((0, engine.gpu)), 79.15, 79.15 - rest - mine, rng.uniform(2, 9), mine, [(rank.pid, rest)] if rng.random() < 0.5 else [])
    c.say(engine, "exc", type="torch.OutOfMemoryError", text=text, at="generate")
    c.wait(0.2, 0.6)
    c.call_failed(engine, "generate", text[:60])
    c.give_up(text[:60], error="generate", peer=engine)
    w.tell("sw.cuda_oom", who=engine, t=moment, cause_stage="rollout", symptom_stage="rollout", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why=f"Every rank acknowledged the hand-over and train holds only {rest:.0f} GiB; the rollout process itself holds {mine:.0f} GiB.")  # fmt: skip
