"""09: the weight store grows every step until it is killed, fails to allocate, hangs or is cut off; both sides of the update fail together."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "09", ("oom_killed", "memory_error", "hung", "cut_off")
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 1, "ref_host": True, "store_apart": True}
NEEDS = {"kernel", "host", "ping"}
MODE = "store"


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    host, store = w.store.host, w.store
    steps = rng.randrange(3, 6)
    total = host.mem_gb
    first = w.step0
    per = total * 0.93 / (steps + 1)
    grows = variant != "cut_off"
    if grows:
        w.store_gb = lambda step: per * (step - first + 1)
        w.store_keys = lambda step: 64 * (step - first + 1)
    c.boot()
    marks = [c.t]
    for _ in range(steps):
        c.healthy(1)
        marks.append(c.t)
    c.open_step()
    c.begin("weights_update", mode="store")
    moment = c.wait(3, 9)
    if grows:
        for i in range(steps):
            level = (total - per * (i + 1)) * 1e9
            w.series("mem_avail", host).during(marks[i], marks[i + 1], level, key=True)
            w.series("proc_rss", host, "store").during(marks[i], marks[i + 1], per * (i + 1) * 1e9, key=True)
        w.series("mem_avail", host).during(marks[-1], moment, total * 0.008e9, key=True)
    train, rollout = w.role("train"), w.role("rollout")
    limit = rng.choice((120, 300, 600, 3600))
    if variant == "oom_killed":
        w.kmsg(moment, host, real.oom_kill(store.pid, rng.choice(("python3", "weight_store", "ray::MetaServer", "pt_main_thread")), total * 0.9, rng), 3, key=True)
        w.series("oom_kill", host).during(moment, moment + 1, 1, key=True)
        w.sched.append((moment + 0.5, "oom", {"who": store, "key": True}))
        refused = True
    elif variant == "memory_error":
        w.say(moment, store, "exc", c.step, "weights_update", type=rng.choice(("MemoryError", "numpy._core._exceptions._ArrayMemoryError")), text=f"Unable to allocate {per:.1f} GiB for an array with shape ({int(per * 1073741824)},) and data type uint8" if rng.random() < 0.5 else "", at="store_put", key=True)
        w.say(moment + 0.5, store, "store_down", c.step, "weights_update", key=True)
        refused = True
    elif variant == "hung":
        w.series("blocked", host).during(moment, 9e12, 6, key=True)
        w.kmsg(moment + 130, host, real.hung_task(rng.choice(("python3", "kswapd0", "weight_store")), store.pid, 120, ("io_schedule+0x46/0x80", "swap_readpage+0x1f0/0x280", "do_swap_page+0x5b1/0x9e0", "handle_mm_fault+0xd8/0x2c0", "exc_page_fault+0x8a/0x190")), 3, key=True)  # fmt: skip
        refused = False
    else:
        for other in w.hosts:
            if other is not host:
                w.series("ping_loss", other, host.name).during(moment, 9e12, 100, key=True)
                w.series("ping_loss", host, other.name).during(moment, 9e12, 100, key=True)
        refused = False
    began = c.t
    c.wait(limit)
    for who in train:
        c.say(who, "exc", dt=rng.uniform(0, 0.4), at="upload_weights", error="store_timeout", secs=limit, url=f"http://{host.ip}:{store.port}", type="", text="")
    for who in rollout:
        dt = rng.uniform(0, 0.5) if not refused else began - c.t + rng.uniform(1, 3)
        c.say(who, "exc", dt=dt, at="update_weights", error="store_refused" if refused else "store_silent", url=f"http://{host.ip}:{store.port}", host_=host.ip, secs=limit, type="", text="")
    c.wait(0.5, 1)
    url = f"http://{host.ip}:{store.port}"
    c.call_failed(train[0], "upload_weights", "", error="store_timeout", secs=limit, url=url)
    c.call_failed(rollout[0], "update_weights", "", error="store_refused" if refused else "store_silent", secs=limit, url=url)
    c.give_up("", error="store_timeout", peer=train[0], secs=limit, url=url)
    if variant == "cut_off":
        cause, accept = "coord.meta_server", ("net.partition",)
    elif variant == "hung":
        cause, accept = "coord.meta_server", ("host.oom",)
    else:
        cause, accept = "host.oom", ("coord.meta_server",)
    w.tell(cause, accept, host=host, t=moment, entity={"role": "meta_server"}, cause_stage="weights_update", symptom_stage="weights_update", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown", "coord.meta_server", "host.oom", "coord.rpc", "net.partition", "coord.weight_sync"], sources=[("kernel", host), ("host", host), ("ping", "*"), ("sched", "*"), ("store", host)],
           why=f"The weight store on {host.name} {'grew every step and ' if grows else ''}{variant.replace('_', ' ')} in weights_update of step {c.step}; train times out and rollout fails with it, because both depend on it.")  # fmt: skip
