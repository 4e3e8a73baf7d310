"""The reward of a run of `rca train` as a picture: each step, the mean of five, chance and the bar.

    python bench/plot_reward.py runs/mine/metrics.jsonl -o docs/images/reward.svg

Standard library only; what is written is SVG.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 44, 52  # margins around the axes
WINDOW = 5  # steps of the mean: one step's own is of few prompts
CHANCE, BAR = 1 / 11, 0.8  # of the task: rca.replay_trainer.task.chance; issue 6
STYLE = (
    "text{font:13px sans-serif;fill:#333}.title{font-weight:600;font-size:15px}.axis{stroke:#333;stroke-width:1}.grid{stroke:#e4e4e4;stroke-width:1}"
    ".mark{stroke:#888;stroke-width:1;stroke-dasharray:5 4}.small{font-size:12px;fill:#666}.mean{fill:none;stroke:#1f5fa8;stroke-width:2.5}.step{fill:#1f5fa8;fill-opacity:.35}"
)


def means(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """The mean of each value and up to `window - 1` before it.

    >>> means([0.0, 1.0, 1.0], window=2)
    [0.0, 0.5, 1.0]
    """
    return [sum(part) / len(part) for part in (values[max(0, i + 1 - window) : i + 1] for i in range(len(values)))]


def svg(rows: Sequence[dict[str, Any]], title: str) -> str:
    """The picture of rows of `metrics.jsonl`. Raises ValueError when there are none."""
    if not rows:
        raise ValueError("no step in the metrics")
    steps, rewards = [row["step"] for row in rows], [row["reward"] for row in rows]
    last = max(steps[-1], 2)

    def x(step: float) -> float:
        return round(LEFT + (step - 1) / (last - 1) * (WIDTH - LEFT - RIGHT), 1)

    def y(reward: float) -> float:
        return round(HEIGHT - BOTTOM - reward * (HEIGHT - TOP - BOTTOM), 1)

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>']
    for tenth in range(0, 11, 2):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tenth / 10)}" y2="{y(tenth / 10)}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tenth / 10) + 4}" text-anchor="end">{tenth / 10:.1f}</text>')
    every = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, last) if last / size <= 12)
    for step in sorted({1, *range(every, last + 1, every)} if every > 1 else set(range(1, last + 1))):
        parts.append(f'<text x="{x(step)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(0)}" y2="{y(0)}"/><line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{y(0)}" y2="{y(1)}"/>')
    for value, name in ((CHANCE, "chance"), (BAR, "bar")):
        parts.append(f'<line class="mark" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value)}" y2="{y(value)}"/>')
        parts.append(f'<text class="small" x="{WIDTH - RIGHT}" y="{y(value) - 5}" text-anchor="end">{name} {value:.2f}</text>')
    parts += [f'<circle class="step" cx="{x(step)}" cy="{y(reward)}" r="2.6"/>' for step, reward in zip(steps, rewards, strict=True)]
    line = " ".join(f"{x(step)},{y(mean)}" for step, mean in zip(steps, means(rewards), strict=True))
    parts.append(f'<polyline class="mean" points="{line}"/>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">step (dots: each step; line: mean of {WINDOW})</text>')
    parts.append(f'<text x="18" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" transform="rotate(-90 18 {(TOP + HEIGHT - BOTTOM) / 2})">mean reward (share of right characters)</text>')
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'


def main() -> int:
    """Read, draw, write."""
    wanted = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wanted.add_argument("metrics", type=Path)
    wanted.add_argument("-o", "--output", type=Path, required=True)
    wanted.add_argument("--title", default="rca train: mean reward of a run with the default settings")
    given = wanted.parse_args()
    try:
        rows = [json.loads(line) for line in given.metrics.read_text("utf-8").splitlines()]
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(svg(rows, given.title), "utf-8")
    except (OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
