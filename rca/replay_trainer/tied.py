"""A process that ends together with the one it belongs to, however that one goes.

    python -m rca.replay_trainer.tied MODULE ...        run a module that does not see to it by itself, as torchrun

Linux kills a process whose parent's death it has asked for (prctl(2), PR_SET_PDEATHSIG). What was lost before it asked is found by looking whether the launcher, whose
pid is in the environment, is still there. Nothing heavy is imported: this comes before anything that takes seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
LAUNCHER = "RCA_TRAIN_LAUNCHER"  # environment variable: the pid of the launcher


def tie() -> None:
    """From now on, end with the parent. Ends at once if the launcher is gone already."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    launcher = os.environ.get(LAUNCHER, "")
    if launcher.isdigit() and not os.path.exists(f"/proc/{launcher}") and os.path.exists("/proc/self"):
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Be tied, then become the module."""
    tie()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
