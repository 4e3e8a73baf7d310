"""Lightning with its callback: what a healthy run leaves, and what is found when one is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trained import Library, begun, died_inside, explained, records

import rca

pytestmark = pytest.mark.real
EXAMPLE = "lightning"
SAME = """
def train(traced, package="lightning"):
    trainer, model = main.build(f"{OUT}/{traced}", traced=traced), main.Sums()
    trainer.fit(model, main.data(), main.data(64))
    return digest(model)
assert train(False) == train(True)
"""
RAISES = """
class Shaky(main.Sums):
    def validation_step(self, batch, at):
        if self.trainer.global_step >= 8:
            raise ValueError("no such label: 17")
main.build(OUT).fit(Shaky(), main.data(), main.data(64))
"""
OTHER = """
import pytorch_lightning as pl, torch
from rca.trace_inject.integrations.lightning import RcaCallback
class Sums(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
    def training_step(self, batch, at):
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
pl.Trainer(max_steps=4, accelerator="cpu", logger=False, callbacks=[RcaCallback()], default_root_dir=OUT, enable_progress_bar=False, enable_model_summary=False).fit(Sums(), main.data())
"""


def test_a_healthy_run(healthy: Path) -> None:
    """Steps, stages and checkpoints are there, every span has an end, and nothing is called a failure."""
    told = records(healthy / "trace")
    starts = begun(told)
    assert [r["s"] for r in starts if r["n"] == "step"] == list(range(1, 21))
    assert {r.get("st") for r in starts} >= {"train", "eval", "save"}
    found = rca.analyze(healthy / "trace")
    assert found.verdict == "healthy"
    assert {(e.kind, e.stage, e.step) for e in found.run.events} >= {("checkpoint.saved", "save", 10), ("checkpoint.saved", "save", 20)}
    assert [p["last_step"] for p in found.run.processes.values()] == [20]


def test_training_is_the_same(library: Library, tmp_path: Path) -> None:
    """Weights are equal to the bit with the callback and without it."""
    assert library.run(SAME, tmp_path) == 0, (tmp_path / "stderr.log").read_text()


def test_the_older_package(library: Library, tmp_path: Path) -> None:
    """The callback is one of `pytorch_lightning`, too, where a program has both."""
    assert library.run(OTHER, tmp_path) == 0, (tmp_path / "stderr.log").read_text()
    assert [r["s"] for r in records(tmp_path) if r["e"] == "start" and r["n"] == "step"] == [1, 2, 3, 4]


def test_killed_in_a_step(library: Library, tmp_path: Path) -> None:
    """The step that was open is named, and no cause."""
    code = "import time\nclass Slow(main.Sums):\n    def training_step(self, batch, at):\n        time.sleep(0.2 if at == 11 else 0)\n        return super().training_step(batch, at)\nmain.build(OUT, steps=5000, save=5000).fit(Slow(), main.data())"
    assert library.run(code, tmp_path, kill=lambda r: r["e"] == "start" and r["n"] == "step" and r["s"] == 12) == -9
    inside = died_inside(tmp_path)
    assert (inside.stage, inside.step, inside.attrs["op"]) == ("train", 12, "step")


def test_a_validation_step_that_raises(library: Library, tmp_path: Path) -> None:
    """The exception is known with its stage."""
    assert library.run(RAISES, tmp_path) == 1
    found, first = explained(tmp_path)
    assert (found.verdict, first.cause, first.event.stage) == ("failed", "sw.rank_exception", "eval")
    assert "no such label: 17" in first.event.text


def test_a_checkpoint_cut_short_before_it_is_read(library: Library, healthy: Path, tmp_path: Path) -> None:
    """The file is named with what it should have held."""
    checkpoint = healthy / "out" / "step=10.ckpt"
    size = checkpoint.stat().st_size
    os.truncate(checkpoint, size // 3)
    assert library.run(f"main.build(OUT).fit(main.Sums(), main.data(), main.data(64), ckpt_path={str(checkpoint)!r})", tmp_path) == 1
    found, first = explained(tmp_path)
    assert (found.verdict, first.cause, first.entity.get("path"), first.event.stage) == ("failed", "fs.corrupt", str(checkpoint), "recover")
    assert f"has {size // 3} bytes, {size} were written" in first.event.text
