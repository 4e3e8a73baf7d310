"""Does the trainer's task learn? One process does what all roles do together, prints the mean reward of each step and writes a table.

    python bench/learn.py [--csv FILE] [--until REWARD] [NAME=VALUE of rca.replay_trainer.config ...]

One thread, no calls between processes: the floor of what `rca train` with the same settings takes.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch

from rca.replay_trainer import grpo, model, sampling, task
from rca.replay_trainer.config import Config
from rca.replay_trainer.learner import Learner

#: Mean reward of this many steps: one step's own is of few prompts.
WINDOW = 5


def learn(config: Config, until: float | None = None) -> Iterator[dict[str, float]]:
    """Run the steps; yields a row for each: step, mean reward, seconds since the start and what the learner logs. Ends when the mean of WINDOW steps is at least `until`."""
    learner, reference = Learner(config), model.build(config)
    began, recent = time.perf_counter(), []
    for step in range(1, config.steps + 1):
        prompts = task.prompts(config, step).repeat_interleave(config.group, 0)  # [B, L]
        answers, logprobs = sampling.generate(learner.model, prompts, task.answer_length(config), config.temperature, task.generator(config, "rollout", step, 0))  # [B, N]
        rewards = task.rewards(prompts, answers)  # [B]
        known = None
        if config.uses_reference:
            with torch.no_grad():
                known = sampling.score(reference, prompts, answers, config.temperature).cpu()  # [B, N]
        stats = learner.update(prompts, answers, logprobs, grpo.advantages(rewards, config.group), known)
        recent = [*recent, float(rewards.mean())][-WINDOW:]
        yield {"step": step, "reward": recent[-1], "seconds": time.perf_counter() - began, **stats}
        if until is not None and len(recent) == WINDOW and sum(recent) / WINDOW >= until:
            return


def main() -> None:
    """Run, print, write."""
    wanted = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wanted.add_argument("settings", nargs="*")
    wanted.add_argument("--csv", metavar="FILE")
    wanted.add_argument("--until", type=float, metavar="REWARD", help=f"stop when the mean reward of {WINDOW} steps is at least this")
    given = wanted.parse_args()
    torch.set_num_threads(1)
    config = Config.of(dict(setting.split("=", 1) for setting in given.settings))
    print(f"chance {task.chance(config):.3f}")
    with open(given.csv or os.devnull, "w", newline="", buffering=1) as file:
        table = csv.writer(file)
        for row in learn(config, given.until):
            if row["step"] == 1:
                table.writerow(row)
            table.writerow(row.values())
            print(" ".join([f"step {row['step']:4d}", *(f"{name} {value:.4g}" for name, value in row.items() if name != "step")]), flush=True)


if __name__ == "__main__":
    main()
