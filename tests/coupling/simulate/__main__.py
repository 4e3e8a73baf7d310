"""Write cases: `PYTHONPATH=.:tests python -m coupling.simulate OUT [--scenario s03] [--dialect slime] [--seeds 0-4] [--without] [--decoys N]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from coupling.simulate.build import build, dialects, possible, scenarios, write


def main() -> None:
    parser = argparse.ArgumentParser(description="Write simulated run folders with their truth.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenario", default="", help="part of a scenario's file name, e.g. s03")
    parser.add_argument("--dialect", default="")
    parser.add_argument("--seeds", default="0", help="a number or a range such as 0-4")
    parser.add_argument("--without", action="store_true", help="take the decisive source away")
    parser.add_argument("--decoys", type=int, help="mix in so many (default: by seed, none to two)")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    for scenario in (s for s in scenarios() if args.scenario in s):
        for dialect in (d for d in dialects() if args.dialect in d and possible(scenario, d)):
            for seed in range(int(first), int(last or first) + 1):
                files, truth = build(scenario, dialect, seed, without=args.without, decoys=args.decoys)
                write(args.out / f"{scenario}-{dialect}-{seed}", files, truth)


if __name__ == "__main__":
    main()
