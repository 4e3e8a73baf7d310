"""The reference worker: log-probabilities of the samples under the policy that the run began with. [b, N] samples of this rank by answer tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rca import trace_inject as rt
from rca.replay_trainer.config import Config
from rca.replay_trainer.device import Device
from rca.replay_trainer.holds import hold
from rca.replay_trainer.learner import Learner
from rca.replay_trainer.serve import Service
from rca.replay_trainer.task import answer_length, known, prompt_length
from rca.replay_trainer.train import device_folder

log = logging.getLogger("reference")
ROWS = 16  # of one part of the answer


def service(config: Config, run: Path, rank: int, address: str) -> Service:
    """The calls of a reference worker."""
    device = Device(device_folder(config, run, "reference", rank), config.device_bytes, f"reference-{rank}", rank)
    learner = Learner(config)
    rows = config.rows // config.reference_ranks

    def load(values: dict[str, Any]) -> dict[str, Any]:
        device.take(sum(weight.numel() * weight.element_size() for weight in learner.weights().values()))
        return {"digest": learner.digest()}

    def compute_logprobs(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The answer is sent in parts of `ROWS` samples. Raises ValueError for a share of another size than this rank was built for."""
        prompts, answers = values["prompts"], values["answers"]  # [b, L], [b, N]
        wanted = ([rows, prompt_length(config)], [rows, answer_length(config)])
        if (list(prompts.shape), list(answers.shape)) != wanted:
            raise ValueError(f"Invalid tensor shape: expected {wanted[0]} and {wanted[1]}, got {list(prompts.shape)} and {list(answers.shape)}")
        known(prompts, "prompts")
        known(answers, "answers")
        device.check("compute_logprobs")
        with device.computing(learner.model, "compute_logprobs"):
            logprobs = learner.logprobs(prompts, answers)  # [b, N]
        rt.handoff("reference_logprobs", logprobs, key=f"reference_logprobs-{rank}-{values['step']}", to="controller", rows=len(logprobs))
        log.info("compute_logprobs done, step: %d, %d rows", values["step"], len(logprobs))
        return parts(logprobs, int(values["step"]))

    def parts(logprobs: Tensor, step: int) -> Iterator[dict[str, Any]]:
        split = logprobs.split(ROWS)
        for number, part in enumerate(split):
            if number == len(split) // 2:
                hold(config, run, f"reference_half_sent@{step}")
            yield {"reference_logprobs": part}

    def restore(groups: Mapping[str, Any]) -> None:
        if "weights" in groups:
            learner.model.load_state_dict(groups["weights"])
        device.restore(int(groups.get("held", 0)), bool(groups.get("standing", False)))

    return Service("reference", rank, engine={"load": load, "compute_logprobs": compute_logprobs}, ended=device.release, state=lambda: {"weights": learner.live, **device.state()}, version=lambda: {"weights": learner.version()}, restore=restore)
