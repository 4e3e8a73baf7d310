"""Which worker a line, an address or a pid means, and that worlds of ranks are not mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rca.correlate.groups import Groups
from rca.correlate.identity import resolve
from rca.ingest.line import parse
from rca.ingest.read import ingest
from rca.ingest.sightings import workers
from tests.builders import run_of

INTRODUCED = [
    ("train worker 5 pid=24867 host=pod-33 ip=10.10.102.33 port=18005 CUDA_VISIBLE_DEVICES=5 rank=5 local_rank=5 world_size=24", ("train worker", 5, 24867, "5")),
    ('{"time": "2026-08-04T14:06:30+0800", "level": "info", "message": "rollout worker 0 pid=49336 host=cn094-g ip=10.10.55.94 port=30000 CUDA_VISIBLE_DEVICES=0,1"}', ("rollout worker", 0, 49336, "0,1")),
    ("[boot] generator replica #2 up: pid: 88, hostname: kepler-2, CUDA_VISIBLE_DEVICES='4,5'", ("generator replica", 2, 88, "4,5")),
    ("RefWorker 3: pid=77 node=gn3 ASCEND_RT_VISIBLE_DEVICES=6", ("RefWorker", 3, 77, "6")),
    ("[actor 2] rank=2/4 node=gn7 (10.0.0.7) pid=811 cuda=2", ("actor", 2, 811, "2")),
    ("sampler-1 up on gn7 (10.0.0.7:30002) pid 160 cuda:2", ("sampler", 1, 160, "2")),
    ("(PolicyModelActor pid=811) rank 5 world_size 8 node_ip 10.0.0.7 hostname gn7 pid 811 CUDA_VISIBLE_DEVICES 1", ("PolicyModelActor", 5, 811, "1")),
    ("2026/05/26 07:49:26,823 【信息】[训练进程2] 训练进程2 就绪 全局rank=2 主机=gn7 地址=10.0.0.7 进程号=811 显卡=2", ("训练进程", 2, 811, "2")),
    ("process index 7/8 on worker-36 (10.0.0.7) pid 811 device cuda:3", (None, None, 811, "3")),
    ("(SGLangEngine pid=160) sglang engine 1 pid=160 host=gn7 port=30002 tp_size=2 base_gpu_id=4", ("sglang engine", 1, 160, "4,5")),
]
PLACED = [
    ("train/0 registered: http://10.7.156.58:18000 on dgx-a58", ("train", 0, "10.7.156.58", 18000)),
    ("calling 'create_engine' on worker 'rollout/9' (attempt 1), url: http://10.4.7.17:30001/create_engine", ("rollout", 9, "10.4.7.17", 30001)),
    ("actor_3 ready at 10.0.0.3:8003", ("actor", 3, "10.0.0.3", 8003)),
    ("sglang engine 4 listening on http://10.0.0.4:30004", ("sglang engine", 4, "10.0.0.4", 30004)),
]


@pytest.mark.parametrize(("text", "want"), INTRODUCED, ids=[w[0] for _, w in INTRODUCED])
def test_introductions(text: str, want: tuple) -> None:
    """A process says its role, number, pid and devices, in whatever logger's line."""
    fields = next(f for kind, f in workers.sight(parse(text), text.lower()) if kind == "worker")
    assert fields["own"] and (fields["name"], fields["index"], fields["pid"], fields["devices"]) == want


@pytest.mark.parametrize(("text", "want"), PLACED, ids=[w[0] for _, w in PLACED])
def test_addresses(text: str, want: tuple) -> None:
    """A controller says where a worker listens."""
    fields = next(f for kind, f in workers.sight(parse(text), text.lower()) if kind == "worker")
    assert (fields["name"], fields["index"], fields["ip"], fields["port"]) == want and "own" not in fields


@pytest.mark.parametrize("text", [
    "rollout 64 samples from http://10.4.7.17:30001/", "train step 340 took 3 s", "failed (exitcode: -15) local_rank: 0 (pid: 46671) of binary: python",
    "actor 3 (pid 46671, host gn7, gpu 3) exited with code -9", "rank 3 world_size 4 pid 46671 on gn7 lost its gpu 3",
    "rollout/3 and rollout/4 asked http://10.4.7.17:17000/", "(WorkerDict pid=10727, ip=10.29.150.28) saved 3 shards", "engine-2.5 model loaded from 10.0.0.1:80",
])  # fmt: skip
def test_look_alikes_introduce_nobody(text: str) -> None:
    """Counts, versions, a launcher's children, several workers in one line."""
    assert not [f for kind, f in workers.sight(parse(text), text.lower()) if kind == "worker" and f.get("index") is not None]


