"""05: a rollout worker is killed for memory, or starves for CPU; the merge goes on and train counts too few samples."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "05", ("oom", "cpu")
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 2, "ref_host": False}
NEEDS = {"kernel", "host"}
MISSING = True  # the faulty host\'s own files may be gone, and an expert still knows
REFERENCE = False


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    bad = w.role("rollout")[-1].host
    there = [x for x in w.role("rollout") if x.host is bad]
    losers = [rng.choice(there)] if variant == "oom" else there
    c.open_step()
    c.weights_update()
    moment = 0.0

    def broke(worker: object, t: float) -> None:
        nonlocal moment
        moment = moment or t
        if worker is not losers[0]:
            return
        if variant == "oom":
            total = bad.mem_gb * 1e9
            for i in range(12):
                w.series("mem_avail", bad).during(t - 30 * (12 - i), t - 30 * (11 - i), total * max(0.002, 0.42 - 0.037 * i), key=True)
            group = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{rng.randrange(16**8):08x}.slice" if rng.random() < 0.5 else None
            comm = rng.choice(("python3", "sglang::schedul", "VLLM::EngineCor", "ray::RolloutWor", "pt_main_thread"))
            w.kmsg(t, bad, real.oom_kill(losers[0].pid, comm, bad.mem_gb * rng.uniform(0.3, 0.8), rng, group), 3, key=True)
            w.series("oom_kill", bad).during(t, t + 1, 1, key=True)
            w.sched.append((t + 0.5, "oom", {"who": losers[0], "key": True}))
            w.say(t + rng.uniform(5, 20), w.controller, "engine_lost", c.step, "rollout", peer=losers[0], quiet=int(rng.uniform(5, 20)))
        else:
            for s, v in (("load1", rng.uniform(400, 1600)), ("cpu_user", 99.2), ("runq", rng.uniform(300, 900))):
                w.series(s, bad).during(t, 9e12, v, key=True)
            w.series("psi_cpu", bad).during(t, 9e12, 0.93, key=True)
            for i in range(rng.randrange(2, 5)):
                w.kmsg(t + 60 + i * 130, bad, real.soft_lockup(rng.randrange(96), rng.randrange(22, 70), rng.choice(("python3", "dataprep", "ffmpeg", "zstd")), rng.randrange(3000, 90000)), 0, key=True)

    got = c.rollout(lost=losers, dead_at=rng.uniform(0.25, 0.7), on_dead=broke)
    c.begin("train")
    c.wait(0.5, 3)
    ranks = w.role("train")
    for who in ranks if rng.random() < 0.5 else ranks[:1]:
        c.say(who, "exc", dt=rng.uniform(0, 0.2), at="train_batch", error="batch", got=got, want=w.batch, half=got // len(ranks), full=w.batch // len(ranks), type="", text="")
    c.wait(0.3, 0.5)
    c.call_failed(ranks[0], "train_batch", "", error="batch", got=got, want=w.batch, half=got // len(ranks), full=w.batch // len(ranks))
    c.give_up("", error="batch", peer=ranks[0], got=got, want=w.batch, half=got // len(ranks), full=w.batch // len(ranks))
    accept = ("coord.partial_batch",) if variant == "cpu" else ()
    w.tell("host.oom" if variant == "oom" else "host.cpu", accept, who=losers[0], gpu_named=False, t=moment, cause_stage="rollout", symptom_stage="train", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown", "coord.partial_batch", "coord.actor_died", "coord.rpc", "host.oom"], sources=[("kernel", bad), ("host", bad), ("sched", "*")],
           why=f"Rollout worker {losers[0].index} on {bad.name} {'was killed by the kernel for memory' if variant == 'oom' else 'starved for CPU'} in step {c.step}; after {w.rpc_timeout} s {got} of {w.batch} samples were merged, and train fails on the count.")  # fmt: skip
