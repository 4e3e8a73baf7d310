"""A start that never gets to the first step: all ranks wait for the lock of one data set cache."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, NOT, VARIANTS = None, "08", ("lock",)
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 1, "ref_host": False}
NEEDS = {"kernel"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.say(w.controller, "job_begin", first=c.step, resumed=None)
    c.say(w.controller, "conf", dt=0.4)
    for who in w.role("train") + w.role("rollout"):
        c.say(who, "worker_up", dt=rng.uniform(0, 9))
    c.wait(20)
    moment = c.t
    lock = f"{w.mount}/hf_cache/datasets/_shared_hf_cache_datasets_json_default-{rng.randrange(16**12):012x}_0.0.0.lock"
    for who in w.role("train"):
        for n in range(4):
            c.say(who, "raw", dt=n * 150 + rng.uniform(0, 2), text=f"DEBUG:filelock:Lock {139900000000000 + who.pid} not acquired on {lock}, waiting 0.05 seconds ..." if rng.random() < 0.7 else f"waiting for lock {lock} (held by another rank), {n * 150}s")
    c.wait(600)
    for who in w.role("train")[:2]:
        c.say(who, "exc", type="filelock._error.Timeout", text=f"The file lock '{lock}' could not be acquired.", at="load")
    c.wait(1)
    c.stage = "init"
    c.give_up(f"The file lock '{lock}' could not be acquired.", peer=w.role("train")[0])
    w.tell("fs.lock", ("sw.deadlock",), t=moment, cause_stage="init", symptom_stage="init", cause_step=None, symptom_step=None,
           accept_without=["unknown"], why="Every rank waits for the lock of one data set cache on the shared mount.")  # fmt: skip
