"""How far a run is, from its `metrics.jsonl`: a bar with the reward where there is a terminal, a line now and then where there is none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rca.replay_trainer.config import METRICS, Config
from rca.replay_trainer.serve import address_file

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 30
QUIET_S = 10.0  # between two lines where there is no terminal


class Metrics:
    """Reads what is new in a run's metrics; a line that is being written is read the next time."""

    def __init__(self, run: Path) -> None:
        self._path, self._offset, self._file = run / METRICS, 0, -1
        self.rows: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """The rows that came since the last call. A recovery puts another file in the place of the one that it goes on with: that is read from its beginning."""
        try:
            with self._path.open("rb") as file:
                known = os.fstat(file.fileno()).st_ino
                if known != self._file:
                    self._file, self._offset, self.rows = known, 0, []
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = []
        for line in whole.splitlines():
            try:
                row = json.loads(line)
                new.append(row | {"step": int(row["step"]), "reward": float(row["reward"]), "seconds": float(row["seconds"])})
            except (ValueError, KeyError, TypeError):
                continue
        self.rows += new
        return new


def curve(values: list[float], width: int = CURVE_WIDTH) -> str:
    """Rewards between 0 and 1 as a row of blocks, the newest at the right.

    >>> curve([0.0, 0.5, 1.0])
    '▁▅█'
    """
    size = -(-len(values) // width) or 1
    means = [sum(part) / len(part) for part in (values[i : i + size] for i in range(0, len(values), size))]
    return "".join(BLOCKS[min(int(value * len(BLOCKS)), len(BLOCKS) - 1)] for value in means)


def starting(config: Config, run: Path) -> str:
    """Who is not up yet, in words; empty where everybody is."""
    roles = {"train": config.train_ranks, "reference": config.reference_ranks if config.uses_reference else 0, "rollout": config.rollout_ranks, "meta_server": int(config.weight_sync == "astate")}
    names = [f"{role}/{rank}" for role, ranks in roles.items() for rank in range(ranks) if not address_file(run, role, rank).exists()]
    return f"waiting for {', '.join(names)}" if names else ""


class Lines:
    """For logs and pipes: a line every few seconds, from the first."""

    def __init__(self, metrics: Metrics, steps: int, say: Callable[[str], Any], starting: Callable[[], str] = str) -> None:
        self.metrics, self.steps, self.say, self.starting = metrics, steps, say, starting
        self._said, self._began = time.monotonic(), time.monotonic()
        self._told: int | None = None  # the step of the last line
        self._before = metrics.rows[-1]["step"] if metrics.rows else 0  # of an earlier attempt

    def __call__(self) -> None:
        self.metrics.read()
        last = self.metrics.rows[-1] if self.metrics.rows else {"step": 0}
        step, quiet = last["step"], time.monotonic() - self._said >= QUIET_S
        new = step > 0 and step != (self._before if self._told is None else self._told)
        if new and (quiet or self._told is None or step >= self.steps):
            self._said, self._told = time.monotonic(), step
            self.say(f"step {step}/{self.steps}  reward {last['reward']:.3f}  {last['seconds']:.2f} s a step")
        elif quiet:
            self._said = time.monotonic()
            self.say(f"{self.starting() or 'no new step'}, {self._said - self._began:.0f} s since the start")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        self()


class Bar:
    """For a terminal: a bar with the curve of the reward."""

    def __init__(self, metrics: Metrics, steps: int, starting: Callable[[], str] = str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.metrics, self.starting = metrics, starting
        self._bar = Progress(
            TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=24), TextColumn("{task.fields[told]}"), TimeRemainingColumn(), console=Console(stderr=True)
        )
        self._task = self._bar.add_task("", total=steps, told="starting the workers ...")

    def __call__(self) -> None:
        new = self.metrics.read()
        if new:
            rewards = [row["reward"] for row in self.metrics.rows]
            self._bar.update(self._task, completed=new[-1]["step"], told=f"reward {new[-1]['reward']:.3f} {curve(rewards)}")
        elif not self.metrics.rows:
            self._bar.update(self._task, told=self.starting() or "first step")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self()
        self._bar.stop()
