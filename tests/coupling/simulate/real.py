"""What programs that nobody here invented print: kernel, driver, NCCL, torch, sockets. Grammars as in shared formats/02 and 05.

Every function returns text without any log prefix; times inside the text are those of the host's own clock.
"""

from __future__ import annotations

import random
import time

from coupling.simulate.world import Host, Worker


def local(t: float, tz: int, shape: str) -> str:
    return time.strftime(shape, time.gmtime(t + tz))


# --- GPU ------------------------------------------------------------------------------------------------------------------


def xid(code: int, who: Worker, name: str, detail: str) -> str:
    return f"NVRM: Xid (PCI:{who.bus}): {code}, pid={who.pid}, name={name}, {detail}"


def ecc_lines(who: Worker, name: str, rng: random.Random) -> list[tuple[int, str]]:
    """(code, line) of an uncorrectable memory error, in one of the forms that drivers print."""
    address = f"{rng.randrange(16**10):#014x}"
    dbe = (48, xid(48, who, name, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition "
               f"{rng.randrange(16)}, subpartition {rng.randrange(2)}."))  # fmt: skip
    contained = (94, xid(94, who, name, f"Contained: FBHUB, RST: No, D-RST: No, Ch {rng.randrange(1, 40):08x}"))
    remap = (63, xid(63, who, name, f"Row Remapper: New row marked for remapping, reset gpu to activate. ({address})"))
    return rng.choice(([dbe, remap, contained], [contained, remap], [dbe, contained]))


def gsp_lines(who: Worker, rng: random.Random) -> list[tuple[int, str]]:
    """A firmware hang."""
    function = rng.choice(("76 (GSP_RM_CONTROL)", "103 (GSP_RM_ALLOC)", "78 (ALLOC_MEMORY)"))
    call = f"Timeout after {rng.choice((6, 45, 60))}s of waiting for RPC response from GPU{who.gpu} GSP! Expected function {function} (0x20803032 0x{rng.randrange(16, 255):x})."
    return [(119, f"NVRM: Xid (PCI:{who.bus}): 119, pid={who.pid}, name=python3, {call}")] * rng.choice((1, 2, 3))


def cuda_error(rng: random.Random, text: str) -> str:
    tail = "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    return f"CUDA error: {text}" + (tail if rng.random() < 0.6 else "") + ("\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n" if rng.random() < 0.5 else "")


