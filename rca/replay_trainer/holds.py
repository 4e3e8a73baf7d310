"""Points at which a run waits until a fault has been made: `rollout@3` is the rollout of step 3, just before it begins.

The process that comes to the point makes a file `holds/<point>` in the run's folder and waits until it is gone; whoever makes the fault removes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rca.replay_trainer.config import Config

FOLDER = "holds"
HOLD_MAX_S = 120.0  # nobody came: the run goes on
POLL_S = 0.02


def hold(config: Config, run: Path, point: str) -> None:
    """Wait here if this point was asked for."""
    if point not in config.hold_at:
        return
    file = run / FOLDER / point
    file.touch()
    end = time.monotonic() + HOLD_MAX_S
    while file.exists() and time.monotonic() < end:
        time.sleep(POLL_S)


def reached(run: Path, point: str) -> bool:
    """Whether somebody waits there."""
    return (run / FOLDER / point).exists()


def release(run: Path, point: str) -> None:
    (run / FOLDER / point).unlink(missing_ok=True)


def until(run: Path, point: str, timeout_s: float, alive: Callable[[], bool]) -> bool:
    """Wait until somebody holds at a point; gives whether that came about."""
    end = time.monotonic() + timeout_s
    while not reached(run, point):
        if time.monotonic() > end or not alive():
            return False
        time.sleep(POLL_S)
    return True
