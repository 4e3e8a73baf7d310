"""One process of the system: `python -m rca.replay_trainer.worker ROLE --folder FOLDER --address ADDRESS [--rank N]`; ranks of torchrun come from its variables."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from importlib import import_module
from pathlib import Path

from rca.replay_trainer.tied import tie

ROLES = ("train", "reference", "rollout", "meta_server", "controller")
log = logging.getLogger("worker")


def main() -> int:
    """Run one role until it is told to stop; the controller until its steps are done."""
    parser = argparse.ArgumentParser(prog="rca.replay_trainer.worker")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--rank", type=int, default=int(os.environ.get("RANK", "0")))
    given = parser.parse_args()
    tie()

    from rca.replay_trainer import recorded
    from rca.replay_trainer.config import NAME, Config
    from rca.replay_trainer.serve import prepare, serve

    config = Config.read(given.folder / NAME)
    prepare(given.role, given.rank, os.environ.get("RCA_TRACE_DIR") or str(given.folder / "logs" / "trace"))
    log.info("%s %d starts on host %s, attempt %s, pid %d", given.role, given.rank, socket.gethostname(), os.environ.get("RCA_TRAIN_ATTEMPT", "1"), os.getpid())
    if given.role != "meta_server":  # which needs no torch
        import torch

        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
    recorded.begin(config, given.folder, given.role)
    module = import_module(f"rca.replay_trainer.{given.role}")
    if given.role == "controller":
        return int(module.main(config, given.folder))
    service = module.service(config, given.folder, given.rank, given.address)
    if given.role != "meta_server":
        from rca.replay_trainer.again import offered

        service.engine = {**service.engine, **offered(service)}
    serve(service, given.folder, given.address)
    return 0


if __name__ == "__main__":
    sys.exit(main())
