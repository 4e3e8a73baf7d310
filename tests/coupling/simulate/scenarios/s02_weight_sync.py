"""02: the NIC of one train host fails in the weight broadcast; everybody else waits until the collective times out."""

from __future__ import annotations

from coupling.simulate import real
from coupling.simulate.course import Course
from coupling.simulate.world import World

ID, VARIANTS = "02", ("rdma", "partition", "link_flap")
LAYOUT = {"colocated": False, "train_hosts": 2, "rollout_hosts": 1, "ref_host": True}
NEEDS = {"kernel", "rdma", "ping"}
MISSING = True  # the faulty host\'s own files may be gone, and an expert still knows
MODE = "nccl"


def play(w: World, variant: str) -> None:
    c, rng = Course(w), w.rng
    c.boot()
    c.healthy(rng.randrange(2, 4))
    # The controller's host keeps talking: the broken one is the other train host.
    bad = w.role("train")[-1].host
    rank = rng.choice([t for t in w.role("train") if t.host is bad])
    peers = w.role("rollout")
    dev = rank.gpu
    c.open_step()
    c.begin("weights_update", mode="nccl")
    for who in w.role("train"):
        if who.host is not bad:
            c.say(who, "wu_send", dt=rng.uniform(4, 6), secs=5, version=c.step)
    moment = c.wait(1.5, 4)
    tid = rank.pid + rng.randrange(300, 900)
    limit = rng.choice((600, 1200, 1800, 3600))
    counters = [w.series(n, bad, f"mlx5_{dev}") for n in ("local_ack_timeout_err", "packet_seq_err", "out_of_sequence")]
    if variant == "rdma":
        w.kmsg(moment, bad, real.mlx5(dev, rng.choice((
            "poll_health:825: device's health compromised - reached miss count.", "Health issue observed, firmware internal error, severity(3) ERROR: ext_synd 0x035e",
            f"wait_func:1195:(pid {rank.pid}): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource"))), 3, key=True)  # fmt: skip
        for s in counters:
            s.during(moment, moment + 60, rng.uniform(4, 40), key=True)
        w.series("symbol_error", bad, f"mlx5_{dev}").during(moment - 30, moment + 200, rng.uniform(1, 9), key=True)
        c.say(rank, "raw", dt=12, text=real.ib_retry(rank, peers[0], tid, f"mlx5_{dev}", rng), key=True)
    elif variant == "link_flap":
        down = rng.uniform(40, 180)
        name, gone, back = rng.choice(((f"mlx5_{dev}", "Port: 1 Link DOWN", "Port: 1 Link ACTIVE"), (f"ibs{dev}", "Link down", "Link up")))
        w.kmsg(moment, bad, real.mlx5(dev, gone, name), 4, key=True)
        w.kmsg(moment + down, bad, real.mlx5(dev, back, name), 6, key=True)
        w.series("link_downed", bad, f"mlx5_{dev}").during(moment, moment + 1, 1, key=True)
        counters[0].during(moment, moment + 20, rng.uniform(2, 9), key=True)
        c.say(rank, "raw", dt=12, text=real.ib_retry(rank, peers[0], tid, f"mlx5_{dev}", rng), key=True)
    else:
        # Nothing on the host itself knows of it: no packet passes between this host and the others.
        for host in w.hosts:
            if host is not bad:
                w.series("ping_loss", host, bad.name).during(moment, 9e12, 100, key=True)
                w.series("ping_loss", bad, host.name).during(moment, 9e12, 100, key=True)
        w.series("tcp_retrans", bad).during(moment, moment + 400, 6, key=True)
        c.say(peers[0], "raw", dt=21, text=real.nccl_socket(peers[0], rank, tid, rng.choice((
            "socketProgress: Connection closed by remote peer {ip}<{port}>", "socketPollConnect: connect to {ip}<{port}> returned No route to host, retrying (1/34) after sleep for 100 msec",
            "socketPollConnect: connect to {ip}<{port}> returned Connection timed out, retrying (1/34) after sleep for 100 msec"))), key=True)  # fmt: skip
    for s in ("port_xmit_data", "port_rcv_data"):
        w.series(s, bad, f"mlx5_{dev}").during(moment, 9e12, -4e9, key=True)
    seq = rng.randrange(200, 9000)
    c.wait(limit)
    loud = peers + ([t for t in w.role("train") if t.host is not bad][:2] if rng.random() < 0.6 else [])
    for i, who in enumerate(loud):
        for line in real.watchdog(i + 1, who.host.clock(c.t), w.tz, seq, "BROADCAST", limit * 1000, rng, numel=1089994752):
            c.say(who, "raw", dt=0.02 * i, text=line)
    for who in peers:
        c.say(who, "exc", dt=0.5, type="torch.distributed.DistBackendError", text="NCCL communicator was aborted on rank " + str(who.index + 1) + ".", at="update_weights", error="update")
    c.wait(0.8, 1.6)
    c.call_failed(peers[0], "update_weights", "NCCL timeout")
    if rng.random() < 0.5:
        ok = w.role("train")[0]
        c.call_failed(ok, "upload_weights", "NCCL timeout")
    c.give_up("NCCL timeout", error="update", peer=peers[0])
    cause = {"rdma": "net.rdma", "partition": "net.partition", "link_flap": "net.link_flap"}[variant]
    accept = ("net.rdma", "net.partition") if variant == "partition" else ("net.rdma", "net.link_flap", "net.partition")
    entity = {} if variant != "partition" else {"rank": None, "gpu": None}
    w.tell(cause, accept, who=rank, t=moment, entity={"gpu": None} | entity, cause_stage="weights_update", symptom_stage="weights_update", cause_step=c.step, symptom_step=c.step,
           accept_without=["unknown", "net.rdma", "net.partition", "net.link_flap", "sw.rank_skew", "coord.weight_sync", "net.loss"],
           sources=[("kernel", bad), ("rdma", bad), ("ping", bad), ("net", bad), ("ping", "*"), ("files", bad)],
           why=f"The broadcast of step {c.step} stands still because {bad.name} (train) lost its network ({variant}) seconds after it began; only its counters and kernel log (or the pings to it) change, its ranks are the ones that report no time-out.")  # fmt: skip
