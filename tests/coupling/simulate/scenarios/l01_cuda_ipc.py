"""Looks like 01: a CUDA error in the weight update of colocated roles, but no device is broken: IPC handles of memory that cannot have any."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "01", ("expandable_segments",)
LAYOUT = {"colocated": True, "train_hosts": 1, "ref_host": True}
NEEDS = {"kernel", "gpu"}
MODE = "nccl"


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.say(w.role("train")[0], "raw", text=rng.choice(("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "[env] PYTORCH_ALLOC_CONF = expandable_segments:True")))
    c.open_step()
    c.begin("weights_update", mode="nccl")
    moment = c.wait(2, 5)
    text = real.cuda_error(rng, "invalid argument")
    for who in w.role("train"):
        c.say(who, "exc", dt=rng.uniform(0, 0.3), type=rng.choice(("torch.AcceleratorError", "RuntimeError")), text=text, at="share_cuda")
    c.wait(0.3, 0.5)
    rank = w.role("train")[0]
    c.call_failed(rank, "upload_weights", "CUDA error: invalid argument")
    c.give_up("CUDA error: invalid argument", error="upload", peer=rank)
    w.tell("sw.cuda_ipc", t=moment, entity={"role": "train"}, cause_stage="weights_update", symptom_stage="weights_update", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown"], why="Every train rank fails in _share_cuda_ in the first weight update, with expandable segments on; no GPU shows a fault.")  # fmt: skip
