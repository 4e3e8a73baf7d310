"""03: packets of one rollout host are lost; the controller goes on without its answers and the reference trips over the short batch."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "03", ("loss", "latency")
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 2, "ref_host": True}
NEEDS = {"kernel", "net", "ping"}
MISSING = True  # the faulty host\'s own files may be gone, and an expert still knows


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    bad = w.role("rollout")[-1].host
    losers = [x for x in w.role("rollout") if x.host is bad]
    c.open_step()
    c.weights_update()
    moment = c.t + rng.uniform(15, 60)
    nic = f"eth{rng.randrange(0, 3)}"
    for host in w.hosts:
        if host is bad:
            continue
        for a, b in ((host, bad), (bad, host)):
            if variant == "loss":
                w.series("ping_loss", a, b.name).during(moment, 9e12, rng.uniform(25, 70), key=True)
                w.series("ping_rtt", a, b.name).during(moment, 9e12, rng.uniform(0.4, 8), key=True)
            else:
                w.series("ping_rtt", a, b.name).during(moment, 9e12, rng.uniform(700, 3800), key=True)
                w.series("ping_loss", a, b.name).during(moment, 9e12, rng.uniform(8, 30), key=True)
    w.series("tcp_retrans", bad).during(moment, 9e12, rng.uniform(40, 300), key=True)
    w.series("tx_drop", bad, nic).during(moment, 9e12, rng.uniform(20, 400), key=True)
    if variant == "loss":
        w.series("rx_err", bad, nic).during(moment, 9e12, rng.uniform(1, 40), key=True)
    if rng.random() < 0.6:
        for i in range(rng.randrange(1, 4)):
            w.kmsg(moment + 20 + 400 * i, bad, f"NETDEV WATCHDOG: {nic} (mlx5_core): transmit queue {rng.randrange(0, 30)} timed out", 4, key=True)
    began = c.t
    got = c.rollout(unsent=losers)
    for who in losers:
        for n in range(1, 4):
            w.say(began + 160 * c.pace + 30 * n, who, "send_retry", c.step, "rollout", n=n, why=rng.choice(("timed out", "Connection reset by peer", "[Errno 110] Connection timed out")), share=w.batch // len(w.role("rollout")))
    c.begin("reference")
    c.wait(1, 4)
    refs = w.role("reference")
    for who in refs:
        c.say(who, "logp_begin", dt=-0.4, rows=got // len(refs))
        c.say(who, "exc", at="compute_logp", error="ref_shape", got=got, want=w.batch, half=got // len(refs), type="", text="")
    c.wait(0.2, 0.5)
    c.call_failed(refs[0], "compute_logp", "", error="ref_shape", got=got, want=w.batch, half=got // len(refs))
    c.give_up("", error="ref_shape", peer=refs[0], got=got, want=w.batch, half=got // len(refs))
    w.tell("net.loss", ("net.rdma", "coord.rpc", "coord.partial_batch"), who=losers[0], gpu_named=False, t=moment, cause_stage="rollout", symptom_stage="reference", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown", "net.partition"], sources=[("kernel", bad), ("net", bad), ("ping", "*")],
           why=f"{bad.name} loses packets ({variant}) from rollout of step {c.step} on; its workers generated everything, nothing arrived; after {w.rpc_timeout} s the controller went on with {got} of {w.batch}, reference fails on the short batch.")  # fmt: skip
