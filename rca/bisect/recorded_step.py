"""A recorded step of the reference trainer as a group test: the optimizer steps of all its train ranks, computed again and compared with what came of them.

The ranks' shards are as they were recorded, or the sums would be other ones. A group of more machines than ranks takes turns: in each turn as many of its machines as there
are ranks compute the whole step, and the group fails if any turn ends with other weights than the recorded ones.

Source: the split of the batch and the optimizer are `replay_trainer.learner`'s; replay of groups is ByteRobust's, arXiv:2509.16293.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay import parts
from rca.replay.recording import Recording, Request
from rca.replay_trainer.bit_flip import Flip
from rca.replay_trainer.config import Config
from rca.replay_trainer.learner import Learner

METHOD = "train_batch"


@dataclass
class Step:
    """What the ranks were given, the state before, and the digest of the weights after."""

    config: Config
    number: int
    shards: list[dict[str, Any]]  # of each rank: prompts [b, L], answers, logprobs, reference_logprobs [b, N], advantages [b]
    states: list[dict[str, Any]]
    digest: str

    @classmethod
    def read(cls, run: Path) -> Step:
        """The newest step that is whole in a recording. Raises RcaError that says what is missing."""
        recording = Recording.read(run)
        config_file = next((folder / "config.json" for folder in (run, recording.folder.parent, recording.folder) if (folder / "config.json").is_file()), None)
        if config_file is None:
            raise RcaError("the settings of the run are missing: `config.json`", where=str(run))
        config = Config.read(config_file)
        steps: dict[tuple[int, int], dict[int, Request]] = {}
        for request in recording.requests:
            if request.method == METHOD and request.outcome == "ok" and request.step is not None and request.rank is not None:
                steps.setdefault((request.attempt, request.step), {})[request.rank] = request
        whole = [key for key, ranks in sorted(steps.items()) if sorted(ranks) == list(range(config.train_ranks))]
        problem: RcaError | None = None
        for key in reversed(whole):
            try:
                return cls._of(recording, config, key[1], [steps[key][rank] for rank in range(config.train_ranks)])
            except RcaError as error:
                problem = problem or error
        raise problem or RcaError(f"no step of which all {config.train_ranks} train ranks were recorded to their end", where=str(recording.folder))

    @classmethod
    def _of(cls, recording: Recording, config: Config, number: int, requests: Sequence[Request]) -> Step:
        shards = [parts.value(recording, request.args, request.process) for request in requests]
        states = [parts.state(recording, request, request.state) for request in requests]
        results = [parts.value(recording, request.result, request.process) for request in requests if request.result is not None]
        digests = {str(result.get("digest")) for result in results}
        if len(digests) != 1:
            raise RcaError(f"the train ranks of step {number} ended with different weights", where=str(requests[0].source), hint="rca replay says which rank computed wrongly")
        return cls(config, number, shards, states, digests.pop())

    def play(self, wrong: Sequence[Flip | None] = ()) -> str:
        """The digest of the weights after the step; `wrong` has for each rank what its machine does to one matmul."""
        learners = []
        for rank, state in enumerate(self.states):
            learner = Learner(self.config, len(self.states), rank, lambda tensor: None)
            learner.load({**{f"weights.{name}": value for name, value in state["weights"].items()}, **state["optimizer"]})
            learners.append(learner)
        flips = [*wrong, *[None] * (len(learners) - len(wrong))]
        with contextlib.ExitStack() as stack:
            for learner, flip in zip(learners, flips, strict=True):
                stack.enter_context(flip.in_model(learner.model) if flip is not None else contextlib.nullcontext())
            for _ in range(self.config.updates):
                sums = [
                    learner._sums(shard["prompts"], shard["answers"], shard["logprobs"], shard["advantages"], shard.get("reference_logprobs"), None)
                    for learner, shard in zip(learners, self.shards, strict=True)
                ]
                total = sums[0]
                for part in sums[1:]:
                    total = total + part
                for learner in learners:
                    learner._apply(total.clone())
        return learners[0].digest()

    def test(self, flips: Sequence[Flip | None]) -> str | None:
        """Let machines, each with what it does wrongly, take turns as ranks; how the group fails, or None if it passes."""
        ranks = len(self.states)
        for first in range(0, len(flips), ranks):
            turn = list(flips[first : first + ranks])
            turn += list(flips[: ranks - len(turn)]) if len(flips) >= ranks else [turn[-1]] * (ranks - len(turn))
            try:
                found = self.play(turn)
            except ArithmeticError as error:
                return str(error)
            if found != self.digest:
                return f"step {self.number} ends with weights {found}, recorded are {self.digest}"
        return None
