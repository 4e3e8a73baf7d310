"""Log trees of healthy-looking training runs with planted failures: any size, the same bytes for the same arguments.

    python bench/corpus.py OUT [--ranks 64] [--mb-per-rank 16] [--files-per-rank 2] [--seed 7] [--plants 30]

Layout: OUT/RUN/attempt_0/<rank>/{stdout.log,stderr.log}. Beside the tree, in OUT.truth.json, stands every planted line: file, byte
offset, line number, text. Steps and clocks advance, five spellings of time and three styles of trainers are mixed, and the noise
holds warnings, retries and a transient traceback every 12 MB. Blocks of lines are formatted once and stamped again and again: 100 MB/s.
"""

from __future__ import annotations

import os
import random
import re
import time

START = 1767690000  # 2026-01-06 09:00:00 UTC
STEPS = 8  # in a block
BLOCKS = 24  # formatted per style; what they hold besides stamps and steps repeats

PLANT = (  # placeholders: rank, node, step, time, and time as glog writes it
    "[rank{r}]:[E{g} ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={s}, OpType=ALLREDUCE, NumelIn=8388608, NumelOut=8388608, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.",
    "[rank{r}]:[E{g} ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, remote process exited or there was a network error, NCCL version 2.21.5",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.06 GiB is free.",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "[{t}] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "[{t}] NVRM: Xid (PCI:0000:4e:00): 94, pid=81733, name=python, Contained: SM (0x1). RST: No, D-RST: No",
    "[{t}] Out of memory: Killed process 31173 (python) total-vm:214748364kB, anon-rss:201326592kB",
    "E{g} 991 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 4 (pid: 31173) of binary: /usr/bin/python3",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "node-{n}:811:2311 [4] transport/net_ib.cc:96 NCCL WARN NET/IB : mlx5_4:1 Got async event : port error",
    "node-{n}:811:2311 [4] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.2.4.31<51221> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
    "[{t}] nfs: server filer-02 not responding, timed out",
    "OSError: [Errno 28] No space left on device: '/ckpt/step_{s}/model_00017-of-00064.distcp'",
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "{t} ERROR trainer.py:512] step={s} loss=nan grad_norm=nan, aborting after 3 consecutive non-finite losses",
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 63/64 clients joined.",
    "[W{g} TCPStore.cpp:125] recvValue failed on SocketImpl(fd=31, addr=[node-{n}]:51022, remote=[node-0]:29500): Connection reset by peer",
    "RuntimeError: DataLoader worker (pid 40213) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.2.4.31]:31174",
    "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
    "Fatal Python error: Segmentation fault",
    "slurmstepd: error: *** STEP 88213.0 ON node-{n} CANCELLED AT 2026-01-06T14:02:11 DUE TO TIME LIMIT ***",
    "{t} WARNING kubelet Pod trainer-{r} evicted: The node was low on resource: ephemeral-storage.",
    "[{t}] NVRM: Xid (PCI:0000:4e:00): 74, pid=81733, NVLink: fatal error detected on link 5",
    "[rank{r}]:[E{g} ProcessGroupNCCL.cpp:683] [Rank {r}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
    "[rank{r}]:[F{g} ProcessGroupNCCL.cpp:1250] [PG ID 0 PG GUID 0 Rank {r}] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
    'botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "https://bucket.example/ckpt/step_{s}/meta.pt"',
)

TRACE = (
    b"Traceback (most recent call last):\n"
    b'  File "/opt/train/data/fetch.py", line 211, in _fetch\n    return self._client.get(key, timeout=self.timeout)\n'
    b'  File "/opt/train/data/client.py", line 88, in get\n    raise TransientFetchError(key)\n'
    b"data.client.TransientFetchError: shard-%05d (retry 1/5)\n"
)

