"""The modelled cluster: hosts with their own clocks, workers, what they did (facts), what the kernel said, and counters over time.

Nothing here knows how a program words anything: facts are rendered by a dialect, counters by the telemetry renderers. Times are seconds
since the epoch on the true clock; `Host.clock` turns them into what that host believes.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

STAGES = ("weights_update", "rollout", "reference", "train", "latest_recover_save", "periodic_recover_save")
SKEW_S = (-90, 40)  # how far a host's clock may be off, as in the shared cases
HOST_STYLES = ("gpu-{:03d}", "cn{:04d}", "h100-r{:02d}", "node{:02d}.cl2.corp", "train-{:d}-pod", "bj-a{:03d}", "dgx{:02d}", "g{:03d}n1", "worker-{:d}")
BUSES = ("0000:18:00", "0000:2a:00", "0000:3a:00", "0000:5d:00", "0000:9a:00", "0000:ab:00", "0000:ba:00", "0000:db:00")


@dataclass(eq=False)
class Host:
    """One machine; `skew` is how many seconds its clock is ahead."""

    name: str
    ip: str
    skew: float
    gpus: int
    boot: float
    cores: int = 96
    mem_gb: int = 1024

    def clock(self, t: float) -> float:
        """What this host's clock shows at the true time `t`."""
        return t + self.skew


@dataclass(eq=False)
class Worker:
    """One process of the job; `gpu` is None for processes without a device."""

    role: str
    index: int
    host: Host
    pid: int
    port: int
    gpu: int | None = None
    tp: int = 1

    @property
    def rank(self) -> int:
        return self.index

    @property
    def bus(self) -> str | None:
        return None if self.gpu is None else BUSES[self.gpu]


@dataclass(eq=False)
class Fact:
    """Something a process did and may write about."""

    t: float
    who: Worker
    kind: str
    step: int | None
    stage: str | None
    data: dict[str, Any]
    key: bool = False


@dataclass(eq=False)
class Span:
    """An operation for the trace renderers; `end` None is an operation that never ended (no span is exported)."""

    name: str
    who: Worker
    peer: Worker | None
    start: float
    end: float | None
    step: int | None
    stage: str | None
    error: str | None = None
    attrs: dict[str, Any] = field(default_factory=dict)


class Series:
    """A counter or gauge over time: a base, noise, and spans of time in which it behaves otherwise."""

    def __init__(self, base: float, rate: float, noise: float, counter: bool, t0: float) -> None:
        self.base, self.rate, self.noise, self.counter, self.t0 = base, rate, noise, counter, t0
        self.effects: list[tuple[float, float, float, bool]] = []  # start, end, rate (counter) or level (gauge), is it key evidence

    def during(self, start: float, end: float, value: float, key: bool = False) -> None:
        self.effects.append((start, end, value, key))

    def at(self, t: float, rng: random.Random) -> float:
        if self.counter:
            total = self.base + self.rate * max(0.0, t - self.t0) + sum(rate * max(0.0, min(t, end) - start) for start, end, rate, _ in self.effects)
            return float(int(total))
        for start, end, value, _ in reversed(self.effects):
            if start <= t < end:
                return value * (1 + self.noise * rng.uniform(-1, 1))
        return self.base * (1 + self.noise * rng.uniform(-1, 1))


# name: (base, rate per second, relative noise, is a counter). A base that must be zero stays zero.
CATALOGUE: dict[str, tuple[float, float, float, bool]] = {
    "gpu_util": (60, 0, 0.3, False), "gpu_mem": (2000, 0, 0.0, False), "gpu_temp": (58, 0, 0.06, False), "gpu_power": (420, 0, 0.2, False),
    "ecc_unc": (0, 0, 0, True), "ecc_cor": (0, 0, 0, True), "xid": (0, 0, 0, False),
    "mem_avail": (7.1e11, 0, 0.01, False), "load1": (22, 0, 0.15, False), "cpu_user": (18, 0, 0.2, False), "cpu_iowait": (0.4, 0, 0.5, False), "runq": (14, 0, 0.3, False),
    "psi_cpu": (300, 0.002, 0, True), "oom_kill": (0, 0, 0, True), "blocked": (0, 0, 0, False),
    "tx_bytes": (8e12, 9e7, 0, True), "rx_bytes": (7e12, 8e7, 0, True), "tx_drop": (12, 0, 0, True), "rx_drop": (40, 0, 0, True), "rx_err": (0, 0, 0, True),
    "carrier_changes": (4, 0, 0, True), "tcp_retrans": (5100, 0.05, 0, True), "tcp_out": (9e8, 9000, 0, True),
    "local_ack_timeout_err": (3, 0, 0, True), "packet_seq_err": (11, 0, 0, True), "out_of_sequence": (25, 0, 0, True), "link_downed": (1, 0, 0, True),
    "symbol_error": (0, 0, 0, True), "port_xmit_discards": (2, 0, 0, True), "port_xmit_data": (6e12, 4e9, 0, True), "port_rcv_data": (6e12, 4e9, 0, True),
    "ping_rtt": (0.18, 0, 0.25, False), "ping_loss": (0, 0, 0, False),
    "nfs_ops": (4e6, 60, 0, True), "nfs_rtt": (2.1, 0, 0.3, False), "nfs_timeouts": (0, 0, 0, True), "nfs_retrans": (6, 0, 0, True), "nfs_errors": (0, 0, 0, True),
    "fs_avail": (3.1e13, 0, 0.001, False), "fs_readonly": (0, 0, 0, False), "proc_rss": (9e9, 0, 0.01, False),
}  # fmt: skip


