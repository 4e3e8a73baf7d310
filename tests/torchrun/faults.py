"""The faults, one function each: how to make it happen for real, and what an expert may conclude from the logs.

Every function gets a `Lab`, starts one or two jobs in it, breaks them, and waits for the end. `@fault` states the truth and
the mechanisms without which the fault cannot be made here.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable

from torchrun import kernel_log
from torchrun.harness import Fault, Lab, Truth, error_trigger, free_port, make_ext4

FAULTS: dict[str, Fault] = {}
FAILED, HEALTHY, UNSURE = "failed", "healthy", "inconclusive"
# How the workers' output is kept. Default of `Lab.start`: one file per stream and rank, nothing on the console.
TEED = ("--standalone", "--tee=3")  # files and console, with a prefix per rank
CONSOLE = ("--standalone",)  # console only, ranks interleaved, no prefix
MIXED = ("--standalone", "--redirects=0:3")  # rank 0 in files, the others on the console
QUIET = {"PYTHONWARNINGS": "ignore"}
DROPPED = "-dac_override,-dac_read_search,-fowner"
UNPRIVILEGED = ("setpriv", f"--bounding-set={DROPPED}", f"--inh-caps={DROPPED}")  # root that may not write where only others may
FRESH_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # else a restart finds the gloo addresses of the dead attempt and fails


def fault(
    *causes: str,
    sign: str,
    verdicts: tuple[str, ...] = (FAILED,),
    rank: int | None = None,
    stage: str | None = None,
    needs: tuple[str, ...] = (),
    kernel_lines: bool = False,
) -> Callable[[Callable[[Lab], int]], Callable[[Lab], int]]:
    """Register a fault.

    `causes` are all classes an expert would accept, the exact one first (none: nothing failed); `sign` is what the logs must
    say for the fault to have happened; `rank` and `stage` are where it broke, if the logs can tell.
    """

    def register(play: Callable[[Lab], int]) -> Callable[[Lab], int]:
        FAULTS[play.__name__] = Fault(play.__name__, play.__doc__.strip(), Truth(verdicts, causes, rank, stage), sign, play, needs, kernel_lines)
        return play

    return register


# --- one rank breaks ------------------------------------------------------------------------------------------------------


@fault("sw.rank_exception", rank=1, sign=r"label \d+ is out of vocabulary", stage="train")
def exception_on_one_rank(lab: Lab) -> int:
    """Rank 1 meets a label outside the vocabulary and raises; the others wait in the gradient all-reduce."""
    return lab.start("--fault=exception", ranks=3).wait()


@fault("host.oom", "host.preempt", "coord.actor_died", "unknown", verdicts=(FAILED, UNSURE), rank=1, sign="exitcode  : -9")
def killed_from_outside(lab: Lab) -> int:
    """Somebody sends SIGKILL to rank 1; no log says who or why."""
    job = lab.start("--log-style=loguru", launcher=TEED)
    job.at_step(10)
    job.signal(1, signal.SIGKILL)
    return job.wait()


@fault("sw.rank_skew", "sw.deadlock", "host.cpu", "unknown", verdicts=(FAILED, UNSURE), rank=1, sign="Timed out waiting 5000ms")
def stopped_until_peers_time_out(lab: Lab) -> int:
    """Rank 1 is stopped (SIGSTOP) and says nothing; the others run into the time-out of the process group."""
    job = lab.start("--log-style=bracket", "--timeout-s=5", ranks=3, rank_logs="workers")
    job.at_step(9, rank=1)
    job.signal(1, signal.SIGSTOP)
    job.until_teardown()
    job.signal(1, signal.SIGCONT)  # it wakes up to its SIGTERM; torchrun would otherwise wait for 30 s and kill it
    return job.wait()


@fault("sw.rank_skew", "host.cpu", rank=1, sign="Timed out waiting 4000ms", stage="train")
def one_rank_rebuilds_its_index(lab: Lab) -> int:
    """Rank 1 says that it rebuilds an index and takes far longer than the others are willing to wait."""
    return lab.start("--log-style=loguru", "--fault=slow", "--timeout-s=4", rank_logs=".").wait()


@fault("sw.segfault", rank=1, kernel_lines=True, sign="Fatal Python error: Segmentation fault", stage="train")
def segfault_with_stack(lab: Lab) -> int:
    """Rank 1 writes through a null pointer in native code; faulthandler prints the stack."""
    return lab.start("--log-style=bracket", "--fault=segfault", "--faulthandler").wait()


@fault("sw.segfault", rank=0, kernel_lines=True, sign="SIGSEGV")
def segfault_without_stack(lab: Lab) -> int:
    """Rank 0 writes through a null pointer and says nothing; only the exit code tells."""
    return lab.start("--no-ddp", "--fault=segfault", "--fault-rank=0", ranks=3, launcher=CONSOLE).wait()


@fault("sw.nan", rank=1, sign="is not finite", stage="train")
def nan_stops_the_run(lab: Lab) -> int:
    """A batch of rank 1 overflows; its loss is NaN, the mean over ranks with it, and all ranks stop on purpose."""
    return lab.start("--log-style=asctime", "--fault=nan", "--stop-on-nan", rank_logs="workers", launcher=CONSOLE).wait()


@fault(
    "host.oom",
    rank=1,
    needs=("mount namespace", "cgroup v1 memory", "kernel log"),
    kernel_lines=True,
    sign="Memory cgroup out of memory: Killed process",
    stage="train",
)
def out_of_memory_in_cgroup(lab: Lab) -> int:
    """Rank 1 keeps every batch in memory until the kernel kills it at the limit of the cgroup."""
    with kernel_log.kept(lab.out / "dmesg.txt", "--ctime"):
        return lab.start("--no-ddp", "--log-style=bracket", "--fault=leak", "--fault-step=6", "--steps=60", setup=lab.memory_cgroup(limit_mb=1800)).wait()


# --- storage --------------------------------------------------------------------------------------------------------------


@fault("fs.full", rank=0, needs=("mount namespace",), sign="No space left on device", stage="save")
def disk_full_at_save(lab: Lab) -> int:
    """The file system of the checkpoints is full at the third save; the other rank only sees a closed connection."""
    return lab.start(
        "--log-style=asctime", "--width=128", "--save-every=6", env=QUIET, rank_logs="workers", setup="mount -t tmpfs -o size=640k tmpfs /mnt/ckpt"
    ).wait()


@fault("fs.corrupt", "host.crash", "host.preempt", sign="failed finding central directory")
def truncated_checkpoint_at_resume(lab: Lab) -> int:
    """The whole job is killed in the middle of a save; the next run reads half a file."""
    job = lab.start("--no-ddp", "--width=256", "--save-mb-per-s=0.5", logs="1/torchrun", console="1/console.log")
    job.until(lambda: any(path.stat().st_size > 100_000 for path in lab.ckpt.glob("*8.ckpt")), "half a checkpoint")
    for pid in (job.agent.pid, job.pid_of(0), job.pid_of(1)):
        os.kill(pid, signal.SIGKILL)
    job.wait()
    return lab.start("--no-ddp", "--width=256", logs="2/torchrun", console="2/console.log").wait()


@fault("fs.readonly", rank=0, needs=("mount namespace",), sign="Read-only file system", stage="save")
def checkpoint_mount_turns_readonly(lab: Lab) -> int:
    """The mount of the checkpoints is made read-only while the job trains."""
    job = lab.start("--no-ddp", "--log-style=json", rank_logs="workers", setup="mount -t tmpfs tmpfs /mnt/ckpt")
    job.at_step(10)
    job.inside("mount -o remount,ro /mnt/ckpt")
    return job.wait()


@fault(
    "fs.readonly",
    "fs.corrupt",
    needs=("mount namespace", "loop ext4", "kernel log"),
    kernel_lines=True,
    sign="EXT4-fs .*: Remounting filesystem read-only",
)
def ext4_error_remounts_readonly(lab: Lab) -> int:
    """ext4 finds an error and remounts itself read-only: the kernel log says so, the trainer says so at the next save."""
    image = make_ext4(lab.scratch / "ckpt.img")
    with kernel_log.kept(lab.out / "kernel.log", "--time-format=iso"):
        job = lab.start("--no-ddp", "--log-style=loguru", launcher=TEED, setup=f"mount -o loop,errors=remount-ro {image} /mnt/ckpt; rmdir /mnt/ckpt/lost+found")
        job.at_step(10)
        job.inside(f"echo 1 > {error_trigger(image)}")
        return job.wait()


@fault("fs.permission", rank=0, needs=("mount namespace", "dropped capability"), sign="Permission denied", stage="save")
def checkpoint_folder_of_someone_else(lab: Lab) -> int:
    """The checkpoint folder belongs to another user, and this one may not write there."""
    os.chown(lab.ckpt, 65534, 65534)
    return lab.start("--no-ddp", "--log-style=loguru", launcher=MIXED, wrap=UNPRIVILEGED).wait()


@fault(
    "fs.hang",
    "sw.rank_skew",
    verdicts=(FAILED, UNSURE),
    rank=0,
    needs=("mount namespace", "loop ext4"),
    sign="Timed out waiting 4000ms",
    stage="save",
)
def checkpoint_file_system_hangs(lab: Lab) -> int:
    """The file system of the checkpoints is frozen; rank 0 hangs in its save without a word, the others time out in the barrier."""
    image = make_ext4(lab.scratch / "ckpt.img")
    job = lab.start("--no-ddp", "--timeout-s=4", rank_logs="workers", launcher=TEED, setup=f"mount -o loop {image} /mnt/ckpt")
    job.at_step(10)
    try:
        job.inside("fsfreeze --freeze /mnt/ckpt")
        job.until_teardown()
    finally:
        job.inside("fsfreeze --unfreeze /mnt/ckpt", rank=0)
    return job.wait()


@fault("sw.ckpt_format", "sw.config", sign="size mismatch for", stage="load")
def checkpoint_of_another_width(lab: Lab) -> int:
    """The run resumes with a wider model than the one that wrote the checkpoint."""
    lab.start("--no-ddp", "--log-style=loguru", "--steps=8", logs="first/torchrun", console="first/console.log").wait()
    return lab.start("--no-ddp", "--log-style=loguru", "--width=96", logs="second/torchrun", console="second/console.log").wait()


# --- collectives ----------------------------------------------------------------------------------------------------------


@fault("sw.collective_mismatch", sign="Detected mismatch between collectives")
def collective_mismatch_with_detail(lab: Lab) -> int:
    """Rank 1 calls one more all-reduce than the others; TORCH_DISTRIBUTED_DEBUG=DETAIL notices at once."""
    return lab.start("--fault=extra_collective", "--no-ddp", ranks=2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}).wait()


@fault("sw.collective_mismatch", "sw.shape", sign="op.preamble.length")
def collective_mismatch(lab: Lab) -> int:
    """Rank 1 calls one more all-reduce than the others; gloo meets a message of the wrong size."""
    return lab.start("--log-style=bracket", "--fault=extra_collective", "--no-ddp", ranks=2).wait()


# --- data loader ----------------------------------------------------------------------------------------------------------


@fault("sw.dataloader", "host.oom", rank=1, sign="killed by signal|exited unexpectedly", stage="train")
def loader_worker_killed(lab: Lab) -> int:
    """One data loader worker of rank 1 gets SIGKILL."""
    job = lab.start("--log-style=loguru", "--workers=1", rank_logs="workers")
    job.at_step(10, rank=1)
    parent = job.pid_of(1)
    os.kill(job.until(lambda: job.read(f"loader0.of.{parent}"), "a loader worker"), signal.SIGKILL)
    return job.wait()


@fault("sw.dataloader", "sw.rank_exception", "fs.corrupt", rank=1, sign="Caught JSONDecodeError in DataLoader worker", stage="train")
def loader_worker_raises(lab: Lab) -> int:
    """A line of rank 1's data is cut off; the parser raises in a data loader worker."""
    part = lab.data / "part-001.jsonl"
    lines = part.read_text().splitlines()
    lines[45] = lines[45][:60]
    part.write_text("\n".join(lines) + "\n")
    return lab.start("--no-ddp", "--log-style=print", "--workers=1").wait()


