"""The rollout worker: samples answers with its own copy of the weights and says how good they are. [p, L] prompts, G samples each, b = p * G."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rca import trace_inject as rt
from rca.replay_trainer import sync, task
from rca.replay_trainer.config import Config
from rca.replay_trainer.device import Device
from rca.replay_trainer.learner import Learner
from rca.replay_trainer.sampling import generate as sample
from rca.replay_trainer.serve import Service
from rca.replay_trainer.train import device_folder

log = logging.getLogger("rollout")
SHARE = 0.6  # of a device's memory for weights and KV cache, taken at once as serving engines do


def service(config: Config, run: Path, rank: int, address: str) -> Service:
    """The calls of a rollout worker."""
    engine = _Engine(config, run, rank)
    return Service(
        "rollout", rank,
        engine={"load": engine.load, "update_weights": engine.update_weights, "generate": engine.generate},
        beside={"event": engine.event}, ended=engine.end,
        state=engine.state, version=lambda: {"weights": engine.learner.version()}, restore=engine.restore,
    )  # fmt: skip


class _Engine:
    def __init__(self, config: Config, run: Path, rank: int) -> None:
        self.config, self.rank = config, rank
        self.device = Device(device_folder(config, run, "rollout", rank), config.device_bytes, f"rollout-{rank}", rank)
        self.learner = Learner(config)
        self.receiver = sync.of(config).Receiver(config, run, rank)

    def load(self, values: dict[str, Any]) -> dict[str, Any]:
        """Ready. A colocated worker waits for its device."""
        log.info("%s", self.device.describe())
        if not self.config.colocated:
            self.device.hold(int(SHARE * self.config.device_bytes))
        return {}

    def update_weights(self, values: dict[str, Any]) -> dict[str, Any]:
        """Take over the weights of a version; gives their digest."""
        self.learner.model.load_state_dict(self.receiver.receive(int(values["version"]), self.learner.weights()))
        digest = self.learner.digest()
        log.info("weights updated, version: %d, digest %s", values["version"], digest)
        return {"digest": digest}

    def generate(self, values: dict[str, Any]) -> dict[str, Any]:
        """G samples of each prompt with their log-probabilities and rewards. The samples depend on seed, step and rank alone."""
        task.known(values["prompts"], "prompts")
        self.device.hold(int(SHARE * self.config.device_bytes))
        self.device.check("generate")
        config, step = self.config, int(values["step"])
        prompts = values["prompts"].repeat_interleave(config.group, 0)  # [b, L]
        generator = task.generator(config, "rollout", step, self.rank)
        with self.device.computing(self.learner.model, "generate"):
            answers, logprobs = sample(self.learner.model, prompts, task.answer_length(config), config.temperature, generator)  # [b, N], [b, N]
        rewards = task.rewards(prompts, answers)  # [b]
        rt.handoff("rollout_batch", answers, key=f"rollout_batch-{self.rank}-{step}", to="controller", rows=len(answers))
        log.info("generate done, step: %d, %d samples, mean reward %.3f", step, len(answers), rewards.mean())
        return {"answers": answers, "logprobs": logprobs, "rewards": rewards}

    def event(self, values: dict[str, Any]) -> dict[str, Any]:
        """`train_start`: give the device back to the train worker beside us."""
        if values["name"] == "train_start" and self.config.colocated:
            self.device.release()
            log.info("device released for train, step %d", values["step"])
        rt.ack_event(values["number"])
        return {}

    def state(self) -> dict[str, Any]:
        """What a call finds, for the recording."""
        return {"weights": self.learner.live, **self.device.state()}

    def restore(self, groups: Mapping[str, Any]) -> None:
        """Have the weights and the device's memory of another process."""
        if "weights" in groups:
            self.learner.model.load_state_dict(groups["weights"])
        self.device.restore(int(groups.get("held", 0)), bool(groups.get("standing", False)))

    def end(self) -> None:
        self.receiver.close()
        self.device.release()
