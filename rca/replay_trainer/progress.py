"""How far a run is, from its `metrics.jsonl`: a bar with the reward where there is a terminal, a line now and then where there is none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rca.replay_trainer.controller import METRICS

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 30
QUIET_S = 10.0  # between two lines where there is no terminal


class Metrics:
    """Reads what is new in a run's metrics; a line that is being written is read the next time."""

    def __init__(self, run: Path) -> None:
        self._path, self._offset = run / METRICS, 0
        self.rows: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """The rows that came since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = []
        for line in whole.splitlines():
            try:
                new.append(json.loads(line))
            except ValueError:
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


class Lines:
    """For logs and pipes: one line every few seconds."""

    def __init__(self, metrics: Metrics, steps: int, say: Callable[[str], Any]) -> None:
        self.metrics, self.steps, self.say = metrics, steps, say
        self._said = time.monotonic()

    def __call__(self) -> None:
        new = self.metrics.read()
        if new and (time.monotonic() - self._said >= QUIET_S or new[-1]["step"] >= self.steps):
            self._said = time.monotonic()
            self.say(f"step {new[-1]['step']}/{self.steps}  reward {new[-1]['reward']:.3f}  {new[-1]['seconds']:.2f} s a step")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        self()


class Bar:
    """For a terminal: a bar with the curve of the reward."""

    def __init__(self, metrics: Metrics, steps: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.metrics = metrics
        self._bar = Progress(
            TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=24), TextColumn("{task.fields[told]}"), TimeRemainingColumn(), console=Console(stderr=True)
        )
        self._task = self._bar.add_task("", total=steps, told="starting the workers ...")

    def __call__(self) -> None:
        new = self.metrics.read()
        if new:
            rewards = [row["reward"] for row in self.metrics.rows]
            self._bar.update(self._task, completed=new[-1]["step"], told=f"reward {new[-1]['reward']:.3f} {curve(rewards)}")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self()
        self._bar.stop()
