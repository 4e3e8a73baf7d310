"""The search for bad machines against its bars: rounds, tests and wrong answers, beside the information bound. `make bench-bisect`; 15 minutes on two cores."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rca.bisect.group_testing import GRID, Search
from rca.bisect.simulate import summary, trials

#: name, settings, bad machines, trials, most rounds, most tests as a multiple of the bound, largest share of wrong answers
ROWS = (
    ("1 of 64, always shows, grid", Search(64, bad=1, parallel=GRID), 1, 1000, 2, None, 0.0),
    ("1 of 64, number unknown, grid", Search(64, parallel=GRID), 1, 1000, 2, None, 0.0),
    ("3 of 1,024, shows half the time", Search(1024, bad=3, shows=0.5, parallel=1), 3, 4000, None, 1.5, 0.01),
    ("the same, number unknown", Search(1024, shows=0.5, expected=1.0, parallel=1), 3, 300, None, 1.5, 0.01),
    ("the same, as many as the prior says", Search(1024, shows=0.5, expected=1.0, parallel=1), None, 300, None, None, 0.01),
    ("3 of 1,024, 8 groups at once", Search(1024, bad=3, shows=0.5, parallel=8), 3, 500, None, 1.5, 0.01),
    ("3 of 1,024, grid", Search(1024, bad=3, shows=0.5, parallel=GRID), 3, 1000, None, None, 0.01),
    ("3 of 1,024, 1 % false alarms", Search(1024, bad=3, shows=0.5, false_alarms=0.01, parallel=1), 3, 500, None, 1.5, 0.01),
    ("3 of 10,000, shows half the time", Search(10_000, bad=3, shows=0.5, parallel=1), 3, 500, None, 1.5, 0.01),
    ("3 of 10,000, grid", Search(10_000, bad=3, shows=0.5, parallel=GRID), 3, 200, None, None, 0.01),
    ("1 of 10,000, always shows, grid", Search(10_000, bad=1, parallel=GRID), 1, 200, 2, None, 0.0),
)


def main() -> int:
    """Print a table; the exit code is the number of bars that are missed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--share", type=float, default=1.0, help="of the trials")
    options.add_argument("--only", help="rows whose name has this in it")
    given = options.parse_args()
    missed = 0
    print(f"{'':38}{'trials':>7}{'rounds':>8}{'tests':>8}{'of bound':>9}{'wrong':>8}  {'95 % interval':16}{'s/trial':>8}  bar")
    for name, search, bad, count, rounds, times, error in ROWS:
        if given.only and given.only not in name:
            continue
        count, began = max(20, int(count * given.share)), time.monotonic()
        one = summary(search, trials(search, count, bad, len(os.sched_getaffinity(0))), bad)
        seconds = (time.monotonic() - began) / count
        bars = [
            (rounds is None or one.rounds_most <= rounds, f"<= {rounds} rounds" if rounds else ""),
            (times is None or one.tests <= times * (one.least_tests or 0), f"<= {times} x bound" if times else ""),
            (one.error <= error or one.error_low <= error, f"<= {error:.0%} wrong{'' if one.error <= error else ' (open: too few trials to tell)'}"),
        ]
        told = ", ".join(f"{text}{'' if met else ' MISSED'}" for met, text in bars if text)
        missed += sum(not met for met, _ in bars)
        share = f"{one.tests / one.least_tests:.2f}" if one.least_tests else "-"
        print(f"{name:38}{count:7}{one.rounds:8.1f}{one.tests:8.1f}{share:>9}{one.error:8.2%}  {f'{one.error_low:.2%} - {one.error_high:.2%}':16}{seconds:8.3f}  {told}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