def torch_oom(rng: random.Random, gpu: int, total: float, free: float, want: float, mine: float, others: list[tuple[int, float]]) -> str:
    """torch's own out-of-memory text; `others` are (pid, GiB) of further processes on the device."""
    theirs = "".join(f"Process {pid} has {gib:.2f} GiB memory in use. " for pid, gib in others)
    return (
        f"CUDA out of memory. Tried to allocate {want:.2f} GiB. GPU {gpu} has a total capacity of {total:.2f} GiB of which {free:.2f} GiB is free. {theirs}"
        f"Including non-PyTorch memory, this process has {mine:.2f} GiB memory in use. Of the allocated memory {mine * 0.93:.2f} GiB is allocated by PyTorch, and "
        f"{mine * 0.03:.2f} GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


# --- NCCL, c10d -----------------------------------------------------------------------------------------------------------


def c10d(rank: int, t: float, tz: int, source: str, text: str, level: str = "E") -> str:
    """One line of torch's C++ logger, 2.4 and later."""
    g = time.gmtime(t + tz)
    return f"[rank{rank}]:[{level}{g.tm_mon * 100 + g.tm_mday} {time.strftime('%H:%M:%S', g)}.{int(t % 1 * 1e9):09d} {source}] {text}"


def watchdog(rank: int, t: float, tz: int, seq: int, op: str, limit_ms: int, rng: random.Random, numel: int = 0) -> list[str]:
    """The lines of a collective that timed out, as one rank prints them."""
    n = numel or rng.randrange(10**6, 10**8)
    work = f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)={limit_ms})"
    head = f"[PG ID 2 PG GUID 3 Rank {rank}] "
    return [
        c10d(rank, t, tz, "ProcessGroupNCCL.cpp:629", f"[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for {limit_ms + rng.randrange(4, 90)} milliseconds before timing out."),
        c10d(rank, t + 0.002, tz, "ProcessGroupNCCL.cpp:2168", f"{head} failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: {seq - 1}"),
        c10d(rank, t + 0.003, tz, "ProcessGroupNCCL.cpp:681", f"[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."),
        c10d(rank, t + 0.004, tz, "ProcessGroupNCCL.cpp:695", f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down."),
    ]  # fmt: skip


def ib_retry(me: Worker, peer: Worker, tid: int, dev: str, rng: random.Random) -> str:
    """A completion with status 12: the transport gave up retrying."""
    short = me.host.name.split(".")[0]
    return (
        f"\n{short}:{me.pid}:{tid} [{me.gpu}] ib_plugin.c:{rng.choice((1615, 1617, 1702))} NCCL WARN NET/IB : Got completion from peer {peer.host.ip}<{rng.randrange(30000, 60000)}> "
        f"with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:{me.host.ip} remoteGids::ffff:{peer.host.ip} hca {dev}"
    )


def nccl_socket(me: Worker, peer: Worker, tid: int, why: str) -> str:
    short = me.host.name.split(".")[0]
    return f"\n{short}:{me.pid}:{tid} [{me.gpu}] misc/socket.cc:{484 if 'connect' in why else 58} NCCL WARN {why.format(ip=peer.host.ip, port=40000 + peer.pid % 20000)}"


def nccl_ready(me: Worker, nranks: int, comm: int) -> str:
    """The line by which NCCL says that a communicator stands: host, pid, rank and bus id in one place."""
    short = me.host.name.split(".")[0]
    bus = (me.bus or "0000:00:00").split(":")[1]
    return f"{short}:{me.pid}:{me.pid + 611} [{me.gpu}] NCCL INFO ncclCommInitRankConfig comm 0x{comm + me.pid:x} rank {me.rank} nranks {nranks} cudaDev {me.gpu} nvmlDev {me.gpu} busId {bus}000 commId 0x{comm * 977 % 16**16:x} - Init COMPLETE"


STARTUP = (
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...\nTo disable this warning, you can either:\n\t- Avoid using `tokenizers` before the fork if possible\n\t- Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)",
    "[W socket.cpp:697] [c10d] The client socket cannot be initialized to connect to [localhost]:29500 (errno: 97 - Address family not supported by protocol).",
    "/usr/local/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:4631: UserWarning: No device id is provided via `init_process_group` or `barrier `. Using the current device set by the user. ",
    "Sliding Window Attention is enabled but not implemented for `sdpa`; unexpected results may be encountered.",
    "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.",
    "Setting `pad_token_id` to `eos_token_id`:151645 for open-end generation.",
    "Error in cpuinfo: prctl(PR_SVE_GET_VL) failed",
)  # fmt: skip


def aftermath(rank: int, t: float, tz: int, rng: random.Random) -> str:
    """What a rank prints because another process is gone: never a cause."""
    if rng.random() < 0.5:
        return c10d(rank, t, tz, "TCPStore.cpp:106", f"[c10d] sendBytes failed on SocketImpl(fd={rng.randrange(50, 90)}, addr=[localhost]:{rng.randrange(30000, 60000)}, remote=[localhost]:29500): Broken pipe", "W")
    return c10d(rank, t, tz, "ProcessGroupNCCL.cpp:1662", f'[PG ID 0 PG GUID 0 Rank {rank}] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe', "W")


# --- kernel ---------------------------------------------------------------------------------------------------------------


def oom_kill(pid: int, comm: str, rss_gb: float, rng: random.Random, group: str | None = None, trigger: str = "") -> str:
    kb = int(rss_gb * 1048576)
    limit = f"constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={group},task_memcg={group}" if group else "constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/system.slice"
    what = "Memory cgroup out of memory" if group else "Out of memory"
    return (
        f"{trigger or comm[:15]} invoked oom-killer: gfp_mask=0x{'cc0(GFP_KERNEL)' if group else '140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP)'}, order=0, oom_score_adj=0\n"
        f"oom-kill:{limit},task={comm[:15]},pid={pid},uid=0\n"
        f"{what}: Killed process {pid} ({comm[:15]}) total-vm:{kb + rng.randrange(10**7, 9 * 10**7)}kB, anon-rss:{kb}kB, file-rss:{rng.randrange(9000, 90000)}kB, "
        f"shmem-rss:{rng.randrange(0, 9000)}kB, UID:0 pgtables:{kb // 480}kB oom_score_adj:0"
    )


