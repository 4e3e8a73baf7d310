"""The torchrun example with real processes: run, one rank broken for real, a checkpoint cut short, and explained from what is left."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import venvs
from trace_inject.jobs import Job

pytestmark = pytest.mark.real
MAIN = venvs.ROOT / "examples" / "ddp" / "main.py"
#: The example, in which one rank meets something of its own in the middle of a step.
RAISES = """
import os, runpy, sys, torch
forward, calls = torch.nn.Linear.forward, []
def broken(self, batch):
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 3:
        raise KeyError("label 17")
    return forward(self, batch)
torch.nn.Linear.forward = broken
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(folder: Path, *arguments: Any, script: Path = MAIN) -> Job:
    """Two ranks of the example under torchrun."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return Job([*torchrun, script, *([MAIN] if script != MAIN else []), "--folder", folder / "out", *arguments], folder, OMP_NUM_THREADS="1")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A run that nothing was done to."""
    with run(tmp_path_factory.mktemp("healthy"), "--steps", 4, "--step-s", 0.02) as job:
        assert job.ended() == 0, job.said()
    return job


def test_healthy(healthy: Job) -> None:
    """Steps, stages and collectives of both ranks in one trace, checkpoints with a manifest, stamped lines; nothing is found."""
    job = healthy
    assert job.faults() == []
    heads = {head["rank"] for head, _ in job.records()}
    assert heads == {0, 1} and len({r["tr"] for _, r in job.records("start")}) == 1
    seqs = {head["rank"]: [] for head, _ in job.records()}
    for head, record in job.records("start", "all_reduce"):
        seqs[head["rank"]].append((record["s"], record["st"], record["a"]["rca.collective.seq"]))
    assert seqs[0] == seqs[1] == [(step, "train", step) for step in range(4)]
    assert [r["a"]["rca.complete"] for _, r in job.records("checkpoint", "checkpoint_saved")] == [True]
    assert "[role=train rank=1 stage=train step=3]" in job.said()
    assert job.verdict().verdict == "healthy", job.verdict()


def test_a_rank_killed(tmp_path: Path) -> None:
    """One rank is gone without a word: it is named, and no cause is made up of the other's error."""
    with run(tmp_path, "--steps", 100, "--step-s", 0.3) as job:
        pid, _ = job.wait_for("train", 1, "start", "train", step=2)
        os.kill(pid, signal.SIGKILL)
        assert job.ended() != 0
    found = job.verdict()
    assert found.verdict in ("failed", "inconclusive") and found.cause in ("host.oom", "host.preempt", "coord.actor_died") and found.entity["rank"] == 1, found


def test_a_rank_raises(tmp_path: Path) -> None:
    """The other rank waits in its all-reduce; the one that raised is the cause."""
    script = tmp_path / "broken.py"
    script.write_text(RAISES)
    with run(tmp_path, "--steps", 100, "--step-s", 0.05, "--timeout", 10, script=script) as job:
        assert job.ended() != 0
    found = job.verdict()
    assert (found.verdict, found.cause, found.entity.get("rank")) == ("failed", "sw.rank_exception", 1), found


def test_a_rank_stopped_in_a_step(tmp_path: Path) -> None:
    """It neither ends nor goes on: the other one's collective times out, and who was missing is known by its last record."""
    with run(tmp_path, "--steps", 100, "--step-s", 0.3, "--timeout", 3) as job:
        pid, _ = job.wait_for("train", 1, "start", "train", step=2)
        os.kill(pid, signal.SIGSTOP)
        job.wait_for_text("Sending process")  # torchrun gives a process that is stopped half a minute to end
    found = job.verdict()
    assert found.cause in ("sw.rank_skew", "sw.deadlock", "host.cpu") and found.entity["rank"] == 1, found


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_checkpoint(healthy: Job, tmp_path: Path, damage: str) -> None:
    """Truncated between save and load: the manifest tells it before PyTorch fails over it. One byte changed: PyTorch reads it without complaint."""
    shutil.copytree(healthy.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "job.log").rename(tmp_path / "first.log")
    path = tmp_path / "out" / "checkpoint.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data if damage == "changed" else data[:-100])
    with run(tmp_path, "--steps", 2, "--step-s", 0.02) as job:
        assert (job.ended() == 0) == (damage == "changed"), job.said()
    found = job.verdict()
    assert (found.verdict, found.cause) == ("failed", "fs.corrupt"), found
    assert str(found.entity["path"]).endswith("checkpoint.pt"), found
