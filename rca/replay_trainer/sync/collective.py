"""`collective`: train rank 0 broadcasts the weights to the rollout workers in a gloo group of their own, over the data network.

The group is made with the first update: rank 0 is the train rank, rank 1 + i is rollout worker i. A member that does not answer leaves all others waiting until
`weights_timeout_s`, as with NCCL. A group that failed is not used again.
"""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rca import trace_inject as rt
from rca.replay_trainer.config import DATA_ADDRESS, Config

log = logging.getLogger("weights")
STORE = "addresses/weights-store.json"
GROUP = "weights"


class _Member:
    def __init__(self, config: Config, run: Path, number: int, address: str | None = None) -> None:
        self.config, self.run, self.number, self.address = config, run, number, address
        self._group: Any = None
        self._store: Any = None

    def _ready(self) -> Any:
        if self._group is None:
            patience = timedelta(seconds=self.config.weights_timeout_s)
            size = 1 + self.config.rollout_ranks
            self._store = self._open_store(size, patience)
            mine = self.address or os.environ.get(DATA_ADDRESS, "127.0.0.1")
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=mine)]
            options._timeout = patience
            self._group = dist.ProcessGroupGloo(dist.PrefixStore(GROUP, self._store), self.number, size, options)
            log.info("joined group `%s` as its member %d, %d in all, over %s", GROUP, self.number, size, mine)
        return self._group

    def _open_store(self, size: int, patience: timedelta) -> Any:
        file = self.run / STORE
        if self.number == 0:
            mine = self.address or os.environ.get(DATA_ADDRESS, "127.0.0.1")
            store = dist.TCPStore(mine, 0, None, is_master=True, timeout=patience, wait_for_workers=False)
            aside = file.with_suffix(".new")
            aside.write_text(json.dumps({"host": mine, "port": store.port, "pid": os.getpid()}))
            aside.replace(file)
            return store
        end = time.monotonic() + patience.total_seconds()
        while True:
            try:
                where = json.loads(file.read_text("utf-8"))
                os.kill(where["pid"], 0)  # of an earlier attempt otherwise
                return dist.TCPStore(where["host"], where["port"], None, is_master=False, timeout=patience)
            except (OSError, ValueError, KeyError) as error:
                if time.monotonic() > end:
                    raise RuntimeError(f"Failed to update weights: no store of group `{GROUP}`: {error}") from error
                time.sleep(0.05)

    def _broadcast(self, version: int, weights: dict[str, Tensor]) -> None:
        """One buffer from rank 0 to all, in the order of the names."""
        flat = torch.cat([weights[name].detach().cpu().float().reshape(-1) for name in sorted(weights)])  # [all parameters]
        head = torch.tensor([version, len(flat)], dtype=torch.int64)
        with rt.collective(GROUP, "broadcast"):
            group = self._ready()
            for tensor in (head, flat):
                options = dist.BroadcastOptions()
                options.rootRank, options.rootTensor = 0, 0
                group.broadcast([tensor], options).wait()
        if head.tolist() != [version, len(flat)]:
            raise RuntimeError(f"Failed to update weights: got version {head[0]} with {head[1]} numbers, expected {version} with {len(flat)}")
        start = 0
        for name in sorted(weights):
            size = weights[name].numel()
            weights[name] = flat[start : start + size].reshape(weights[name].shape).to(weights[name].dtype)
            start += size

    def close(self) -> None:
        self._group = self._store = None


class Sender(_Member):
    def __init__(self, config: Config, run: Path, address: str) -> None:
        super().__init__(config, run, 0)

    def upload(self, version: int, weights: dict[str, Tensor]) -> None:
        """Broadcast the weights of a version. Raises RuntimeError when a member does not take part in time."""
        try:
            self._broadcast(version, dict(weights))
        except Exception as error:
            self.close()
            raise RuntimeError(f"Failed to upload weights: gloo broadcast: {error}") from error


class Receiver(_Member):
    def __init__(self, config: Config, run: Path, rank: int) -> None:
        super().__init__(config, run, 1 + rank)

    def receive(self, version: int, like: dict[str, Tensor]) -> dict[str, Tensor]:
        """Take the weights of a version from the broadcast. Raises RuntimeError."""
        weights = {name: value.clone() for name, value in like.items()}
        try:
            self._broadcast(version, weights)
        except Exception as error:
            self.close()
            raise RuntimeError(f"Failed to update weights: gloo timeout or error: {error}") from error
        return weights