class World:
    """Everything that happened in one run. Scenarios write into it, renderers read from it."""

    def __init__(self, seed: int, label: str) -> None:
        self.rng = random.Random(f"{label}/{seed}")
        rng = self.rng
        self.seed, self.label = seed, label
        self.start = 1767225600 + rng.randrange(0, 320 * 86400) + rng.random()
        self.tz = rng.choice((0, 0, 8, 8, -7, 1)) * 3600  # zone of all hosts; services speak UTC
        self.end = self.start
        self.hosts: list[Host] = []
        self.workers: list[Worker] = []
        self.facts: list[Fact] = []
        self.spans: list[Span] = []
        self.kernel: list[tuple[float, Host, int, str, bool]] = []  # time, host, syslog priority, text, is it key evidence
        self.series_of: dict[tuple[str, Host, str], Series] = {}
        self.sched: list[tuple[float, str, dict[str, Any]]] = []  # what the scheduler noted: time, kind, facts
        self.needs: set[str] = set()  # families of telemetry without which the truth could not be known
        self.lost: set[tuple[str, Host]] = set()  # (family or "files", host) that the folder does not hold
        self.attempt = 0
        self.without = False  # the copy of the run that lacks its decisive source
        self.memory: list[tuple[float, Worker, float]] = []  # MiB of the device that a process holds from then on
        self.words: dict[str, str] = {}  # the dialect's names, for traces
        self.truth: dict[str, Any] = {}
        self.decoys: list[str] = []
        self.busy: set[Host] = set()  # hosts of the fault: decoys of the same class keep away
        self.step0 = rng.randrange(3, 90)
        self.steps = self.step0 + 40  # the last step that the job was told to do
        self.model = rng.choice(("qwen2.5-7b", "qwen3-14b", "llama3-8b", "glm4-9b", "qwen3-30b-a3b", "mistral-24b"))
        self.rpc_timeout = rng.choice((600, 900, 1800, 3600, 7200))
        self.batch = rng.choice((128, 256, 512, 1024))
        self.weights_mode = rng.choice(("nccl", "disk", "store"))
        self.mount = rng.choice(("/mnt/nfs/ckpt", "/shared/exp", "/data/ckpts", "/mnt/vepfs/rl", "/nas/rlhf"))
        self.export = rng.choice(("10.60.0.9:/vol/ckpt", "10.71.3.4:/export/exp", "filer2:/exp/rl"))
        self.run = f"{self.model.split('.')[0]}-{rng.choice(('grpo', 'dapo', 'ppo', 'rloo'))}-{rng.randrange(10, 99)}"
        self.use_ref = True
        self.store: Worker | None = None
        self.store_gb = lambda step: 15.0 + 0.1 * (step % 3)  # what the weight store holds after a step
        self.store_keys = lambda step: 64

    # --- building -----------------------------------------------------------------------------------------------------

    def lay_out(self, colocated: bool, ref_host: bool, train_hosts: int = 1, rollout_hosts: int = 1, tp: int | None = None) -> None:
        """Place the roles. Colocated: every GPU of the train hosts has a train rank and a rollout engine."""
        rng = self.rng
        style, net = rng.choice(HOST_STYLES), f"10.{rng.randrange(2, 250)}.{rng.randrange(1, 250)}"
        count = train_hosts + (0 if colocated else rollout_hosts) + int(ref_host)
        numbers, octets = rng.sample(range(1, 98), count), rng.sample(range(10, 240), count)
        gpus = rng.choice((4, 4, 8)) if count < 4 else 4
        for number, octet in zip(numbers, octets):
            boot = self.start - rng.uniform(2, 40) * 86400
            self.hosts.append(Host(style.format(number), f"{net}.{octet}", round(rng.uniform(*SKEW_S), 3), gpus, boot, mem_gb=rng.choice((512, 1024, 2048))))
        self.colocated, self.tp = colocated, tp or rng.choice((1, 1, 2))
        train = self.hosts[:train_hosts]
        rollout = train if colocated else self.hosts[train_hosts : train_hosts + rollout_hosts]
        last = self.hosts[-1]
        self.controller = self._worker("controller", 0, self.hosts[0], None, 8000)
        for i in range(len(train) * gpus):
            self._worker("train", i, train[i // gpus], i % gpus, 21000 + i % gpus)
        for i in range(len(rollout) * gpus // self.tp):
            gpu = i * self.tp
            self._worker("rollout", i, rollout[gpu // gpus], gpu % gpus, 30000 + gpu % gpus, self.tp)
        for i in range(2):
            self._worker("reference", i, last, i if ref_host else gpus - 1 - i, 25000 + i)
        self.store = self._worker("meta_server", 0, self.hosts[0], None, 9500)

    def _worker(self, role: str, index: int, host: Host, gpu: int | None, port: int, tp: int = 1) -> Worker:
        worker = Worker(role, index, host, self.rng.randrange(4000, 240000), port, gpu, tp)
        self.workers.append(worker)
        return worker

    def role(self, name: str) -> list[Worker]:
        return [w for w in self.workers if w.role == name]

    # --- happening ----------------------------------------------------------------------------------------------------

    def say(self, t: float, who: Worker, kind: str, step: int | None = None, stage: str | None = None, key: bool = False, **data: Any) -> None:
        """`key`: a line that names the cause and is gone in the ablated copy of the case."""
        data.setdefault("attempt", self.attempt)
        data.setdefault("pid", who.pid)  # a restart gives new ones
        if data.get("peer") is not None:
            data.setdefault("peer_pid", data["peer"].pid)
        self.facts.append(Fact(t, who, kind, step, stage, data, key))
        self.end = max(self.end, t)

    def kmsg(self, t: float, host: Host, text: str, priority: int = 4, key: bool = False) -> None:
        for line in text.split("\n"):
            self.kernel.append((t, host, priority, line, key))

    def span(self, name: str, who: Worker, start: float, end: float | None, step: int, stage: str, peer: Worker | None = None, error: str | None = None, **attrs: Any) -> None:
        self.spans.append(Span(name, who, peer, start, end, step, stage, error, attrs))

    def series(self, name: str, host: Host, subject: str = "") -> Series:
        key = (name, host, subject)
        if key not in self.series_of:
            base, rate, noise, counter = CATALOGUE[name]
            # Cumulative counts of a fabric or a disk are never the same on two machines.
            spread = random.Random(f"{self.label}/{self.seed}/{name}/{host.name}/{subject}").uniform(0.6, 1.4) if base > 5 else 1.0
            self.series_of[key] = Series(base * spread, rate, noise, counter, self.start)
        return self.series_of[key]

    def tell(self, cause: str, accept: tuple[str, ...] = (), who: Worker | None = None, host: Host | None = None, t: float | None = None, why: str = "", **more: Any) -> None:
        """State the truth. `who` gives host, rank, gpu and role at once; `host` alone is a place without a process."""
        entity: dict[str, Any] = {}
        if who is not None:
            entity = {"host": who.host.name, "role": who.role}
            if who.role == "train" or (who.gpu is not None and more.pop("gpu_named", True)):
                entity |= {"gpu": who.gpu}
            if who.role == "train":
                entity["rank"] = who.rank
        elif host is not None:
            entity = {"host": host.name}
        entity |= more.pop("entity", {})
        iso = None if t is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t)) + f".{int(t % 1 * 1000):03d}Z"
        self.truth = {"root_cause_class": cause, "accept": sorted({cause, *accept}), "faulty_entity": entity, "fault_time_utc": iso, "why": why, **more}

    def lose(self, family: str, host: Host) -> None:
        """The folder does not hold this family of telemetry ("files": the worker logs) of that host."""
        self.lost.add((family, host))
