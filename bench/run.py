#!/usr/bin/env python3
"""Speed and memory against ripgrep, interleaved, on corpora made on the spot; every bar is printed with whether it is reached.

    python bench/run.py [--seeds 7,11,23] [--rounds 3] [--only WORD] [--keep DIR] [--strict]

All cases search for the literals of the product's signatures and one phrase per planted failure. The other side is always
`rg -n -F -f PATTERNS -j2` on the same files right before (`-z` for packed ones). What is measured as `scan` is `bench/probe.py`, as
`analyze` the whole `rca analyze` with its text report; see `bench/measure.py` for how, `bench/corpus.py` for what. After each scan every
planted line must have been printed with its exact line number and offset. `--only` runs the cases whose name holds a word,
`--keep` leaves the corpora in a folder for the next time. Exit code 0 whatever the outcome; with `--strict` 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import corpus
from measure import Cost, Ratio, evict, ratio, rounds

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = sys.executable
RCA = [PYTHON, os.path.join(os.path.dirname(HERE), "cli.py")]
DENSE_LINES = 80_000  # in 46 MB: the case that made an earlier prototype 3.8x slower than rg
RSS_MAX = 160  # MB, of any process, whatever the corpus
COMMANDS = ([], ["analyze"], ["gate"], ["rules"], ["rules", "list"], ["rules", "show"])


class Case(NamedTuple):
    """One comparison. A bar is the largest wall ratio allowed; None: only told."""

    name: str
    bars: dict[str, float | None]  # by what is measured: scan, analyze
    make: str  # a function of this file: (folder, seed) -> makes the folder to search, with its truth beside it where there is one
    rg: tuple[str, ...] = ()  # further options
    cold: bool = False
    every_seed: bool = True
    once: bool = False  # too slow to be repeated


def tree(folder: str, seed: int) -> str:
    """64 ranks of 16 MB in 128 files."""
    return corpus.tree(f"{folder}/64x16-{seed}", seed=seed)


def small(folder: str, seed: int) -> str:
    """4096 files of 64 KB."""
    return corpus.tree(f"{folder}/4096x64k-{seed}", ranks=4096, mb_per_rank=1 / 16, files_per_rank=1, seed=seed)


def huge(folder: str, seed: int) -> str:
    """One file of 537 MB: the first half of the tree, and where its planted lines then lie."""
    files, out = f"{folder}/64x16-{seed}", f"{folder}/huge-{seed}"
    os.makedirs(out)
    with open(f"{files}.truth.json") as file:
        planted = json.load(file)["planted"]
    truth, offset, lines = [], 0, 0
    with open(f"{out}/all.log", "wb") as target:
        for rank in range(32):
            for name in ("stdout.log", "stderr.log"):
                path = f"RUN/attempt_0/{rank}/{name}"
                with open(f"{files}/{path}", "rb") as source:
                    data = source.read()
                target.write(data)
                truth += [p | {"file": "all.log", "offset": p["offset"] + offset, "line": p["line"] + lines} for p in planted if p["file"] == path]
                offset, lines = offset + len(data), lines + data.count(b"\n")
    with open(f"{out}.truth.json", "w") as file:
        json.dump({"planted": truth}, file)
    return out


def dense(folder: str, seed: int) -> str:
    """One file of 46 MB with a failure in every seventh line."""
    rng, out = random.Random(seed), f"{folder}/dense-{seed}"
    os.makedirs(out)
    with open(f"{out}/a.log", "w") as file:
        for i in range(DENSE_LINES):
            for _ in range(6):
                file.write(f"2026-01-06 10:00:00,123 INFO step={i} loss=2.{rng.randrange(10**6)} tokens/s={rng.randrange(10**6)} mem=61GiB\n")
            file.write(f"[rank3] NCCL WARN NET/IB : Got completion from peer 10.2.4.31<51221> with status=12 error {i}\n")
    return out


def packed(folder: str, seed: int) -> str:
    """Sixteen gzip files of 8 MB of text."""
    out = f"{folder}/gz-{seed}"
    os.makedirs(out)
    for rank in range(8):
        for name in ("stdout.log", "stderr.log"):
            with open(f"{folder}/64x16-{seed}/RUN/attempt_0/{rank}/{name}", "rb") as plain, gzip.open(f"{out}/{rank}-{name}.gz", "wb", 6) as target:
                shutil.copyfileobj(plain, target)
    return out


def traces(folder: str, seed: int) -> str:
    """1024 ranks that all end in a traceback."""
    out = f"{folder}/traces-{seed}"
    for rank in range(1024):
        os.makedirs(f"{out}/RUN/attempt_0/{rank}")
        with open(f"{out}/RUN/attempt_0/{rank}/stderr.log", "w") as file:
            for step in range(100):
                file.write(f"2026-01-06 10:00:{step % 60:02},{rank % 1000:03} INFO [rank {rank}] step={step} loss=2.{step}\n")
            file.write('Traceback (most recent call last):\n  File "/srv/train.py", line 9, in save\n    torch.save(state, file)\n')
            file.write(f"OSError: [Errno 28] No space left on device: '/ckpt/step_100/{rank}.pt'\n")
    return out


CASES = (
    Case("64 x 16 MB", {"scan": 0.35, "analyze": 0.8}, "tree"),
    Case("64 x 16 MB, cold cache", {"scan": None}, "tree", cold=True, every_seed=False),
    Case("one 537 MB file", {"scan": 0.5, "analyze": None}, "huge"),
    Case("gzip, 16 x 8 MB of text", {"scan": 0.5}, "packed", ("-z",), every_seed=False),
    Case("4096 x 64 KB", {"scan": 0.65}, "small"),
    Case("4096 x 64 KB, cold cache", {"scan": None}, "small", cold=True, every_seed=False),
    Case("80,000 hits in 46 MB", {"scan": 1.5, "analyze": None}, "dense", every_seed=False),
    Case("1024 ranks with a traceback", {"analyze": None}, "traces", every_seed=False, once=True),
    Case("4096 x 64 KB, once", {"analyze": None}, "small", every_seed=False, once=True),
)


def patterns(path: str) -> None:
    """Write the patterns, one per line: the signatures' literals, and of each planted line its longest constant part."""
    code = "from rca.ingest import read, signatures; print(*(w.decode() for w in read.literal_table(signatures.load())[0]), sep=chr(10))"
    done = subprocess.run([PYTHON, "-c", code], cwd=os.path.dirname(HERE), env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)}, check=True, capture_output=True, text=True)
    known = set(done.stdout.splitlines())
    planted = {max(re.split(r"\{\w\}", text), key=len).strip()[:60] for text in corpus.PLANT}
    with open(path, "w") as file:
        file.write("\n".join(sorted(known | planted)) + "\n")
    print(f"patterns: {len(known)} literals of the product, {len(planted - known)} planted ones besides")


