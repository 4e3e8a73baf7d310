"""A small network trained by Lightning with evidence left behind. Nothing is downloaded.

python main.py OUT [--steps 20] [--resume CHECKPOINT]
"""

from __future__ import annotations

import argparse

import torch
from lightning import pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint

from rca import trace_inject as rt
from rca.trace_inject.integrations.lightning import RcaCallback


class Sums(pl.LightningModule):
    """Learns to add eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], at: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[0].sum(1, keepdim=True))
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], at: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[0].sum(1, keepdim=True)))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def build(out: str, steps: int = 20, save: int = 10, traced: bool = True) -> pl.Trainer:
    """The trainer; everything of it is the user's own but the one callback."""
    pl.seed_everything(7, verbose=False)
    keep = ModelCheckpoint(dirpath=out, filename="{step}", every_n_train_steps=save, save_top_k=-1)
    return pl.Trainer(max_steps=steps, accelerator="cpu", logger=False, callbacks=[keep, *([RcaCallback()] if traced else [])], log_every_n_steps=2, val_check_interval=8, enable_progress_bar=False, enable_model_summary=False)


def data(rows: int = 256) -> torch.utils.data.DataLoader:
    """Rows of eight random numbers, always the same."""
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(rows, 8, generator=torch.Generator().manual_seed(3))), batch_size=8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--resume")
    asked = parser.parse_args()
    rt.install(role="train")
    build(asked.out, asked.steps).fit(Sums(), data(), data(64), ckpt_path=asked.resume)
    print("training finished")
