"""Forks a hundred times, inside an open span, while four threads write; each child records, ends what it inherited, and leaves in one of three ways."""

from __future__ import annotations

import os
import sys
import threading
import time

from rca import trace_inject as rt

FORKS = 100


def main(folder: str) -> None:
    """Fork; the first child that does not end well ends the test."""
    rt.install(folder, role="train", rank=0)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with rt.span("busy"):
                rt.event("tick")
            time.sleep(0.0001)  # or the first records would not be in the first segment any more

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(FORKS):
        with rt.step(number), rt.span("around"):
            pid = os.fork()
            if pid == 0:
                for _ in range(20):
                    with rt.span("child", number=number):
                        pass
        if pid == 0:
            if number % 2:
                os._exit(0)
            os.execv(sys.executable, [sys.executable, "-c", "pass"])
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1])