def intro(role: str, n: int, pid: int, port: int, gpu: int, more: str = "") -> str:
    return f"2026-11-20 12:00:00,{n:03d} INFO boot: {role} worker {n} pid={pid} host=gn7 ip=10.0.0.7 port={port} CUDA_VISIBLE_DEVICES={gpu}{more}\n"


FILES = {
    "tree/attempt_0/0/stderr.log": intro("train", 0, 100, 18000, 0, " rank=0 local_rank=0 world_size=2") + "2026-11-20 12:01:00,000 INFO train: step=1 loss=2.0\n",
    "tree/attempt_0/1/stderr.log": intro("train", 1, 101, 18001, 1, " rank=1 local_rank=1 world_size=2") + "2026-11-20 12:01:00,000 INFO train: step=1 loss=2.0\n",
    "ref-worker-1.log": intro("reference", 1, 201, 19001, 1) + "2026-11-20 12:01:00,000 [Worker Rank 1] INFO: logprobs of step 1 done\n",
    "vllm/server_1.log": intro("rollout", 1, 301, 30001, 1) + "2026-11-20 12:02:00,000 ERROR engine: CUDA out of memory. Tried to allocate 13.62 GiB. GPU 0 has a total capacity of"
    " 79.11 GiB of which 1.02 GiB is free. Process 101 has 61.33 GiB memory in use. Process 301 has 15.40 GiB memory in use.\n",
    "driver.log": "2026-11-20 12:02:01,000 ERROR rpc: request to http://10.0.0.7:30001/generate timed out after 7200s\n",
}  # fmt: skip


def test_worlds_are_kept_apart(tmp_path: Path) -> None:
    """Rank 1 of the trainer, worker 1 of the reference model and engine 1 of the rollout are three processes on one GPU."""
    run = run_of(tmp_path, FILES)
    assert {k: (p["role"], tuple(p["pids"])) for k, p in run.processes.items() if p["role"] != "controller"} == {
        (0, 0): ("train", (100,)), (0, 1): ("train", (101,)), (0, "ref-worker-1"): ("reference", (201,)), (0, "server_1"): ("rollout", (301,)),
    }  # fmt: skip
    assert run.world == 2


def test_out_of_memory_names_device_and_holder(tmp_path: Path) -> None:
    """`GPU 0` of a process that sees device 1 only is device 1; the greatest holder is the trainer's rank 1."""
    event = next(e for e in run_of(tmp_path, FILES).events if e.kind == "device.out_of_memory")
    assert (event.host, event.role, event.gpu, event.pid) == ("gn7", "rollout", 1, 301)
    assert event.attrs["holders"] == [(101, 61.33), (301, 15.4)]
    assert {k: event.attrs["holder"][k] for k in ("worker", "role", "rank")} == {"worker": "train/1", "role": "train", "rank": 1}
    assert {u["worker"] for u in event.attrs["users"]} == {"train/1", "reference/1", "rollout/1"}


def test_a_callers_report_is_about_the_callee(tmp_path: Path) -> None:
    """The address in a time-out is the rollout engine's."""
    event = next(e for e in run_of(tmp_path, FILES).events if e.kind == "rpc.timeout")
    assert {k: event.attrs["about"][k] for k in ("worker", "role", "host", "gpu", "pid")} == {"worker": "rollout/1", "role": "rollout", "host": "gn7", "gpu": 1, "pid": 301}


