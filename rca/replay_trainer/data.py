"""Prompts that were prepared beforehand: `data/step-000003.json` in the folder of a run holds those of one step, a list of lists of tokens. A step without a file draws its own."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from rca.replay_trainer import task
from rca.replay_trainer.config import Config

FOLDER = "data"


def file_of(run: Path, step: int) -> Path:
    return run / FOLDER / f"step-{step:06d}.json"


def prompts(config: Config, run: Path, step: int) -> Tensor:
    """The prompts of a step, [P, L]. Tokens are taken as they stand, as data loaders do. Raises ValueError for a file that holds no such table, and OSError for one that cannot be read."""
    try:
        rows = json.loads(file_of(run, step).read_text("utf-8"))
    except FileNotFoundError:
        return task.prompts(config, step)
    return torch.tensor(rows, dtype=torch.long)  # [P, L]
