"""Data-parallel training of a tiny model, with the evidence that explains its next failure.

torchrun --nproc-per-node 2 examples/ddp/main.py --steps 6 --folder out
"""

import argparse
import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rca import trace_inject as rt

log = logging.getLogger("trainer")


def load(path, model, optimizer):
    """The step after the one that was saved."""
    rt.checkpoint_loaded(path)  # says whether the file is as it was written; reading it is still up to us
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"] + 1


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
    rt.checkpoint_saved(path)
    log.info("saved %s", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--folder", default="out")
    parser.add_argument("--timeout", type=float, default=60, help="of a collective, in seconds")
    parser.add_argument("--step-s", type=float, default=0.1, help="how long a step takes at least")
    args = parser.parse_args()

    rt.install()  # records to RCA_TRACE_DIR; rank and run come from torchrun
    logging.basicConfig(level=logging.INFO)
    rt.stamp_logs()  # every line says rank, stage and step
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    rt.wrap_distributed()  # every collective: group, number, operation
    rank, path = dist.get_rank(), os.path.join(args.folder, "checkpoint.pt")
    os.makedirs(args.folder, exist_ok=True)

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    with rt.stage("recover"):
        first = load(path, model, optimizer) if os.path.exists(path) else 0

    for step in range(first, first + args.steps):
        with rt.step(step):
            with rt.stage("train"):
                time.sleep(args.step_s)
                batch = torch.ones(8, 16) / 4
                loss = (model(batch) - batch.mean(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                shown = loss.detach().clone()
                dist.all_reduce(shown)
                log.info("step %d loss %.4f", step, shown.item() / dist.get_world_size())
            if rank == 0 and (step + 1) % args.save_every == 0:
                with rt.stage("save"):
                    save(path, model, optimizer, step)
    dist.barrier()
    dist.destroy_process_group()
    log.info("finished")


if __name__ == "__main__":
    main()
