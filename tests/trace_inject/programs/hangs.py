"""A controller whose last request hangs, while a thread of its own records so much that little of the past is kept: `python hangs.py FOLDER file|ring`. Killed in the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from rca import trace_inject as rt


def poll() -> None:
    """Thousands of records a second."""
    while True:
        with rt.span("poll"):
            time.sleep(0.0001)


def main(folder: str, how: str) -> None:
    """Twenty steps, and never the end of the last."""
    rt.install(folder, role="controller", size_max=256 << 10, ring=how == "ring")
    threading.Thread(target=poll, daemon=True).start()
    for step in range(20):
        with rt.step(step), rt.stage("rollout"), rt.request(), rt.span("generate", peer="rollout/3", kind="client"):
            if step == 19:
                time.sleep(2.5)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
