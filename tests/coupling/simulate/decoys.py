"""Frightening things that have nothing to do with the end of the run: one function each, `decoy(w, c) -> (text for the truth, class it imitates)`.

They keep away from the hosts of the fault where they would make the truth undecidable.
"""

from __future__ import annotations

from collections.abc import Callable

from coupling.simulate import real
from coupling.simulate.world import Host, Worker, World


def _when(w: World) -> float:
    """Some time of the run, not its last tenth."""
    return w.rng.uniform(w.start + 60, w.start + 60 + (w.end - w.start - 60) * 0.85)


def _aside(w: World) -> Host:
    """A host that the fault has nothing to do with, if there is one."""
    free = [h for h in w.hosts if h.name != w.truth.get("faulty_entity", {}).get("host")]
    return w.rng.choice(free or w.hosts)


def _rank(w: World, host: Host | None = None) -> Worker:
    return w.rng.choice([x for x in w.role("train") if host is None or x.host is host] or w.role("train"))


def ecc_corrected(w: World) -> tuple[str, str]:
    host, gpu = _aside(w), 0
    gpu = w.rng.randrange(host.gpus or 1)
    for _ in range(3):
        w.series("ecc_cor", host, str(gpu)).during(t := _when(w), t + 1, w.rng.randrange(1, 90))
    return f"correctable ECC errors on {host.name} GPU {gpu}", "gpu.ecc"


def xid_of_old_pid(w: World) -> tuple[str, str]:
    host = w.rng.choice(w.hosts)
    t = w.start - w.rng.uniform(900, 80000)
    w.kmsg(max(t, host.boot + 60), host, f"NVRM: Xid (PCI:{'0000:3a:00'}): {w.rng.choice((43, 45))}, pid={w.rng.randrange(1000, 3999)}, name=python3, Ch 00000008", 3)
    return f"Xid 43/45 on {host.name} before the job (echo of another process)", "gpu.hang"


def xid_echo(w: World) -> tuple[str, str]:
    who = _rank(w)
    w.kmsg(w.end + 1, who.host, real.xid(45, who, "python3", f"Ch {w.rng.randrange(8, 60):08x}"), 3)
    return f"Xid 45 on {who.host.name} as its process is stopped", "gpu.hang"


