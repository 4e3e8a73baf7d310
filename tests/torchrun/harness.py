"""Run a real torchrun job, break it from outside, keep its logs, and leave nothing behind.

A `Lab` is one experiment: a folder for the logs, a scratch folder, and the jobs, mounts and cgroups it started. Where the
machine allows it a job runs in its own mount namespace, so that its logs show neutral paths (/srv/pretrain, /mnt/ckpt) and
a full or read-only file system harms nobody. What the machine does not allow is named by `lacking`, so that a fault that
could not be made is reported as skipped, never as passed.

Processes are ended by pid, and only those that carry this lab's mark in their environment.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
MARK = "PRETRAIN_SESSION"  # environment variable that tells our processes from everyone else's
JOB_LIMIT_S = 75.0  # a job takes 8 to 25 s on two busy cores; beyond this it hangs and the test should say so
SIGN_LIMIT_S = 50.0  # the longest wait for a sign of life of a starting job
POLL_S = 0.02
ENVIRONMENT = {"HOME": "/", "LANG": "C.UTF-8", "TZ": "UTC", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
FEATURES, CLASSES, EXAMPLES = 16, 4, 64  # of the data that trainer.py reads

TRIES = 3  # a race may spoil an experiment (the job ends before the signal arrives); the fault is then made again


class NotMade(Exception):
    """The fault did not happen as planned, so the logs prove nothing."""


@dataclass(frozen=True)
class Truth:
    """What really broke, and which answers an expert who sees only the logs may give."""

    verdicts: tuple[str, ...]  # the exact one first
    causes: tuple[str, ...] = ()  # the exact one first; empty where nothing failed
    rank: int | None = None
    stage: str | None = None  # where it broke

    def as_json(self) -> str:
        """The truth in the form that labelled cases have."""
        entity = {"rank": self.rank, "host": socket.gethostname() if self.causes else None}
        row = {
            "root_cause_class": self.causes[0] if self.causes else "sw.false_alarm",
            "accept": list(self.causes) or ["sw.false_alarm"],
            "faulty_entity": entity,
            "cause_stage": self.stage,
            "verdict_expected": self.verdicts[0],
            "verdict_accept": list(self.verdicts),
        }
        return json.dumps(row, indent=1) + "\n"


@dataclass(frozen=True)
class Fault:
    name: str
    what: str
    truth: Truth
    sign: str  # a regular expression that the logs must match, else the fault was not made
    play: Callable[[Lab], int]  # returns the exit code of the (last) launcher
    needs: tuple[str, ...] = ()
    kernel_lines: bool = False


# --- what this machine allows ---------------------------------------------------------------------------------------------


def _quiet(*command: str, **options: object) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, **options).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _mount_namespace() -> bool:
    return _quiet("unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt && nsenter --mount --target $$ true")


def _cgroup_v1_memory() -> bool:
    group = MEMORY_CGROUPS / f"pretrain-probe-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text("64M")
    except OSError:
        return False
    finally:
        if group.is_dir():
            group.rmdir()
    return True


def _kernel_log_readable() -> bool:
    return _quiet("dmesg")


def _dropped_capability() -> bool:
    return os.geteuid() == 0 and _quiet("setpriv", "--bounding-set=-dac_override", "true")


def _loop_ext4() -> bool:
    """A loop mount of ext4 that can be told to report an error."""
    with tempfile.TemporaryDirectory() as scratch:
        image = make_ext4(Path(scratch) / "probe.img")
        script = f"mount -o loop {image} /mnt && test -w {error_trigger(image)}; ok=$?; umount /mnt; exit $ok"
        return image is not None and _quiet("unshare", "--mount", "sh", "-c", script)


PROBES = {
    "mount namespace": _mount_namespace,
    "cgroup v1 memory": _cgroup_v1_memory,
    "kernel log": _kernel_log_readable,
    "dropped capability": _dropped_capability,
    "loop ext4": _loop_ext4,
}


@functools.cache
def allowed(mechanism: str) -> bool:
    return PROBES[mechanism]()


def lacking(needs: Sequence[str]) -> str | None:
    """The first mechanism this machine does not allow, or None."""
    return next((need for need in needs if not allowed(need)), None)


def make_ext4(image: Path, size_mb: int = 16) -> Path | None:
    with image.open("wb") as file:
        file.truncate(size_mb << 20)
    return image if _quiet("mkfs.ext4", "-q", str(image)) else None


def error_trigger(image: Path | None) -> str:
    """Shell text for the file that makes the kernel report an error on the ext4 in `image`."""
    return f"/sys/fs/ext4/$(losetup -n -O NAME -j {image} | sed s,/dev/,,)/trigger_fs_error"


def packages() -> Path:
    """The folder that torch is installed in."""
    return Path(importlib.util.find_spec("torch").origin).parents[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- one experiment -------------------------------------------------------------------------------------------------------


@dataclass
class Job:
    """A running torchrun: `agent` is its launcher."""

    agent: subprocess.Popen
    control: Path
    console: Path

    def read(self, name: str) -> int | None:
        try:
            return int((self.control / name).read_text())
        except (OSError, ValueError):
            return None

    def until(self, ready: Callable[[], object], what: str) -> object:
        """Wait for a sign of life. Raises NotMade if the job ends or the wait takes too long."""
        end = time.monotonic() + SIGN_LIMIT_S
        while not (found := ready()):
            if self.agent.poll() is not None or time.monotonic() > end:
                raise NotMade(f"the job never reached: {what}; exit {self.agent.poll()}")
            time.sleep(POLL_S)
        return found

    def at_step(self, step: int, rank: int = 0) -> None:
        self.until(lambda: (self.read(f"rank{rank}.step") or 0) >= step, f"step {step} of rank {rank}")

    def pid_of(self, rank: int) -> int:
        return self.until(lambda: self.read(f"rank{rank}.pid"), f"start of rank {rank}")

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pid_of(rank), number)

    def until_teardown(self) -> None:
        """Wait until the launcher stops the remaining workers."""
        self.until(lambda: "closing signal SIGTERM" in self.console.read_text(), "the launcher stopping its workers")

    def inside(self, command: str, rank: int | None = None) -> None:
        """Run a shell command in the mount namespace of the job, entered through its launcher or one of its ranks."""
        pid = self.agent.pid if rank is None else self.pid_of(rank)
        subprocess.run(["nsenter", "--mount", "--target", str(pid), "sh", "-c", command], check=True, timeout=20)

    def wait(self) -> int:
        """The launcher's exit code. Raises NotMade after JOB_LIMIT_S."""
        try:
            return self.agent.wait(timeout=JOB_LIMIT_S)
        except subprocess.TimeoutExpired as late:
            raise NotMade(f"the job still runs after {JOB_LIMIT_S:g} s") from late