@fault("host.shm", "fs.full", "sw.dataloader", needs=("mount namespace",), sign="shared memory")
def shared_memory_too_small(lab: Lab) -> int:
    """/dev/shm holds less than the batches that the loader workers hand over."""
    return lab.start("--no-ddp", "--history=8000", "--workers=1", launcher=TEED, setup="mount -t tmpfs -o size=6m tmpfs /dev/shm").wait()


# --- start-up -------------------------------------------------------------------------------------------------------------


@fault("net.rendezvous", "sw.config", sign="EADDRINUSE", stage="init")
def port_in_use(lab: Lab) -> int:
    """Another process listens on the master port."""
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        return lab.start(launcher=["--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={other.getsockname()[1]}", "--redirects=3"]).wait()


@fault("sw.config", sign="unrecognized arguments", stage="init")
def unknown_argument(lab: Lab) -> int:
    """The trainer does not know one of its arguments."""
    return lab.start("--grad-clip-value=1.0", launcher=["--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}", "--tee=3"]).wait()


@fault("sw.dependency", "sw.rank_exception", rank=1, sign="ModuleNotFoundError", stage="init")
def package_missing_for_one_rank(lab: Lab) -> int:
    """The node-local package folder of rank 1 is empty; its import fails."""
    for rank in range(2):
        (lab.plugins / f"slot{rank}").mkdir()
    (lab.plugins / "slot0/tokenstats.py").write_text('VERSION = "0.4.1"\n')
    return lab.start("--log-style=bracket", f"--plugins={lab.place('plugins')}/slot{{local_rank}}", "--timeout-s=5").wait()