def test_workers_are_found_by_every_name(tmp_path: Path) -> None:
    """Address, role and number, pid; what several are said to have is nobody's."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    who = resolve(ingest([tmp_path], workers=1)[0])
    assert who.workers.at("10.0.0.7", 30001).name == who.workers.at("gn7", 30001).name == "rollout/1"
    assert [w.name for w in who.workers.named_in("worker 'rollout/1' failed, ask ref/1 (10.0.0.7) and train/0")] == ["rollout/1", "reference/1", "train/0"]
    assert who.workers.of_pid("gn7", 201).name == "reference/1" and who.workers.of_pid("gn8", 201) is None
    assert who.colocated == {("gn7", 1): ["reference/1", "rollout/1", "train/1"]}


def test_groups_from_stated_degrees() -> None:
    """Tensor parallel ranks are neighbours, pipeline stages are farthest apart; degrees that do not fit the world say nothing."""
    groups = Groups({"tp": 2, "pp": 2}, 8)
    assert groups.shared({4, 5}) == [("tp", (4, 5))] and groups.shared({0, 3}) == []
    assert not Groups({"tp": 3}, 8) and Groups({}, 4, given={"dp": [[0, 2], [1, 3]]}).of(2, "dp") == (0, 2)


CONSOLE = "".join(f"2026-11-20 12:00:0{n},000 process index {n}/4 on gn-{n // 2} (10.0.0.{n // 2}) pid {900 + n} device cuda:{n % 2}\n" for n in (3, 0, 1, 2))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.7 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.09 GiB is free."


def test_a_console_of_all_ranks_tells_where_each_runs(tmp_path: Path) -> None:
    """Each process says once where it is; whose error follows is told by its prefix, and the last one that spoke is not meant."""
    error = f'[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 3, in step\n[rank1]:     y = f(x)\n[rank1]: {OOM}\n'
    event = next(e for e in run_of(tmp_path, {"trainer/console.log": CONSOLE + error}).events if e.kind == "device.out_of_memory")
    assert (event.host, event.rank, event.gpu, event.pid) == ("gn-0", 1, 1, None)


def test_a_role_s_file_holds_workers_of_several_hosts(tmp_path: Path) -> None:
    """The rank before a message says which member speaks, whoever introduced itself first in that file."""
    text = "".join(f"20261120-12:00:0{n}.000 [FSDPEngine Rank {n}] INFO: Worker 'actor/{n}' ready at 10.0.0.{n // 2}:2100{n} (host gn-{n // 2}, pid {900 + n}, CUDA_VISIBLE_DEVICES={n % 2})\n" for n in range(4))
    text += "20261120-12:05:00.000 [FSDPEngine Rank 3] ERROR: Engine method 'ppo_update' failed: CUDA error: device-side assert triggered\n"
    event = next(e for e in run_of(tmp_path, {"trial/actor.log": text}).events if e.kind == "device.assert")
    assert (event.host, event.role, event.rank, event.gpu) == ("gn-1", "train", 3, 1)


def test_a_process_without_a_name_of_its_own_is_its_worker(tmp_path: Path) -> None:
    """Ray's prefix `WorkerDict` names many processes; each is known by what it said of itself."""
    text = "".join(f"(WorkerDict pid={900 + n}) [actor {n}] rank={n}/2 node=gn-0 (10.0.0.1) pid={900 + n} cuda={n}\n(WorkerDict pid={900 + n}) [actor {n}] step 1 done\n" for n in range(2))
    text += "".join(f"(AsyncServer pid={950 + n}) [vllm server {n}] node=gn-0 (10.0.0.1) port=3000{n} pid={950 + n} cuda={n}\n" for n in range(2))
    keys = run_of(tmp_path, {"driver_console.log": text}).processes
    assert all(who is not None for _, who in keys) and {(0, 0), (0, 1)} <= set(keys)


def test_a_kill_of_a_process_without_rank_is_the_job_s(tmp_path: Path) -> None:
    """Ranks are known by their pids, the engine by its introduction: the kernel's victim is it."""
    files = {f"train-{n}.log": intro("train", n, 100 + n, 18000 + n, n) for n in range(2)} | {"rollout-0.log": intro("rollout", 0, 301, 30000, 1)}
    files["gn7.dmesg"] = "[Fri Nov 20 12:05:00 2026] Out of memory: Killed process 301 (python3) total-vm:124142165kB, anon-rss:117018708kB, file-rss:1824kB, shmem-rss:0kB, UID:0\n"
    event = next(e for e in run_of(tmp_path, files).events if e.kind == "process.killed_by_kernel")
    assert not event.attrs.get("foreign")
