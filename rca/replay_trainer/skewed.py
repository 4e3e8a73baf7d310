"""Run a module with a clock that is wrong by some seconds, as on a host without NTP: `RCA_TRAIN_SKEW_S=3.5 python -m rca.replay_trainer.skewed MODULE ...`.

Synthetic: only Python's `time.time` and `time.time_ns` of the process are shifted, before anything takes them; the kernel's clock is not.
"""

from __future__ import annotations

import os
import runpy
import sys
import time

SKEW = "RCA_TRAIN_SKEW_S"


def main() -> None:
    """Shift the clock, then become the module."""
    skew_s = float(os.environ.get(SKEW, "0"))
    if skew_s:
        wall, wall_ns = time.time, time.time_ns
        time.time = lambda: wall() + skew_s
        time.time_ns = lambda: wall_ns() + int(skew_s * 1e9)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