# --- nothing broke, or not for long -----------------------------------------------------------------------------------------


@fault(verdicts=(HEALTHY,), sign="training finished after 25 steps")
def healthy(lab: Lab) -> int:
    """Nothing happens."""
    return lab.start(rank_logs="workers").wait()


@fault(verdicts=(HEALTHY,), sign=r"Timeout \(0:00:01\)")
def healthy_with_stack_dumps(lab: Lab) -> int:
    """A healthy run dumps its stacks on a schedule: `Timeout (0:00:01)!` is not a failure."""
    return lab.start("--log-style=loguru", "--dump-stacks-every-s=1", "--workers=1", "--step-s=0.12").wait()


@fault(verdicts=(HEALTHY,), sign="HTTP 503")
def healthy_with_frightening_lines(lab: Lab) -> int:
    """A healthy run with retries that succeed, counters that are zero and warnings without consequence."""
    return lab.start("--no-ddp", "--chatty", rank_logs="workers", ranks=3, launcher=TEED).wait()


@fault(verdicts=(HEALTHY,), sign="resumed at step 8")
def restart_recovers(lab: Lab) -> int:
    """Rank 1 dies once; the agent restarts the group, which resumes and finishes."""
    job = lab.start("--no-ddp", "--log-style=bracket", launcher=["--standalone", "--redirects=3", "--max-restarts=1"], env=FRESH_STORE)
    job.at_step(10)
    job.signal(1, signal.SIGKILL)
    return job.wait()


@fault("host.preempt", sign="got signal: 15", stage="train")
def agent_gets_sigterm(lab: Lab) -> int:
    """The scheduler sends SIGTERM to the launcher, which stops its workers."""
    job = lab.start(launcher=TEED)
    job.at_step(10)
    time.sleep(0.05)
    os.kill(job.agent.pid, signal.SIGTERM)
    return job.wait()
