"""The sampler's look at the job's threads: what is stuck in the kernel and what only waits for a disk, and a real file system that is frozen."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rca
from rca.trace_inject.identity import UNSAFE
from rca.trace_inject.sampler import Sampler, _place, processes
from tests.venvs import environment

PID = 4321


class Job:
    """SYNTHETIC: one process of a job as the kernel would show it; `threads` are (state, times run)."""

    def __init__(self, folder: Path) -> None:
        self.root, self.trace = folder / "root", folder / "trace"
        self.trace.mkdir()
        (self.trace / f"train-0-{UNSAFE.sub('_', socket.gethostname())[:80]}-{PID}.rca.jsonl").write_text("")
        self.place = _place.Place(str(self.root), str(self.trace))

    def look(self, threads: dict[int, tuple[str, int]], wchan: str = "percpu_rwsem_wait", counted: bool = True) -> dict[tuple[str, str], float]:
        here = self.root / f"proc/{PID}"
        shutil.rmtree(here, ignore_errors=True)
        (here / "task").mkdir(parents=True)
        (here / "statm").write_text("100 50 10 1 0 20 0\n")
        for thread, (state, runs) in threads.items():
            own = here / f"task/{thread}"
            own.mkdir()
            (own / "stat").write_text(f"{thread} (pt ) S (x) {state} 1 1 1 0 -1\n")
            (own / "wchan").write_text(wchan)
            (own / "status").write_text(f"Name:\tx\nvoluntary_ctxt_switches:\t{runs}\nnonvoluntary_ctxt_switches:\t0\n")
            if counted:
                (own / "schedstat").write_text(f"{runs * 900} 77 {runs}\n")
        return {k: v for k, v in processes.read(self.place).items() if k[1].startswith("proc.")}


def count(n: int) -> dict[tuple[str, str], float]:
    return {(f"pid={PID}", "proc.stuck_threads"): n}


@pytest.mark.parametrize("counted", [True, False], ids=["schedstat", "switches"])
def test_stuck_at_two_samples(tmp_path: Path, counted: bool) -> None:
    """From the second sample on, and where in the kernel, whatever the threads are called."""
    job = Job(tmp_path)
    assert job.look({PID: ("S", 9), 4400: ("D", 5)}, counted=counted) == count(0)
    for _ in range(3):
        assert job.look({PID: ("S", 10), 4400: ("D", 5)}, counted=counted) == count(1) | {(f"pid={PID},wchan=percpu_rwsem_wait", "proc.stuck_in"): 1}
    assert job.look({PID: ("D", 11), 4400: ("D", 5)}, wchan="0", counted=counted) == count(1)
    assert job.look({PID: ("S", 12), 4400: ("S", 6)}, counted=counted) == count(0)


def test_a_thread_that_reads_all_the_time_is_not_stuck(tmp_path: Path) -> None:
    """It is found in state D at every sample, and runs in between."""
    job = Job(tmp_path)
    assert [job.look({PID: ("D", runs)}) for runs in range(1, 6)] == [count(0)] * 5


def test_many_threads_cost_no_more(tmp_path: Path) -> None:
    """The first and the newest are looked at."""
    job = Job(tmp_path)
    threads = {PID + n: ("D", 1) for n in range(400)}
    job.look(threads)
    assert job.look(threads)[f"pid={PID}", "proc.stuck_threads"] == processes.THREADS
    job.look({**{PID + n: ("S", 1) for n in range(400)}, PID + 399: ("D", 1)})
    assert job.look({**{PID + n: ("S", 1) for n in range(400)}, PID + 399: ("D", 1)})[f"pid={PID}", "proc.stuck_threads"] == 1


def test_a_process_that_ends_meanwhile(tmp_path: Path) -> None:
    """Nothing is said of it, and nothing raised."""
    job = Job(tmp_path)
    job.look({PID: ("D", 1)})
    shutil.rmtree(job.root / f"proc/{PID}/task")
    assert {k: v for k, v in processes.read(job.place).items() if k[1] == "proc.stuck_threads"} == count(0)
    (job.root / f"proc/{PID}/statm").write_text("0 0 0 0 0 0 0\n")
    assert processes.read(job.place) == {}


def test_what_is_stuck_is_told_at_each_sample(tmp_path: Path) -> None:
    """How long it lasts must be known of a process that ends in it."""
    job = Job(tmp_path)
    sampler = Sampler(str(job.root), str(job.trace))
    from rca.trace_inject import recorder

    recorder.start(str(tmp_path / "out"), {"role": "sampler"})
    try:
        for threads in [{PID: ("S", 1)}, *[{PID: ("D", 2)}] * 5]:
            job.look(threads)
            sampler.sample()
    finally:
        recorder.stop()
        recorder._asked = True
    rows = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    told = [r["a"][f"pid={PID}"]["proc.stuck_threads"] for r in rows if r.get("e") == "sample" and "proc.stuck_threads" in r["a"].get(f"pid={PID}", {})]
    assert told == [0, 0, 1, 1, 1, 1]


WRITER = """
import os, sys
from rca import trace_inject as rt
rt.install(sys.argv[1], role="train", rank=0)
for step, path in ((1, sys.argv[2] + "/free"), (2, sys.argv[3] + "/frozen")):
    with rt.step(step), rt.stage("periodic_recover_save"), rt.saving(path):
        os.mkdir(path)
        open(path + "/model.pt", "wb").write(b"x" * 100000)
    print("saved", flush=True)
"""


@contextlib.contextmanager
def frozen(folder: Path) -> Any:
    """An ext4 that nothing can be written to."""
    image, mount = folder / "image", folder / "ckpt"
    mount.mkdir()
    try:
        with open(image, "wb") as file:
            file.truncate(32 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        subprocess.run(["fsfreeze", "-f", mount], check=True, capture_output=True)
        yield mount
    finally:
        subprocess.run(["fsfreeze", "-u", mount], check=False, capture_output=True)
        time.sleep(0.5)
        subprocess.run(["umount", mount], check=True, capture_output=True)


@pytest.mark.real
def test_a_real_file_system_that_is_frozen(tmp_path: Path) -> None:
    """A writer inside `saving` in it, `rca sample` beside: the event has the process, the path and the function of the kernel, and the save is open."""
    trace = tmp_path / "trace"
    with frozen(tmp_path) as mount:
        beside = subprocess.Popen([sys.executable, "-m", "rca", "sample", "--interval", "0.5", "-o", str(trace)], env=environment(), stderr=subprocess.PIPE, text=True)
        assert beside.stderr is not None and "sampling" in beside.stderr.readline()
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(trace), str(tmp_path), str(mount)], env=environment(), stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None and writer.stdout.readline() == "saved\n"
        time.sleep(6)
        writer.send_signal(signal.SIGKILL)  # it cannot die of that before the file system is thawed
        beside.send_signal(signal.SIGTERM)
        assert beside.wait(20) == 0 and writer.poll() is None
    assert writer.wait(20) == -signal.SIGKILL
    events = rca.analyze(trace).run.events
    (stuck,) = [e for e in events if e.kind == "process.uninterruptible"]
    assert (stuck.pid, stuck.rank, stuck.role, stuck.path, stuck.stage, stuck.step) == (writer.pid, 0, "train", f"{mount}/frozen", "periodic_recover_save", 2)
    assert stuck.attrs["wchan"] and stuck.attrs["seconds"] >= 3 and not stuck.attrs["recovered"]
    assert [(e.kind, e.path) for e in events if e.kind.startswith("checkpoint.")] == [("checkpoint.saved", f"{tmp_path}/free"), ("checkpoint.save_open", f"{mount}/frozen")]
