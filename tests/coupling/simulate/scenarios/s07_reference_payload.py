"""07: packets of the reference host are lost, log-probabilities arrive incomplete, and the KL term does not fit."""

from __future__ import annotations

from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "07", ("loss", "rdma")
LAYOUT = {"colocated": False, "train_hosts": 1, "rollout_hosts": 1, "ref_host": True}
NEEDS = {"kernel", "net", "ping", "rdma"}
MISSING = True  # the faulty host\'s own files may be gone, and an expert still knows


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    refs = w.role("reference")
    bad = refs[0].host
    c.open_step()
    c.weights_update()
    c.rollout()
    c.begin("reference")
    took = rng.uniform(20, 60)
    moment = c.t + took * 0.5
    nic, dev = f"eth{rng.randrange(0, 3)}", rng.randrange(bad.gpus)
    w.series("rx_err", bad, nic).during(moment, moment + 400, rng.uniform(20, 90), key=True)
    w.series("tx_drop", bad, nic).during(moment, moment + 400, rng.uniform(20, 200), key=True)
    w.series("tcp_retrans", bad).during(moment, moment + 400, rng.uniform(30, 200), key=True)
    for host in w.hosts:
        if host is not bad:
            for a, b in ((host, bad), (bad, host)):
                w.series("ping_loss", a, b.name).during(moment, moment + 400, rng.uniform(15, 45), key=True)
    if variant == "rdma":
        for n in ("local_ack_timeout_err", "packet_seq_err", "symbol_error"):
            w.series(n, bad, f"mlx5_{dev}").during(moment, moment + 400, rng.uniform(2, 20), key=True)
        w.kmsg(moment, bad, f"mlx5_core 0000:{17 + dev}:00.0 {nic}: Error cqe on cqn 0x4a1, ci 0x2f, qn 0x{rng.randrange(4096):x}, opcode 0xd, syndrome 0x2, vendor syndrome 0x68", 4, key=True)
        w.kmsg(moment + 2, bad, f"NETDEV WATCHDOG: {nic} (mlx5_core): transmit queue {rng.randrange(0, 30)} timed out", 4, key=True)
    rows, short = w.batch // len(refs), 0
    hit = rng.randrange(len(refs))
    for i, who in enumerate(refs):
        c.say(who, "logp_begin", dt=0.1, rows=rows)
        c.say(who, "logp_end", dt=took * 0.9, rows=rows, secs=took * 0.9)
        came = rows - (rng.randrange(1, max(2, rows // 3)) if i == hit else 0)
        short += came
        c.say(w.controller, "logp_in", dt=took * 0.95 + 4 * (i == hit), peer=who, rows=came, bytes=came * 4 * 2048)
        c.call(who, "compute_logp", c.t, c.t + took)
    c.wait(took + 5)
    c.finish()
    c.begin("train")
    c.wait(0.5, 2)
    ranks = w.role("train")
    for who in ranks:
        c.say(who, "exc", dt=rng.uniform(0, 0.2), at="train_batch", error="kl_shape", got=short, want=w.batch, half=short // len(ranks), full=w.batch // len(ranks), type="", text="")
    c.wait(0.3, 0.5)
    c.call_failed(ranks[0], "train_batch", "", error="kl_shape", got=short, want=w.batch, half=short // len(ranks), full=w.batch // len(ranks))
    c.give_up("", error="kl_shape", peer=ranks[0], got=short, want=w.batch, half=short // len(ranks), full=w.batch // len(ranks))
    w.tell("net.loss", ("net.rdma",), who=refs[hit], gpu_named=False, t=moment, cause_stage="reference", symptom_stage="train", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown", "coord.partial_batch", "sw.shape", "coord.rpc"], sources=[("kernel", bad), ("net", bad), ("rdma", bad), ("ping", "*")],
           why=f"Reference worker {refs[hit].index} on {bad.name} computed {rows} rows in step {c.step}, while the NIC of that host lost packets; {short} of {w.batch} rows arrived; train fails in the KL term.")  # fmt: skip
    if variant == "rdma":
        w.truth["root_cause_class"] = "net.rdma"
