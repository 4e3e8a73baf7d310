"""What to say, and what to collect next, when the evidence does not reach."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from rca.model import Hypothesis, Missing, Run

NOTHING = Missing("the end of every rank's log and the launcher's console", "torchrun --log-dir logs --redirects 3 --tee 3; the scheduler's output files")


@lru_cache
def speakers() -> tuple[dict[str, Any], ...]:
    """The entries of `undecided.toml`."""
    return tuple(tomllib.loads((Path(__file__).parent / "undecided.toml").read_text("utf-8"))["speaker"])


def undecided(run: Run, shown: tuple[Hypothesis, ...]) -> tuple[str, tuple[Missing, ...]]:
    """A sentence or two, and what would decide it."""
    if not run.readings:
        return "There are no files to read.", ()
    if run.outcome == "unknown":
        return "Nothing in these files says that the run failed, and nothing says that it finished.", (NOTHING,)
    if run.outcome == "cut":
        return "Every log ends in the middle at the same moment and no line says why; collect the host's and the scheduler's record of that time.", ()
    kinds = {e.kind for e in run.events if not e.attrs.get("lived_on")}
    speaker = next((s for s in speakers() if not kinds.isdisjoint(s["kind"])), None)
    said = speaker["says"] if speaker else "No line here tells what broke first."
    guess = f" The best guess is {shown[0].cause} ({shown[0].confidence * 100:.0f} %)." if shown else ""
    lack = tuple(Missing(c["what"], c["how"]) for c in speaker["collect"]) if speaker else (NOTHING,)
    return f"The run failed, but these files do not hold the cause. {said}{guess}", lack
