"""08: a periodic save hangs in fsync and is only warned of; steps later something unrelated ends the job, and the restart reads the damage."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "08", ("hang",)
LAYOUT = {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": False}
NEEDS = {"kernel", "storage"}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(1, 3))
    c.open_step()
    c.weights_update()
    c.rollout()
    c.reference()
    c.train()
    c.latest_save()
    path = c.path("periodic")
    bad = rng.choice(sorted({t.host for t in w.role("train")}, key=lambda h: h.name))
    hit = [t for t in w.role("train") if t.host is bad]
    limit = rng.choice((600, 1200, 1800, 3600))
    c.begin("periodic_recover_save", path=path)
    moment = c.t + rng.uniform(2, 6)
    server = w.export.split(":")[0]
    for who in w.role("train"):
        c.say(who, "save_begin", dt=0.1, path=path)
        if who not in hit:
            c.say(who, "save_end", dt=rng.uniform(9, 20), path=path, gb=3.2, secs=14)
    w.kmsg(moment, bad, f"nfs: server {server} not responding, still trying", 4, key=True)
    for i in range(rng.randrange(1, 3)):
        w.kmsg(moment + 125 + 121 * i, bad, real.hung_task(rng.choice(("python3", "pt_main_thread")), hit[i].pid, 120 * (i + 1), real.NFS_FRAMES), 3, key=True)
    over = moment + limit + rng.uniform(20, 200)
    w.kmsg(over, bad, f"nfs: server {server} OK", 6, key=True)
    for n, rate in (("nfs_timeouts", 0.3), ("nfs_retrans", 0.6)):
        w.series(n, bad).during(moment, over, rate, key=True)
    w.series("nfs_rtt", bad).during(moment, over, rng.uniform(9000, 60000), key=True)
    w.series("blocked", bad).during(moment, over, len(hit), key=True)
    w.series("cpu_iowait", bad).during(moment, over, 22, key=True)
    w.span("save", w.controller, c.t, c.t + limit, c.step, c.stage, hit[0], "timeout")
    c.wait(limit)
    c.say(w.controller, "save_slow", path=path, secs=limit, peer=hit[0])
    c.finish(path=path)
    step = c.step
    c.close_step()
    c.healthy(rng.randrange(1, 3))
    c.open_step()
    c.weights_update()
    # The end of the first attempt has nothing to do with the save.
    c.begin("rollout", want=w.batch)
    for who in w.role("rollout"):
        c.say(who, "gen_begin", dt=0.1, n=w.batch // len(w.role("rollout")))
    c.wait(20, 50)
    victim = rng.choice(w.role("rollout"))
    kind, text = rng.choice((("AssertionError", "prompt is longer than max_model_len"), ("ValueError", "token ids must be non-negative, got -100"), ("KeyError", "'finish_reason'")))
    c.say(victim, "exc", type=kind, text=text, at="generate")
    c.wait(0.2, 0.5)
    c.call_failed(victim, "generate", f"{kind}: {text}")
    c.give_up(f"{kind}: {text}", error="generate", peer=victim)
    c.wait(40, 200)
    # Restart from the periodic checkpoint (the latest one is kept on a scratch disk that the restart cleans).
    w.attempt, c.stage, c.step = 1, None, step + 1
    for x in w.workers:
        x.pid = x.pid + 3000
    c.boot(resumed=path)
    c.stage = "recover"
    c.say(w.controller, "recover_begin", path=path)
    c.wait(8, 30)
    for who in hit:
        c.say(who, "exc", dt=rng.uniform(0, 2), at="load", error="recover", path=f"{path}/rank_{who.rank:02d}.pt", hit=[x.rank for x in hit], type="", text="")
    c.wait(2.1, 3)
    c.call_failed(hit[0], "load", "", error="recover", path=f"{path}/rank_{hit[0].rank:02d}.pt", hit=[x.rank for x in hit])
    c.give_up("", error="recover", peer=hit[0], path=f"{path}/rank_{hit[0].rank:02d}.pt", hit=[x.rank for x in hit])
    w.tell("fs.hang", who=hit[0], t=moment, entity={"rank": None, "gpu": None}, cause_stage="periodic_recover_save", symptom_stage="recover",
           cause_step=step, symptom_step=c.step, accept_without=["unknown", "fs.corrupt", "fs.hang", "sw.ckpt_format"], sources=[("kernel", "*"), ("storage", "*"), ("host", bad)],
           why=f"In periodic_recover_save of step {step} the mount of {bad.name} hung (fsync in state D), the save timed out after {limit} s with a warning only; a later crash is unrelated; the restart reads the shards that were never finished.")  # fmt: skip
