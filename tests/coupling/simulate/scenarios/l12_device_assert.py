"""Looks like 01: a sticky CUDA error surfaces in the weight update of colocated roles; its origin is an assertion of the train step's own kernel."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "01", ("index",)
LAYOUT = {"colocated": True, "train_hosts": 1, "ref_host": True}
NEEDS = {"kernel", "gpu"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(1, 3))
    rank = rng.choice(w.role("train"))
    c.open_step()
    c.weights_update()
    c.to_rollout()
    c.rollout()
    c.to_train()
    c.reference()
    c.begin("train")
    moment = c.wait(3, 20)
    for i in range(3):
        line = f"/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [{rng.randrange(400)},0,0], thread: [{i * 32},0,0] Assertion `srcIndex < srcSelectDimSize` failed."
        c.say(rank, "raw", dt=0.001 * i, text=line)
    text = real.cuda_error(rng, "device-side assert triggered")
    c.say(rank, "exc", dt=0.4, type="RuntimeError", text=text, at="train_batch")
    c.wait(0.5, 0.9)
    c.call_failed(rank, "train_batch", "CUDA error: device-side assert triggered")
    w.kmsg(c.t, rank.host, real.xid(43, rank, "python3", f"Ch {rng.randrange(8, 40):08x}"), 3)
    c.give_up("CUDA error: device-side assert triggered", error="train", peer=rank)
    w.tell("sw.device_assert", who=rank, t=moment, cause_stage="train", symptom_stage="train", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why=f"Rank {rank.rank}'s own kernel asserts an index in train of step {c.step}; Xid 43 is only its echo.")  # fmt: skip