# In the templates `{py}`, `{iso}`, `{br}`, `{glog}` and `{ep}` are the time in five spellings, `{s}` the step, `{r}` the rank and `{n}`
# its node; `#l`, `#g`, `#d`, `#k`, `#c` are filled with digits once: a loss, a fraction, seconds, a large number, a device.
STEP_LINES = (
    "{py} INFO trainer.py:412] [rank {r}] step={s} loss=#l lr=2.9871e-04 grad_norm=#g step_time=#ds data_time=0.011s tokens/s=#k mem=61.2GiB\n",
    " [{br}] iteration {s:>8}/  500000 | consumed samples:       #k | elapsed time per iteration (ms): #d | learning rate: 2.987E-04 | global batch size:  1024 | lm loss: #l | loss scale: 1.0 | grad norm: #g | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
    "[rank{r}]:{iso} train/step: {s}, train/loss: #l, perf/tok_s: #k, perf/step_s: #d, optim/grad_norm: #g\n",
)
NOISE = (
    "{py} INFO loader.py:97] [rank {r}] worker 3 fetched shard-#k in #ds (errors=0 retries=0 timeout=600s)\n",
    "{py} DEBUG scheduler.py:55] lr schedule cosine warmup=2000 total=500000 min_lr=3.0e-05 cur_step={s}\n",
    "{iso} INFO telemetry gpu_util=97 mem_util=81 temp=61C power=688W ecc_errors=0 pcie_replays=0 xid_errors=0 rank={r}\n",
    "{py} INFO pipeline.py:301] microbatch schedule 1F1B stages=4 bubbles=#g p2p_wait=#ds\n",
)
STDERR = {  # with how often each occurs
    "node-{n}:811:2311 [#c] NCCL INFO Channel #c/08 : 0 1 2 3 4 5 6 7 [send] via NET/IB/#c/GDRDMA\n": 8,
    "node-{n}:811:2311 [#c] NCCL INFO AllReduce: opCount #k sendbuff 0x7f2a#k recvbuff 0x7f2b#k count 8388608 datatype 9 op 0 root 0 comm 0x55d0c3 [nranks=64] stream 0x55d1\n": 8,
    "[rank{r}]:I{glog} 811 torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2311] [PG ID 0 PG GUID 0(default_pg) Rank {r}] last enqueued work: {s}, last completed work: {s}\n": 6,
    "[rank{r}]:[W{glog} ProcessGroupNCCL.cpp:1496] Warning: TORCH_NCCL_AVOID_RECORD_STREAMS is the default now, this environment variable is thus deprecated. (function operator())\n": 1,
    "/usr/lib/python3/dist-packages/torch/utils/checkpoint.py:61: UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n  warnings.warn(\n": 0.3,
    "{iso} WARNING data.client transient slow read shard-#k took #ds, will not retry\n": 1,
    "node-{n}:811:2311 [#c] NCCL INFO comm 0x55d0c3 rank {r} nranks 64 cudaDev #c busId 9b000 commId 0x#k - Init COMPLETE\n": 2,
    "{ep} prefetch queue depth #c high-water 64 stalls 0 failures 0\n": 3,
}


def stamps(t: float) -> dict[str, str]:
    """One time in five spellings."""
    g, us = time.gmtime(t), int(t % 1 * 1e6)
    iso, hms = time.strftime("%Y-%m-%d", g), time.strftime("%H:%M:%S", g)
    return {"py": f"{iso} {hms},{us // 1000:03}", "iso": f"{iso}T{hms}.{us // 1000:03}Z", "br": f"{iso} {hms}", "ep": f"{t:.6f}",
            "glog": f"{g.tm_mon:02}{g.tm_mday:02} {hms}.{us:06}"}  # fmt: skip