def verify(folder: str, printed: str) -> None:
    """Every planted line must have been printed with its exact line number and offset."""
    if not os.path.exists(f"{folder}.truth.json"):
        return
    with open(f"{folder}.truth.json") as file:
        planted = json.load(file)["planted"]
    with open(printed, "rb") as file:
        found = set(file.read().split(b"\n"))
    missing = [p for p in planted if "{file}:{line}:{offset}:{text}".format(**p).encode() not in found]
    if missing:
        sys.exit(f"missed {len(missing)} of {len(planted)} planted lines, for example: {missing[0]}")


class Bench:
    """The run: measures case by case and remembers the outcome of each bar."""

    def __init__(self, work: str, options: argparse.Namespace) -> None:
        self.work, self.options = work, options
        self.corpora = options.keep or f"{work}/corpora"
        self.missed: list[str] = []
        self.largest = (0.0, "")
        os.makedirs(self.corpora, exist_ok=True)
        patterns(f"{work}/patterns")

    def folder(self, make: str, seed: int) -> str:
        """The corpus of a case, made if it is not there."""
        names = {"tree": "64x16", "small": "4096x64k", "huge": "huge", "dense": "dense", "packed": "gz", "traces": "traces"}
        if make in ("huge", "packed"):
            self.folder("tree", seed)
        folder = f"{self.corpora}/{names[make]}-{seed}"
        if not os.path.exists(folder):
            # In a process of its own: what this one once held would count as the peak of every command it starts.
            if (pid := os.fork()) == 0:
                status = 1
                try:
                    globals()[make](self.corpora, seed)
                    status = 0
                finally:
                    os._exit(status)
            if os.waitpid(pid, 0)[1]:
                sys.exit(f"cannot make the corpus `{folder}`")
        return folder

    def case(self, case: Case) -> None:
        """Measure one case over all its seeds and print a line for each thing measured."""
        search = ["rg", "-n", "-F", "-f", f"{self.work}/patterns", "-j2", *case.rg]
        seeds = self.options.seeds if case.every_seed else self.options.seeds[:1]
        costs: dict[str, list[Cost]] = {}
        for seed in seeds:
            folder = self.folder(case.make, seed)
            commands = {"rg": [*search, folder]}
            if "scan" in case.bars:
                commands["scan"] = [PYTHON, f"{HERE}/probe.py", folder, f"{self.work}/patterns"]
            if "analyze" in case.bars:
                commands["analyze"] = [*RCA, "analyze", folder]
            before = (lambda f=folder: evict(f)) if case.cold else None
            found = rounds(commands, 1 if case.once else self.options.rounds, f"{self.work}/out", before, warm=not case.once)
            if "scan" in case.bars:
                verify(folder, f"{self.work}/out.scan")
            for name, more in found.items():
                costs.setdefault(name, []).extend(more)
        for name, bar in case.bars.items():
            self.tell(f"{case.name}: {name}", ratio(costs[name], costs["rg"]), bar, max(c.rss for c in costs[name]))

    def tell(self, name: str, got: Ratio, bar: float | None, rss: float | None) -> None:
        """Print one line of the table."""
        outcome = "" if bar is None else f"<= {bar:<5}" + ("reached" if got.wall <= bar else "NOT REACHED")
        if bar is not None and got.wall > bar:
            self.missed.append(name)
        if rss is not None:
            self.largest = max(self.largest, (rss, name))
        memory = "" if rss is None else f"{rss:4.0f} MB"
        print(f"{name:38} {got.wall:6.2f}  {got.low:5.2f}-{got.high:<6.2f} {got.cpu:5.2f}  {memory:>8}  {outcome}", flush=True)

    def helps(self) -> None:
        """Measure `--help` of every command against a bare interpreter."""
        for command in COMMANDS:
            found = rounds({"pass": [PYTHON, "-c", "pass"], "help": [*RCA, *command, "--help"]}, 10, f"{self.work}/out")
            self.tell(f"{' '.join(['rca', *command])} --help", ratio(found["help"], found["pass"]), 15, None)

    def memory(self) -> None:
        """Print the largest process of all that was measured."""
        if self.largest[0] > RSS_MAX:
            self.missed.append("memory")
        outcome = "reached" if self.largest[0] <= RSS_MAX else "NOT REACHED"
        print(f"\nlargest process of all: {self.largest[0]:.0f} MB ({self.largest[1]}); bar <= {RSS_MAX} MB: {outcome}")


