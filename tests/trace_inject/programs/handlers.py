"""Makes 100,000 spans inside a signal handler, by a timer, while the program makes spans of its own; now and then the handler raises.

    python handlers.py FOLDER

Prints how many spans were made in the handler and in the program, how many exceptions were raised and how many the program caught.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from rca import trace_inject as rt
from rca.trace_inject import guard

SPANS = 100_000
EACH = 25


class Late(TimeoutError):
    """What a trainer's own alarm may raise; an OSError."""


def main(folder: str) -> None:
    """Record until the handler has made enough spans."""
    made = {"handler": 0, "program": 0, "raised": 0, "caught": 0, "fired": 0}

    def handler(number: int, frame: Any) -> None:
        made["fired"] += 1
        for _ in range(EACH):
            with rt.span("handler"):
                made["handler"] += 1
        if made["fired"] % 10 == 0 and armed:
            made["raised"] += 1
            raise Late("from the handler")

    rt.install(folder, size_max=256 << 20)
    armed: list[bool] = []
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    while made["handler"] < SPANS:
        armed.append(True)
        try:
            while made["handler"] < SPANS:
                with rt.step(made["program"]), rt.span("program"):
                    made["program"] += 1
                armed.append(True)
        except Late:
            made["caught"] += 1
        armed.clear()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(made["handler"], made["program"], made["raised"], made["caught"])
    print(*guard.faults)


if __name__ == "__main__":
    main(sys.argv[1])