def hung_task(comm: str, pid: int, seconds: int, frames: tuple[str, ...]) -> str:
    stack = "\n".join([" Call Trace:", "  <TASK>", "  __schedule+0x2eb/0x8d0", "  schedule+0x5f/0xd0", *(f"  {f}" for f in frames), "  </TASK>"])
    return (
        f"INFO: task {comm[:15]}:{pid} blocked for more than {seconds} seconds.\n      Tainted: P           OE     5.15.0-105-generic #115-Ubuntu\n"
        f'"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.\ntask:{comm[:15]:<16}state:D stack:    0 pid:{pid:5d} ppid:     1 flags:0x00004002\n{stack}'
    )


NFS_FRAMES = ("io_schedule+0x46/0x80", "folio_wait_bit_common+0x13c/0x330", "folio_wait_writeback+0x2c/0x80", "nfs_wb_all+0x24/0x120 [nfs]", "nfs4_file_flush+0x7a/0xc0 [nfsv4]", "do_fsync+0x3d/0x70", "__x64_sys_fsync+0x18/0x30")  # fmt: skip
GPU_FRAMES = ("rpcSendMessage+0x1a4/0x2b0 [nvidia]", "os_acquire_rwlock_write+0x30/0x50 [nvidia]", "nvidia_ioctl+0x6c4/0x8b0 [nvidia]", "nvidia_frontend_unlocked_ioctl+0x58/0x90 [nvidia]", "__x64_sys_ioctl+0x95/0xd0")  # fmt: skip
MLX_BUS = ("0000:17:00.0", "0000:29:00.0", "0000:39:00.0", "0000:5c:00.0", "0000:99:00.0", "0000:aa:00.0", "0000:b9:00.0", "0000:da:00.0")


def mlx5(index: int, text: str, netdev: str | None = None) -> str:
    return f"mlx5_core {MLX_BUS[index]}{' ' + netdev if netdev else ''}: {text}"


def soft_lockup(cpu: int, seconds: int, comm: str, pid: int) -> str:
    return f"watchdog: BUG: soft lockup - CPU#{cpu} stuck for {seconds}s! [{comm[:15]}:{pid}]"


def boot_noise(host: Host, rng: random.Random) -> list[tuple[float, str]]:
    """Lines that every healthy machine has: (seconds after boot, text)."""
    lines = [
        (0.0, "Linux version 5.15.0-105-generic (buildd@lcy02-amd64-007) (gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0) #115-Ubuntu SMP"),
        (1.9, "EDAC MC: Ver: 3.0.0"),
        (6.2, "nvidia-nvlink: Nvlink Core is being initialized, major device number 510"),
        (7.7, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07"),
        (22.5, mlx5(0, "Link down", "eth0")),
        (24.1, mlx5(0, "Link up", "eth0")),
        (40.3, "nvidia-uvm: Loaded the UVM driver, major device number 508."),
    ]
    return lines if rng.random() < 0.6 else lines[:3]


def idle_noise(rng: random.Random) -> str:
    """A harmless kernel line from the middle of a run."""
    return rng.choice((
        "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
        "docker0: port 3(veth4f1c2aa) entered blocking state",
        "docker0: port 3(veth4f1c2aa) entered forwarding state",
        "audit: type=1400 audit(1767225600.101:88): apparmor=\"STATUS\" operation=\"profile_load\" profile=\"unconfined\" name=\"docker-default\"",
        "IPv6: ADDRCONF(NETDEV_CHANGE): veth4f1c2aa: link becomes ready",
        "systemd-journald[811]: Data hash table of /var/log/journal has a fill level at 75.0, suggesting rotation.",
        "TCP: request_sock_TCP: Possible SYN flooding on port 30001. Sending cookies.  Check SNMP counters.",
        "nfs: RPC call returned error 512",
        "mce: [Hardware Error]: Machine check events logged" if rng.random() < 0.1 else "IPVS: ftp: loaded support on port[0] = 21",
    ))  # fmt: skip