@dataclass
class Lab:
    out: Path  # where the logs go: what the analyzer will be given
    scratch: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    cgroups: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.neutral = allowed("mount namespace")
        self.ckpt, self.data, self.plugins = (self.scratch / name for name in ("ckpt", "data", "plugins"))
        for folder in (self.out, self.ckpt, self.data, self.plugins):
            folder.mkdir(parents=True, exist_ok=True)
        write_data(self.data, ranks=4)

    def place(self, what: str) -> str:
        """The path of ckpt, data, plugins, logs or control as the job sees it."""
        if self.neutral:
            return {"ckpt": "/mnt/ckpt", "data": "/mnt/data", "plugins": "/opt/plugins"}.get(what, f"/srv/pretrain/{what}")
        return str({"logs": self.out}.get(what, self.scratch / what))

    def own_places(self) -> tuple[str, str, str, list[str]]:
        """Python, its packages, the trainer, and the shell lines that prepare them: as they lie on this machine."""
        return sys.executable, str(packages()), str(HERE / "trainer.py"), []

    def neutral_places(self) -> tuple[str, str, str, list[str]]:
        """The same below /opt, /srv and /mnt of a namespace of the job's own, so that the logs do not name this machine's folders."""
        root = self.scratch / "root"
        binds = {
            Path(sys.base_prefix): "opt/python",
            Path(sys.prefix): "opt/venv",
            self.plugins: "opt/plugins",
            self.out: "srv/pretrain/logs",
            self.scratch / "control": "srv/pretrain/control",
            self.ckpt: "mnt/ckpt",
            self.data: "mnt/data",
        }
        lines = []
        for source, target in binds.items():
            (root / target).mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(root / target))}")
        lines += [f"mount --rbind {shlex.quote(str(root / top))} /{top}" for top in ("mnt", "srv", "opt")]
        shutil.copy(HERE / "trainer.py", root / "srv/pretrain/trainer.py")
        python = f"/opt/python/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
        return python, f"/opt/venv/{packages().relative_to(sys.prefix)}", "/srv/pretrain/trainer.py", [*lines, "cd /srv/pretrain"]

    def start(
        self,
        *trainer: str,
        ranks: int = 2,
        launcher: Sequence[str] = ("--standalone", "--redirects=3"),
        logs: str = "torchrun",
        console: str = "console.log",
        rank_logs: str | None = None,
        env: dict[str, str] | None = None,
        setup: str = "",
        wrap: Sequence[str] = (),
    ) -> Job:
        """Start torchrun with `ranks` processes.

        `logs`, `console` and `rank_logs` are names below the log folder; `setup` is shell text run before torchrun, inside
        its namespace; `wrap` is put before torchrun's own command.
        """
        control = self.scratch / "control"
        shutil.rmtree(control, ignore_errors=True)
        control.mkdir()
        python, library, script, lines = self.neutral_places() if self.neutral else self.own_places()
        run = [python, "-m", "torch.distributed.run", *launcher, f"--nproc-per-node={ranks}", f"--log-dir={self.place('logs')}/{logs}", script]
        run += [f"--data-dir={self.place('data')}", f"--ckpt-dir={self.place('ckpt')}", f"--control-dir={self.place('control')}", *trainer]
        if rank_logs is not None:
            run.append(f"--log-dir={self.place('logs')}/{rank_logs}")
        shell = ["sh", "-c", "\n".join(["set -e", *lines, setup, "exec " + shlex.join([*wrap, *run])])]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": library, MARK: self.mark, **ENVIRONMENT, **(env or {})}
        (self.out / console).parent.mkdir(parents=True, exist_ok=True)
        with (self.out / console).open("wb") as stream:
            agent = subprocess.Popen(
                ["unshare", "--mount", *shell] if self.neutral else shell,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Job(agent, control, self.out / console)

    def memory_cgroup(self, limit_mb: int) -> str:
        """Make a memory cgroup; returns the shell text by which a job enters it."""
        group = MEMORY_CGROUPS / f"pretrain-{os.getpid()}-{len(self.cgroups)}-{self.mark[:4]}"
        group.mkdir()
        self.cgroups.append(group)
        (group / "memory.limit_in_bytes").write_text(f"{limit_mb}M")
        return f"echo $$ > {group}/cgroup.procs"

    def end_everything(self) -> None:
        """Kill what this lab started and still runs, then remove its cgroups."""
        for _ in range(100):
            mine = pids_marked(self.mark)
            for pid in mine:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not mine:
                break
            time.sleep(0.05)
        for group in self.cgroups:
            for _ in range(100):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


def pids_marked(mark: str) -> list[int]:
    """Live processes whose environment carries the mark (a zombie has no environment any more)."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def write_data(folder: Path, ranks: int) -> None:
    """One shard per rank; the label is the index of the largest of the first features, plus a little structure to learn."""
    for rank in range(ranks):
        lines = []
        for row in range(EXAMPLES):
            x = [((row * 37 + rank * 11 + column * 101) % 97) / 48.5 - 1.0 for column in range(FEATURES)]
            lines.append(json.dumps({"x": [round(value, 4) for value in x], "y": x.index(max(x[:CLASSES]))}))
        (folder / f"part-{rank:03d}.jsonl").write_text("\n".join(lines) + "\n")


def record(fault: Fault, out: Path) -> float:
    """Make the fault happen, leave its logs in `out`, clean up. Returns the seconds it took.

    Raises NotMade if the fault did not come about in TRIES attempts.
    """
    began = time.monotonic()
    with one_at_a_time(fault.kernel_lines):
        for left in reversed(range(TRIES)):
            shutil.rmtree(out, ignore_errors=True)
            scratch = Path(tempfile.mkdtemp(prefix="pretrain-"))
            lab = Lab(out, scratch)
            try:
                check(fault, fault.play(lab), out)
                break
            except (NotMade, OSError, subprocess.SubprocessError) as reason:
                print(f"{fault.name}: {reason}; {left} tries left", file=sys.stderr)
                if not left:
                    raise
            finally:
                lab.end_everything()
                shutil.rmtree(scratch, ignore_errors=True)
    return time.monotonic() - began


def check(fault: Fault, exit_code: int, out: Path) -> None:
    """Raise NotMade unless the logs show the fault, and the launcher ended as such a job does."""
    healthy = not fault.truth.causes
    if (exit_code == 0) != healthy:
        raise NotMade(f"exit code {exit_code}")
    if not any(re.search(fault.sign, path.read_text(errors="replace")) for path in out.rglob("*") if path.is_file()):
        raise NotMade(f"no line says `{fault.sign}`")


@contextmanager
def one_at_a_time(needed: bool) -> Iterator[None]:
    """Only one experiment at a time, across threads and processes, may cause or keep kernel lines; the lock is on this folder."""
    lock = os.open(HERE, os.O_RDONLY)
    try:
        if needed:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
