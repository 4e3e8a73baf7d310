"""Looks like 02: everybody times out in the weight broadcast, because one train rank raised a Python exception and never joined."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "02", ("exception",)
LAYOUT = {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": False}
NEEDS = {"kernel", "rdma"}
MODE = "nccl"


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(1, 3))
    rank = rng.choice(w.role("train"))
    c.open_step()
    c.begin("weights_update", mode="nccl")
    moment = c.wait(1, 3)
    kind, text = rng.choice((("KeyError", "'model.layers.27.mlp.gate_up_proj.weight'"), ("AttributeError", "'NoneType' object has no attribute 'data_ptr'"), ("ValueError", "too many values to unpack (expected 2)")))
    c.say(rank, "exc", type=kind, text=text, at="upload_weights")
    limit, seq = rng.choice((600, 1200, 1800)), rng.randrange(200, 9000)
    c.wait(limit)
    loud = w.role("rollout") + [t for t in w.role("train") if t is not rank][:3]
    for i, who in enumerate(loud):
        for line in real.watchdog(i + 1, who.host.clock(c.t), w.tz, seq, "BROADCAST", limit * 1000, rng, numel=1089994752):
            c.say(who, "raw", dt=0.02 * i, text=line)
    for who in w.role("rollout"):
        c.say(who, "exc", dt=0.5, type="torch.distributed.DistBackendError", text=f"NCCL communicator was aborted on rank {who.index + 1}.", at="update_weights")
    c.wait(0.8, 1.6)
    c.call_failed(w.role("rollout")[0], "update_weights", "NCCL timeout")
    c.give_up("NCCL timeout", error="update", peer=w.role("rollout")[0])
    w.tell("sw.rank_exception", ("sw.bug",), who=rank, t=moment, entity={"gpu": None}, cause_stage="weights_update", symptom_stage="weights_update", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why=f"Train rank {rank.rank} raised {kind} seconds after the broadcast began; the others waited {limit} s for it; the NICs are clean.")  # fmt: skip