def old_boot(w: World) -> tuple[str, str]:
    host = w.rng.choice(w.hosts)
    t = host.boot - w.rng.uniform(4000, 90000)
    w.kmsg(t, host, "NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 3)
    return f"Xid 79 on {host.name} before its last boot", "gpu.off_bus"


def flap_elsewhere(w: World) -> tuple[str, str]:
    host, dev = _aside(w), w.rng.randrange(4)
    t = w.start - w.rng.uniform(300, 9000) if w.rng.random() < 0.6 else _when(w)
    w.kmsg(t, host, real.mlx5(dev, "Link down", f"bmc{dev}" if t > w.start else f"ibs{dev}"), 4)
    w.kmsg(t + 6, host, real.mlx5(dev, "Link up", f"bmc{dev}" if t > w.start else f"ibs{dev}"), 6)
    return f"link flap on {host.name}, up again after 6 s", "net.link_flap"


def other_mount_ro(w: World) -> tuple[str, str]:
    host = w.rng.choice(w.hosts)
    t = _when(w)
    w.kmsg(t, host, "EXT4-fs error (device sdc1): ext4_journal_check_start:83: comm fluent-bit: Detected aborted journal\nEXT4-fs (sdc1): Remounting filesystem read-only", 2)
    return f"local disk sdc1 of {host.name} went read-only, nothing of the job lies there", "fs.readonly"


def service_oom(w: World) -> tuple[str, str]:
    host, t = _aside(w), _when(w)
    w.kmsg(t, host, real.oom_kill(w.rng.randrange(900, 3900), w.rng.choice(("node_exporter", "fluent-bit", "telegraf")), 0.5, w.rng, "/system.slice/monitoring.service"), 3)
    return f"cgroup OOM of a monitoring service on {host.name}", "host.oom"


def nfs_blip(w: World) -> tuple[str, str]:
    host, t = _aside(w), _when(w)
    server = w.export.split(":")[0]
    w.kmsg(t, host, f"nfs: server {server} not responding, still trying", 4)
    w.kmsg(t + w.rng.uniform(7, 18), host, f"nfs: server {server} OK", 6)
    return f"NFS server silent for seconds on {host.name}, then OK", "fs.hang"


def aer_corrected(w: World) -> tuple[str, str]:
    host, t = w.rng.choice(w.hosts), _when(w)
    w.kmsg(t, host, "pcieport 0000:16:01.0: AER: Corrected error received: 0000:17:00.0\npcieport 0000:16:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", 4)
    return f"corrected PCIe errors on {host.name}", "gpu.off_bus"


def stack_dump(w: World) -> tuple[str, str]:
    who, t = _rank(w), _when(w)
    text = 'Timeout (0:10:00)!\nThread 0x00007f1b2a7fc640 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 324 in wait\n  File "/usr/lib/python3.11/queue.py", line 180 in get\n\nThread 0x00007f1e4c1fd740 (most recent call first):\n  File "/usr/lib/python3.11/selectors.py", line 468 in select\n  File "/usr/lib/python3.11/asyncio/base_events.py", line 1898 in _run_once'
    w.say(t, who, "raw", text=text)
    return f"scheduled stack dump of rank {who.rank}", "sw.false_alarm"


def barrier_warning(w: World) -> tuple[str, str]:
    who = _rank(w)
    text = real.c10d(who.rank, who.host.clock(w.start + 30), w.tz, "ProcessGroupNCCL.cpp:4715", f"[PG ID 0 PG GUID 0 Rank {who.rank}]  using GPU {who.gpu} as device used by this process is currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect. You can pecify device_id in init_process_group() to force use of a particular device.", "W")  # fmt: skip
    w.say(w.start + 30, who, "raw", text=text)
    return f"barrier warning of rank {who.rank}", "sw.deadlock"


def retried_call(w: World) -> tuple[str, str]:
    peer, t = w.rng.choice(w.role("rollout")), _when(w)
    method = w.rng.choice(("generate", "switch" if w.colocated else "update_weights"))
    w.say(t, w.controller, "call_retry", peer=peer, method=method, n=1, why=w.rng.choice(("Connection reset by peer", "Server disconnected without sending a response.", "Cannot connect to host")))
    w.say(t + 10.2, w.controller, "call_recovered", peer=peer, method=method, n=2)
    return f"a request to rollout worker {peer.index} was repeated and answered", "coord.rpc"


def slow_compile(w: World) -> tuple[str, str]:
    who = _rank(w)
    w.say(w.start + 90, who, "raw", text="W torch/_dynamo/convert_frame.py:906] [0/8] torch._dynamo hit config.recompile_limit (8)")
    return "recompilation in the first step", "sw.rank_skew"


def oom_retried(w: World) -> tuple[str, str]:
    times = [f for f in w.facts if f.kind == "train_iter"]
    if not times:
        return slow_compile(w)
    f = w.rng.choice(times[: max(1, len(times) // 2)])
    w.say(f.t - 5, f.who, "oom_retried", f.step, "train", gb=74.1)
    return f"CUDA OOM on rank {f.who.rank}, retried with smaller micro batches", "sw.cuda_oom"


DECOYS: tuple[Callable[[World], tuple[str, str]], ...] = (
    ecc_corrected, xid_of_old_pid, old_boot, flap_elsewhere, other_mount_ro, service_oom, nfs_blip, aer_corrected, stack_dump, barrier_warning, retried_call, slow_compile, oom_retried,
)  # fmt: skip
# Where the end of the run is loud enough that an echo could be meant, it comes from the teardown.
AFTER_FAILURE = (xid_echo,)


def add(w: World, count: int) -> None:
    """Mix in so many decoys; what they imitate is never what happened to the same host."""
    pool = list(DECOYS) + (list(AFTER_FAILURE) if w.truth.get("verdict_expected") == "failed" else [])
    for decoy in w.rng.sample(pool, min(count, len(pool))):
        end = w.end
        text, imitates = decoy(w)
        w.end = end
        w.decoys.append(f"{text} ({imitates})")
