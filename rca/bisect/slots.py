"""One group test as a process of its own: machines are slots on this one, and what they compute is real.

Reads a `Task` as JSON from standard input and writes {"failed": bool, "text": str} to standard output. A slot that is named bad has one bit of one matmul's output
flipped while it computes, and everything after it is computed from that. The computation is the miniature, whose numbers are known, split over the group as a
data-parallel step; or the recorded step of a run.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rca.errors import RcaError

if TYPE_CHECKING:
    from rca.replay_trainer.bit_flip import Flip

PATIENCE_S = 600.0  # of one group; a step takes a second, the start of torch some
BIT = 22  # of a float32: the highest of the mantissa, a wrong number that stays in range
MINIATURE = 1  # its place in `miniature.SIZES`: 256 rows to split


@dataclass(frozen=True)
class Task:
    """Which slots compute, which of them are bad and how often that shows; `test` numbers the test, so that chance is the same in each run."""

    members: Sequence[int]
    bad: Sequence[int]
    shows: float
    test: int
    run: str | None = None

    def showing(self) -> list[int]:
        """The bad members that compute wrongly this time."""
        return [m for m in self.members if m in self.bad and random.Random(f"{self.test}/{m}").random() < self.shows]


def ask(task: Task) -> tuple[bool, str]:
    """Run the test in a fresh process; gives whether it failed, and how. Raises RcaError where it could not be run."""
    try:
        done = subprocess.run([sys.executable, "-m", "rca.bisect.slots"], input=json.dumps(asdict(task)), capture_output=True, text=True, timeout=PATIENCE_S)
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise RcaError(f"a group test did not end within {PATIENCE_S:.0f} s") from error
    except (OSError, ValueError) as error:
        last = done.stderr.strip().splitlines()[-1:] if "done" in locals() else [str(error)]
        raise RcaError(f"a group test ended without a result: {(last or ['no message'])[0][:200]}") from error
    if "error" in found:
        raise RcaError(found["error"], found["where"], found["hint"])
    return bool(found["failed"]), str(found["text"])


def compute(task: Task) -> str | None:
    """The test itself; how the group fails, or None. Raises RcaError."""
    import torch

    torch.set_num_threads(1)
    showing = task.showing()
    if task.run is not None:
        return _recorded(task, showing)
    from rca.bisect import miniature
    from rca.replay_trainer.bit_flip import flip_bit

    size = miniature.SIZES[MINIATURE]

    def wrong(number: int, name: str, tensor: torch.Tensor) -> None:
        if (number, name) == (1, "y"):
            flip_bit(tensor, -1, BIT)

    problems = []
    for first in range(0, len(task.members), size.width):
        shards = [wrong if member in showing else None for member in task.members[first : first + size.width]]
        if found := miniature.train(size, "float32", shards=shards):
            problems.append(found.text())
    return "; ".join(problems) or None


def _recorded(task: Task, showing: Sequence[int]) -> str | None:
    from rca.bisect.recorded_step import Step
    from rca.replay_trainer.bit_flip import Flip

    step = Step.read(Path(str(task.run)))
    if not task.members:  # the machine as it is
        return step.test([None] * len(step.states))
    flips: list[Flip | None] = [Flip(bit=BIT) if member in showing else None for member in task.members]
    return step.test(flips)


def main() -> int:
    """One task from standard input."""
    values = json.loads(sys.stdin.read())
    try:
        text = compute(Task(**values))
        print(json.dumps({"failed": text is not None, "text": text or "as known"}))
    except RcaError as error:
        print(json.dumps({"error": error.message, "where": error.where, "hint": error.hint}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
