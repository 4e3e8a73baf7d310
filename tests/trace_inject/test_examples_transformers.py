"""Hugging Face's Trainer with its callback: what a healthy run leaves, and what is found when one is broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from trained import Library, begun, died_inside, explained, records

import rca

pytestmark = pytest.mark.real
EXAMPLE = "transformers_trainer"
SAME = """
plain = main.build(OUT + "/plain", traced=False)
plain.train()
traced = main.build(OUT + "/traced")
traced.train()
assert digest(plain.model) == digest(traced.model)
assert [h["loss"] for h in plain.state.log_history if "loss" in h] == [h["loss"] for h in traced.state.log_history if "loss" in h]
"""
NAN = """
trainer = main.build(OUT, save=50, eval_strategy="no")
honest, calls = trainer.compute_loss, []
def compute_loss(*args, **kwargs):
    calls.append(1)
    return honest(*args, **kwargs) * (float("nan") if len(calls) >= 7 else 1)
trainer.compute_loss = compute_loss
trainer.train()
"""


def test_a_healthy_run(healthy: Path) -> None:
    """Steps, stages, checkpoints and numbers are there, every span has an end, and nothing is called a failure, with the console or without."""
    told = records(healthy / "trace")
    starts = begun(told)
    assert [r["s"] for r in starts if r["n"] == "step"] == list(range(1, 21))
    assert {r.get("st") for r in starts} >= {"train", "eval", "save"}
    assert [r["a"]["rca.path"] for r in told if r["e"] == "checkpoint"] == [str(healthy / "out" / f"checkpoint-{n}") for n in (10, 20)]
    assert [r["a"]["rca.step"] for r in told if r.get("n") == "metrics" and "loss" in r["a"]] == list(range(2, 21, 2))
    for given in (healthy / "trace", next((healthy / "trace").glob("*.rca.jsonl"))):
        found = rca.analyze(given)
        assert found.verdict == "healthy"
        assert {(e.kind, e.stage, e.step) for e in found.run.events} >= {("checkpoint.saved", "save", 10), ("checkpoint.saved", "save", 20)}
        assert [p["last_step"] for p in found.run.processes.values()] == [20]


def test_training_is_the_same(library: Library, tmp_path: Path) -> None:
    """Weights and losses are equal to the bit with the callback and without it."""
    assert library.run(SAME, tmp_path) == 0, (tmp_path / "stderr.log").read_text()


def test_killed_in_a_step(library: Library, tmp_path: Path) -> None:
    """Nobody can tell who killed it: the step that was open is named, and no cause."""
    status = library.run("main.build(OUT, steps=5000, save=5000).train()", tmp_path, kill=lambda r: r["e"] == "start" and r["n"] == "step" and r["s"] >= 12)
    assert status == -9
    inside = died_inside(tmp_path)
    assert (inside.stage, inside.attrs["op"]) == ("train", "step") and (inside.step or 0) >= 12
    assert any("still runs" in m["what"] for m in rca.analyze(tmp_path).document["coverage"]["missing"])


def test_one_of_two_ranks_killed(library: Library, tmp_path: Path) -> None:
    """Both ranks save what is theirs; the launcher tells which one was killed, its trace tells where; nobody knows by whom."""
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    command = [library.python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--log-dir", trace / "logs", "--redirects", "3", library.example / "main.py", out, "--steps", "5000"]
    with open(trace / "console.log", "w") as console:
        job = subprocess.Popen([str(c) for c in command], stdout=console, stderr=console, env=library.environment | {"RCA_TRACE_DIR": str(trace)})
        try:
            end = time.monotonic() + 120
            while time.monotonic() < end and job.poll() is None and not any(r["e"] == "start" and r.get("s", 0) > 12 for r in records(trace, "train-1-*")):
                time.sleep(0.05)
            os.kill(int(next(trace.glob("train-1-*")).name.split(".")[0].rpartition("-")[2]), signal.SIGKILL)
            assert job.wait(60) != 0
        finally:
            job.kill()
            job.wait()
    found, first = explained(trace)
    (inside,) = [e for e in found.run.events if e.kind == "trace.ends_inside" and e.rank == 1]
    assert found.verdict in ("failed", "inconclusive")
    assert (first.entity.get("rank"), first.event.stage) == (1, inside.stage) and inside.step in (None, first.event.step)
    assert first.cause in ("host.oom", "host.preempt", "unknown") and first.confidence < 0.8
    listed = {n: {f["file"] for f in json.loads((out / "checkpoint-10" / f"rca.manifest-{n}.json").read_text())["files"]} for n in (0, 1)}
    assert listed[1] == {"rng_state_1.pth"} and listed[0] >= {"model.safetensors", "optimizer.pt", "rng_state_0.pth"} and not listed[0] & listed[1]


def test_a_loss_that_is_no_number(library: Library, tmp_path: Path) -> None:
    """The Trainer prints averages in place of such a loss and ends as if nothing were wrong: the batch where it began is known all the same."""
    assert library.run(NAN, tmp_path) == 0
    found, first = explained(tmp_path)
    assert (found.verdict, first.cause, first.event.step, first.event.stage) == ("failed", "sw.nan", 7, "train")


def test_a_byte_flipped_in_a_checkpoint(library: Library, healthy: Path, tmp_path: Path) -> None:
    """It reads without an error, and the loss is no number from the first step on: the file is the cause."""
    checkpoint = healthy / "out" / "checkpoint-20"
    data = bytearray((checkpoint / "model.safetensors").read_bytes())
    data[-401:-399] = b"\xff\x7f"  # the exponent of one weight
    (checkpoint / "model.safetensors").write_bytes(data)
    assert library.run(f"main.build(OUT, steps=30, save=50, eval_strategy='no').train(resume_from_checkpoint={str(checkpoint)!r})", tmp_path) == 0
    found, first = explained(tmp_path)
    assert (found.verdict, first.cause, first.entity.get("path"), first.event.stage) == ("failed", "fs.corrupt", str(checkpoint), "recover")
    assert "model.safetensors was changed" in first.event.text and first.symptom is not None and first.symptom.kind == "numeric.non_finite"


def test_a_checkpoint_cut_short_before_it_is_read(library: Library, healthy: Path, tmp_path: Path) -> None:
    """The file is named with what it should have held."""
    checkpoint = healthy / "out" / "checkpoint-10"
    size = (checkpoint / "model.safetensors").stat().st_size
    os.truncate(checkpoint / "model.safetensors", size // 5)
    assert library.run(f"main.build(OUT).train(resume_from_checkpoint={str(checkpoint)!r})", tmp_path) == 1
    found, first = explained(tmp_path)
    assert (found.verdict, first.cause, first.entity.get("path"), first.event.stage) == ("failed", "fs.corrupt", str(checkpoint), "recover")
    assert f"model.safetensors has {size // 5} bytes, {size} were written" in first.event.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_disk_that_is_full_at_a_save(library: Library, tmp_path: Path) -> None:
    """The save that broke off is known by its stage and its folder."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], check=True)
    try:
        assert library.run("main.build(OUT).train()", tmp_path / "trace", out=disk / "out") == 1
    finally:
        subprocess.run(["umount", disk], check=True)
    found, first = explained(tmp_path / "trace")
    assert (found.verdict, first.cause, first.entity.get("path"), first.event.stage, first.event.step) == ("failed", "fs.full", str(disk / "out" / "checkpoint-10"), "save", 10)