def blocks(rng: random.Random, kind: str, rank: int) -> list[str]:
    """Blocks of lines of one file, in which only times and steps are open: `{py3}`, `{s3}` belong to the third step."""
    digits = {"#l": lambda: f"2.{rng.randrange(10**4):04}", "#g": lambda: f"0.{rng.randrange(1000):03}", "#d": lambda: f"1.{rng.randrange(1000):03}",
              "#k": lambda: str(rng.randrange(100_000, 999_999)), "#c": lambda: str(rng.randrange(8))}  # fmt: skip
    found = []
    for _ in range(BLOCKS):
        lines = []
        for step in range(STEPS):
            if kind == "stdout.log":
                chosen = [STEP_LINES[rank % 3], *(rng.choice(NOISE) for _ in range(rng.randrange(1, 4)))]
            else:
                chosen = rng.choices(list(STDERR), list(STDERR.values()), k=3)
            for line in chosen:
                line = re.sub(r"#[lgdkc]", lambda m: digits[m[0]](), line).replace("{r}", str(rank)).replace("{n}", str(rank // 8))
                lines.append(re.sub(r"\{(py|iso|br|ep|glog|s)\b", rf"{{\g<1>{step}", line))
        found.append("".join(lines))
    return found


def write_file(path: str, kind: str, rank: int, size: int, seed: object, plants: list[tuple[int, str]]) -> list[dict]:
    """Write one file of about `size` bytes and return what was planted: `(offset wanted, text)` each."""
    rng = random.Random(f"{seed}/{rank}/{kind}")
    ready = blocks(rng, kind, rank)
    t, step, written, lines = START + rng.random(), 0, 0, 0
    truth, todo = [], sorted(plants)
    next_trace = int(rng.expovariate(1 / 12e6))
    with open(path, "wb", buffering=1 << 20) as file:
        while written < size or todo:
            if todo and (todo[0][0] <= written or written >= size):
                now = stamps(t)
                line = todo.pop(0)[1].format(r=rank, n=rank // 8, s=step, t=now["br"], g=now["glog"])
                truth.append({"file": path, "offset": written, "line": lines + 1, "text": line})
                piece = line.encode() + b"\n"
            elif written > next_trace:
                next_trace = written + int(rng.expovariate(1 / 12e6))
                piece = TRACE % rng.randrange(10**5)
            else:
                known: dict[str, object] = {}
                for i in range(STEPS):
                    t, step = t + 0.9 + rng.random() * 0.4, step + 1
                    known |= {f"{name}{i}": text for name, text in stamps(t).items()}
                    known[f"s{i}"] = step
                piece = ready[rng.randrange(BLOCKS)].format_map(known).encode()
                if len(piece) > size - written:  # end at a line
                    piece = piece[: piece.rfind(b"\n", 0, max(size - written, 1)) + 1] or piece[: piece.find(b"\n") + 1]
            file.write(piece)
            written += len(piece)
            lines += piece.count(b"\n")
    return truth


def tree(out: str, *, ranks: int = 64, mb_per_rank: float = 16.0, files_per_rank: int = 2, seed: int = 7, plants: int = 30) -> str:
    """Write a tree and its truth, with a process per core; returns `out`."""
    import json
    from concurrent.futures import ProcessPoolExecutor

    names = ["stdout.log", "stderr.log"][:files_per_rank]
    size = int(mb_per_rank * (1 << 20) / len(names))
    rng = random.Random(seed)
    planted: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for i in range(plants):  # late in the file: failures come near the end, but noise follows
        planted.setdefault((rng.randrange(ranks), rng.choice(names)), []).append((int(size * rng.uniform(0.3, 0.98)), PLANT[i % len(PLANT)]))
    jobs = []
    for rank in range(ranks):
        folder = os.path.join(out, "RUN", "attempt_0", str(rank))
        os.makedirs(folder, exist_ok=True)
        jobs += [(os.path.join(folder, name), name, rank, size, seed, planted.get((rank, name), [])) for name in names]
    with ProcessPoolExecutor() as pool:
        truth = [t | {"file": os.path.relpath(t["file"], out)} for part in pool.map(write_file, *zip(*jobs), chunksize=max(1, len(jobs) // 64)) for t in part]
    with open(out.rstrip("/") + ".truth.json", "w") as file:
        json.dump({"planted": truth}, file, indent=1)
    os.sync()  # or what is measured next shares the disk with writing this back
    return out


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--mb-per-rank", type=float, default=16.0)
    parser.add_argument("--files-per-rank", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--plants", type=int, default=30)
    print(tree(**vars(parser.parse_args())))
