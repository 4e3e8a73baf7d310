"""04: the latest checkpoint of a step cannot be written whole, the loop goes on, and the next weight update reads it."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "04", ("full", "readonly", "hang")
LAYOUT = {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": False}
NEEDS = {"kernel", "storage"}
MODE = "disk"
ERRNO = {"full": ("[Errno 28] No space left on device", "fs_avail"), "readonly": ("[Errno 30] Read-only file system", "fs_readonly"), "hang": ("[Errno 5] Input/output error", "nfs_timeouts")}


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    c.open_step()
    c.weights_update()
    c.rollout()
    c.reference()
    c.train()
    path = c.path("latest")
    c.begin("latest_recover_save", path=path)
    moment = c.wait(2, 5)
    errno, _ = ERRNO[variant]
    bad = rng.choice([h for h in w.hosts if any(t.host is h for t in w.role("train"))])
    hit = [t for t in w.role("train") if t.host is bad or variant != "hang"]
    for who in w.role("train"):
        c.say(who, "save_begin", dt=-1, path=path)
    if variant == "hang":
        server = w.export.split(":")[0]
        w.kmsg(moment, bad, f"nfs: server {server} not responding, {'timed out' if rng.random() < 0.5 else 'still trying'}", 4, key=True)
        w.kmsg(moment + 150, bad, real.hung_task("python3", hit[0].pid, 120, real.NFS_FRAMES), 3, key=True)
        for n, rate in (("nfs_timeouts", 0.4), ("nfs_retrans", 0.9), ("nfs_errors", 0.05)):
            w.series(n, bad).during(moment, moment + 300, rate, key=True)
        w.series("nfs_rtt", bad).during(moment, moment + 300, rng.uniform(9000, 60000), key=True)
        w.series("blocked", bad).during(moment, moment + 290, len(hit), key=True)
        w.kmsg(moment + 300, bad, f"nfs: server {server} OK", 6, key=True)
        c.wait(rng.uniform(180, 290))
    elif variant == "full":
        for host in w.hosts:
            w.series("fs_avail", host).during(w.start, moment - 150, 6e10, key=True)
            w.series("fs_avail", host).during(moment - 150, 9e12, 0, key=True)
        c.wait(1, 6)
    else:
        for host in w.hosts:
            w.series("fs_readonly", host).during(moment, 9e12, 1, key=True)
        c.wait(1, 6)
    for who in hit:
        c.say(who, "save_failed", dt=rng.uniform(0, 0.6), path=f"{path}/{'model' if rng.random() < 0.7 else 'optim'}_{who.rank:02d}.safetensors", why=errno, key=True)
    for who in w.role("train"):
        if who not in hit:
            c.say(who, "save_end", dt=0.7, path=path, gb=3.2, secs=8)
    c.wait(1, 2)
    c.say(w.controller, "save_warn", path=path, why=errno, peer=hit[0], key=True)
    c.finish(path=path)
    step = c.step
    c.close_step()
    c.open_step()
    c.begin("weights_update", mode="disk")
    c.wait(2, 6)
    readers = w.role("rollout") if rng.random() < 0.5 else [hit[0]]
    for who in readers:
        c.say(who, "exc", dt=rng.uniform(0, 0.5), at="update_weights" if who.role == "rollout" else "upload_weights", error="ckpt_format", path=path, type="", text="")
    c.wait(0.6, 1)
    c.call_failed(readers[0], "update_weights" if readers[0].role == "rollout" else "upload_weights", "", error="ckpt_format", path=path)
    c.give_up("", error="ckpt_format", peer=readers[0], path=path)
    place = {"who": hit[0]} if variant == "hang" else {}
    w.tell({"full": "fs.full", "readonly": "fs.readonly", "hang": "fs.hang"}[variant], ("fs.corrupt",) if variant != "readonly" else (), t=moment, **place,
           entity={"rank": None, "gpu": None, "role": "train"}, cause_stage="latest_recover_save", symptom_stage="weights_update", cause_step=step, symptom_step=c.step,
           accept_without=["unknown", "fs.corrupt", "sw.ckpt_format", "fs.hang", "fs.full", "fs.readonly"], sources=[("kernel", "*"), ("storage", "*")],
           why=f"The latest save of step {step} failed ({errno}) and was only warned of; weights_update (disk) of step {c.step} read the incomplete files.")  # fmt: skip