def chosen(word: str | None) -> Iterator[Case]:
    """The cases to run."""
    yield from (case for case in CASES if not word or word in case.name)


def main() -> int:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default=[7, 11, 23])
    parser.add_argument("--rounds", type=int, default=3, help="per seed")
    parser.add_argument("--only", metavar="WORD", help="run the cases whose name holds this; `help` for the start-up times")
    parser.add_argument("--keep", metavar="DIR", help="make the corpora here, take those that are there, leave them")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar was missed")
    options = parser.parse_args()
    if not shutil.which("rg"):
        print("error: no `rg` on this machine\n\nhint: install ripgrep, it is what the bars are relative to", file=sys.stderr)
        return 1 if options.strict else 0
    with tempfile.TemporaryDirectory(prefix="rca-bench-") as work:
        bench = Bench(work, options)
        print(f"wall and CPU as ratios to `rg -n -F -f PATTERNS -j2`: medians of {options.rounds} rounds x seeds {options.seeds}; last the peak of one process\n")
        print(f"{'':38} {'wall':>6}  {'range':12} {'cpu':>5}  {'memory':>8}  bar")
        for case in chosen(options.only):
            bench.case(case)
        if not options.only or options.only == "help":
            print(f"\n{'against `python -c pass`':38} {'wall':>6}  {'range':12} {'cpu':>5}")
            bench.helps()
        bench.memory()
        print(f"bars missed: {', '.join(bench.missed) or 'none'}")
    return 1 if options.strict and bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
