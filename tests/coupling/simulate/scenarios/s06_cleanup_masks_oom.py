"""06: one train worker runs out of device memory; the handler stops everything and the stops time out, loudest of all."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import GPU_MIB, Course
from coupling.simulate.world import World

ID, VARIANTS = "06", ("cuda_oom",)
LAYOUT = {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": True}
NEEDS = {"gpu"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    rank = rng.choice(w.role("train"))
    c.open_step()
    c.weights_update()
    c.rollout()
    c.reference()
    c.begin("train")
    for who in w.role("train"):
        c.say(who, "train_begin", dt=0.1, rows=w.batch // len(w.role("train")))
    moment = c.wait(12, 60)
    mine = rng.uniform(74, 78)
    c.hold(rank, mine * 1024, -5)
    text = real.torch_oom(rng, rank.gpu, 79.15, 79.15 - mine - 0.4, rng.uniform(1.5, 12), mine, [])
    c.say(rank, "exc", type="torch.OutOfMemoryError" if rng.random() < 0.7 else "torch.cuda.OutOfMemoryError", text=text, at="train_batch", key=True)
    c.wait(0.2, 0.6)
    c.call_failed(rank, "train_batch", text[:rng.choice((34, 70, 120))])
    stuck = [rng.choice([x for x in w.role("train") if x is not rank])]
    if rng.random() < 0.5:
        stuck.append(rng.choice(w.role("rollout")))
    c.give_up(text[:90], error="train", peer=rank, stops_time_out=stuck)
    assert mine * 1024 < GPU_MIB
    w.tell("sw.cuda_oom", who=rank, t=moment, cause_stage="train", symptom_stage="cleanup", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown", "sw.rank_exception", "sw.bug", "coord.rpc"], sources=[("gpu", rank.host), ("files", rank.host)],
           why=f"Train rank {rank.rank} ran out of device memory in train of step {c.step}; the error 500 is not retried; the stop requests that time out in cleanup are its consequence.")  # fmt: skip
