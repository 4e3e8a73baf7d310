"""The train worker: one rank of an SPMD world under torchrun, gradients averaged with gloo. [B, T] samples by tokens, b of B on this rank."""

from __future__ import annotations

import datetime
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rca import trace_inject as rt
from rca.replay_trainer import checkpoints, sync, task
from rca.replay_trainer.config import Config
from rca.replay_trainer.device import Device
from rca.replay_trainer.learner import Learner
from rca.replay_trainer.serve import Service

log = logging.getLogger("train")
SHARE = 0.6  # of a device's memory for weights, gradients, moments and the workspace; two such users do not fit on one
#: Bytes of activations per token, layer and unit of width, without recomputation. Source: Korthikanti et al. 2022, arXiv:2205.05198, equation 2 (34 at two bytes a number).
ACTIVATION_BYTES = 68


#: In the environment of workers that have the devices of others, as in `rollout-0=1,rollout-1=0`: a replay on another machine.
SLOTS = "RCA_SLOTS"


def device_folder(config: Config, run: Path, role: str, rank: int) -> Path:
    """The device of a rank: its own, or with `colocated` the one that train rank i and rollout worker i share."""
    slots = dict(entry.split("=", 1) for entry in os.environ.get(SLOTS, "").split(",") if "=" in entry)
    rank = int(slots.get(f"{role}-{rank}", rank))
    shared = config.colocated and role in ("train", "rollout")
    return run / "devices" / (f"gpu-{rank}" if shared else f"{role}-{rank}")


def service(config: Config, run: Path, rank: int, address: str) -> Service:
    """The calls of a train worker."""
    engine = _Engine(config, run, rank, address)
    return Service(
        "train", rank,
        engine={"load": engine.load, "upload_weights": engine.upload_weights, "train_batch": engine.train_batch},
        beside={"event": engine.event, "save": engine.save},
        ended=engine.end, state=engine.state, version=engine.version, restore=engine.restore,
    )  # fmt: skip


class _Engine:
    def __init__(self, config: Config, run: Path, rank: int, address: str) -> None:
        self.config, self.run, self.rank = config, run, rank
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.device = Device(device_folder(config, run, "train", rank), config.device_bytes, f"train-{rank}", rank)
        self.resident = int(SHARE * config.device_bytes)
        if self.world > 1:
            rt.wrap_distributed()
            dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=config.collective_timeout_s))
        self.learner = Learner(config, self.world, rank, _sum if self.world > 1 else None)
        self.sender = sync.of(config).Sender(config, run, address) if rank == 0 else None
        self._saving = {kind: threading.Lock() for kind in checkpoints.KEPT}

    def load(self, values: dict[str, Any]) -> dict[str, Any]:
        """Take the device; load a checkpoint if one is named. Gives the step and the digest of the weights."""
        step = 0
        log.info("%s", self.device.describe())
        self.device.hold(self.resident)
        if path := values.get("path"):
            weights, optimizer, state = checkpoints.read(Path(path))
            self.learner.load({**{f"weights.{name}": value for name, value in weights.items()}, **optimizer})
            step = int(state["step"])
            log.info("loaded %s, step %d, digest %s", path, step, self.learner.digest())
        return {"step": step, "digest": self.learner.digest()}

    def upload_weights(self, values: dict[str, Any]) -> dict[str, Any]:
        """Rank 0 sends the weights of a version on their way."""
        self.device.check("upload_weights")
        if self.sender is not None:
            self.sender.upload(int(values["version"]), self.learner.weights())
            log.info("upload weights finished, type: %s, version: %d", self.config.weight_sync, values["version"])
        return {"digest": self.learner.digest()}

    def train_batch(self, values: dict[str, Any]) -> dict[str, Any]:
        """Optimizer steps on this rank's share. Raises ValueError for logprobs that do not fit together.

        After the sum over all ranks a wrong number is everybody's: `computed` says what this rank had added to it.
        """
        rt.handoff("train_batch", values["answers"], key=f"train_batch-{self.rank}-{values['step']}", received=True)
        answers = values["answers"]  # [b, N]
        reference = values.get("reference_logprobs")  # [b, N]
        if reference is not None and reference.shape != values["logprobs"].shape:
            raise ValueError(f"Tensor shape mismatch for KL computation: {list(values['logprobs'].shape)} and {list(reference.shape)}")
        task.known(values["prompts"], "prompts")
        task.known(answers, "answers")
        tokens = answers.numel() + values["prompts"].numel()
        self.device.hold(self.resident)
        self.device.check("train_batch")
        with self.device.work(tokens * self.config.width * self.config.layers * ACTIVATION_BYTES), self.device.computing(self.learner.model, "train_batch"):
            stats = self.learner.update(values["prompts"], answers, values["logprobs"], values["advantages"], reference)
        log.info("train_batch done, step: %d, loss: %.5f", values["step"], stats["loss"])
        return {"stats": stats, "digest": self.learner.digest(), "computed": self.learner.computed}

    def save(self, values: dict[str, Any]) -> dict[str, Any]:
        """Rank 0 writes a checkpoint, beside the engine: a file system that hangs must not stop the steps. What is written was copied while the controller waits."""
        if self.rank:
            return {}
        kind = str(values["kind"])
        lock = self._saving[kind]
        if not lock.acquire(blocking=False):  # one that waited its turn would be written with the weights of a later step
            raise RuntimeError(f"the {kind} checkpoint before this one is still being written")
        try:
            state = self.learner.state()
            weights = self.learner.weights()
            about = {"digest": self.learner.digest()}
            optimizer = {name: value for name, value in state.items() if not name.startswith("weights.")}
            return {"path": str(checkpoints.write(self.config, self.run, kind, int(values["step"]), weights, optimizer, about))}
        finally:
            lock.release()

    def event(self, values: dict[str, Any]) -> dict[str, Any]:
        """`rollout_start`: give the device to the rollout worker beside us."""
        if values["name"] == "rollout_start" and self.config.colocated:
            self.device.release()
            log.info("device released for rollout, step %d", values["step"])
        rt.ack_event(values["number"])
        return {}

    def state(self) -> dict[str, Any]:
        """What a call finds, for the recording."""
        groups = {"weights": self.learner.live, "optimizer": self.learner.optimizer}
        order = reversed(groups) if self.rank % 2 else groups  # all ranks have the same: what one has stored by then, the other only links
        return {name: groups[name] for name in order} | self.device.state()

    def version(self) -> dict[str, Any]:
        """The same while weights and optimizer are the same."""
        return dict.fromkeys(("weights", "optimizer"), self.learner.version())

    def restore(self, groups: Mapping[str, Any]) -> None:
        """Have the weights, the optimizer and the device's memory of another process. Raises ValueError for those of another model."""
        if "weights" in groups:
            self.learner.load({**{f"weights.{name}": value for name, value in groups["weights"].items()}, **groups["optimizer"]})
        self.device.restore(int(groups.get("held", 0)), bool(groups.get("standing", False)))

    def end(self) -> None:
        if self.sender is not None:
            self.sender.close()
        self.device.release()


def _sum(tensor: torch.Tensor) -> None:
    """The sum over all ranks, in place."""
    dist.all_reduce(tensor)
