"""A small training of two ranks over gloo, with loader workers, dropout and a library that draws random numbers: prints a digest of all that it computed,
without recording and then with it into each of some folders.

    python training.py RANK RENDEZVOUS FOLDER...
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

from rca import trace_inject as rt

STEPS = 12


class Rows(Dataset):
    """Rows with noise that the workers draw."""

    def __len__(self) -> int:
        return 16 * STEPS

    @rt.traced
    def __getitem__(self, number: int) -> Any:
        return torch.randn(32) + number % 7 + random.random()


@rt.traced(stage="train")
def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    """One step, with gradients averaged by hand so that `wrap_distributed` is in the way."""
    optimizer.zero_grad()
    loss = (model(batch) - batch.mean(1, keepdim=True)).square().mean() * (1 + random.random())
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    return float(loss)


def digest(rank: int, rendezvous: str, folder: str | None) -> str:
    """Train, and sum up weights, losses and the state of every random generator."""
    torch.manual_seed(5)
    random.seed(5)
    torch.set_num_threads(1)
    if folder is not None:
        rt.install(folder, role="train", rank=rank)
        rt.wrap_distributed()
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step, batch in enumerate(DataLoader(Rows(), batch_size=16, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(rank))):
        if folder is not None:
            rt.inject({})  # which makes numbers of its own
        with rt.step(step), rt.request():
            rt.inject({})
            rt.handoff("batch", batch)
            losses.append(train(model, optimizer, batch))
            rt.event("loss", value=losses[-1])
    dist.barrier()
    found = hashlib.sha256(repr(losses).encode() + repr(random.random()).encode() + repr(torch.rand(3).tolist()).encode())
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode() + bytes(value.reshape(-1).view(torch.uint8).tolist()))
    dist.destroy_process_group()
    return found.hexdigest()


def main(rank: int, rendezvous: str, *folders: str) -> None:
    """One training after the other."""
    for number, folder in enumerate((None, *folders)):
        print(digest(rank, f"{rendezvous}-{number}", folder))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
