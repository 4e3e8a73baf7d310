"""Looks like 08: the restart cannot load the checkpoint, but the save was whole: the parallel size was changed in between."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "08", ("tp_changed",)
LAYOUT = {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": False}
NEEDS = {"kernel", "storage"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(1)
    c.open_step()
    c.weights_update()
    c.rollout()
    c.reference()
    c.train()
    c.latest_save()
    c.periodic_save(always=True)
    path = c.path("periodic")
    c.close_step()
    c.stage = None
    c.say(w.controller, "stopped_by_user")
    c.wait(600, 3000)
    w.attempt = 1
    for x in w.workers:
        x.pid += 3000
    c.boot(resumed=path)
    c.stage = "recover"
    c.say(w.controller, "recover_begin", path=path)
    moment = c.wait(8, 20)
    text = rng.choice((
        "Error(s) in loading state_dict for ParallelTransformer:\n\tsize mismatch for layers.0.mlp.dense_h_to_4h.weight: copying a param with shape torch.Size([9472, 3584]) from checkpoint, the shape in current model is torch.Size([4736, 3584]).",
        "checkpoint was written with tensor_model_parallel_size=2, this run has tensor_model_parallel_size=4",
    ))  # fmt: skip
    for who in w.role("train"):
        c.say(who, "exc", dt=rng.uniform(0, 1), type="RuntimeError", text=text, at="load")
    c.wait(1.1, 2)
    c.call_failed(w.role("train")[0], "load", f"RuntimeError: {text}"[:90])
    c.give_up(f"RuntimeError: {text}", peer=w.role("train")[0])
    w.tell("sw.ckpt_format", ("sw.config",), t=moment, cause_stage="recover", symptom_stage="recover", cause_step=None, symptom_step=None,
           accept_without=["unknown"], why="Every shard was saved; all ranks refuse it because tensor parallelism was changed before the restart.")  # fmt: skip
