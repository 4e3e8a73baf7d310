"""What recording its requests costs the reference trainer, and what it leaves on the disk.

    python bench/recording.py [--turns N] [--turn-s S] [--set NAME=VALUE ...]

Two trainers with the same settings live at once, one recorded and one not, and take turns of a few seconds: whose turn it is not is stopped (SIGSTOP). So both meet the same machine, whatever
else runs on it. The first step of each turn does not count, nor the first ten of a trainer. A pair is two turns that follow each other; which of the two trainers goes first changes from pair to
pair. CPU is what the kernel counts for all workers and the controller.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BAR = 0.03  # of step time
FIRST = 10  # steps that are not counted: connections are made, allocators and clocks warm up
TICKS = os.sysconf("SC_CLK_TCK")
LIMIT_S = 120


class Turn(NamedTuple):
    """Seconds of the steps that were whole in it, and CPU seconds per step."""

    steps: list[float]
    cpu_s: float


class Trainer:
    """One run, in a process of its own."""

    def __init__(self, run: Path, record: bool, settings: list[str]) -> None:
        self.run = run
        sets = [word for setting in ["steps=1000000", f"record={str(record).lower()}", *settings] for word in ("--set", setting)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("RCA_")} | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen([sys.executable, "-m", "rca", "train", str(run), *sets], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._until(lambda: len(self.seconds()) >= FIRST)
        self.pids = self._workers()
        self.signal(signal.SIGSTOP)

    def _until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not true():
            assert self.process.poll() is None and time.monotonic() < end, f"the run in {self.run} does not go on"
            time.sleep(0.005)

    def _workers(self) -> list[int]:
        """All processes that name the run, but its launcher, torchrun and samplers."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0") if entry.name.isdigit() else []
                if str(self.run) in words and "rca.replay_trainer.worker" in words and "torch.distributed.run" not in words:
                    found.append(int(entry.name))
        return found

    def signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def seconds(self) -> list[float]:
        with contextlib.suppress(OSError):
            return [json.loads(line)["seconds"] for line in (self.run / "metrics.jsonl").read_text().splitlines(keepends=True) if line.endswith("\n")]
        return []

    def cpu(self) -> float:
        """CPU seconds so far."""
        stats = [(Path("/proc") / str(pid) / "stat").read_text().rpartition(") ")[2].split() for pid in self.pids]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS

    def turn(self, seconds: float) -> Turn:
        """Let it go on for so long, and until three steps are done."""
        before = len(self.seconds())
        self.signal(signal.SIGCONT)
        self._until(lambda: len(self.seconds()) > before)
        spent, end = self.cpu(), time.monotonic() + seconds
        self._until(lambda: time.monotonic() > end and len(self.seconds()) > before + 3)
        spent = self.cpu() - spent
        self.signal(signal.SIGSTOP)
        steps = self.seconds()[before + 1 :]
        return Turn(steps, spent / len(steps))

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LIMIT_S)


def disk(run: Path) -> tuple[int, int, int, int]:
    """Of a recording: bytes on the disk, each file once; the most bytes that one process refers to; files; bytes of lines."""
    seen: dict[int, int] = {}
    most = 0
    for folder in (run / "recording" / "blobs").iterdir():
        sizes = {path.stat().st_ino: path.stat().st_size for path in folder.iterdir()}
        most = max(most, sum(sizes.values()))
        seen |= sizes
    return sum(seen.values()), most, len(seen), sum(path.stat().st_size for path in (run / "recording").glob("*.jsonl"))


def main() -> int:
    """Print the figures; 1 where the bar is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=40, help="pairs of turns")
    parser.add_argument("--turn-s", type=float, default=2.0)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    given = parser.parse_args()
    pairs: list[tuple[Turn, Turn]] = []
    with tempfile.TemporaryDirectory(prefix="rca-bench-") as scratch:
        recorded, plain = (Trainer(Path(scratch) / name, name == "recorded", given.settings) for name in ("recorded", "plain"))
        try:
            for number in range(given.turns):
                first, second = (recorded, plain) if number % 2 else (plain, recorded)
                one, other = first.turn(given.turn_s), second.turn(given.turn_s)
                pairs.append((other, one) if first is plain else (one, other))
        finally:
            recorded.end()
            plain.end()
        size, most, files, lines = disk(recorded.run)
        steps = len(recorded.seconds())
    print(f"{given.turns} pairs of turns, {sum(len(on.steps) for on, _ in pairs)} steps recorded, {sum(len(off.steps) for _, off in pairs)} plain; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    share = told("step", pairs, lambda turn: statistics.median(turn.steps))
    told("CPU of a step", pairs, lambda turn: turn.cpu_s)
    print(f"disk: {size / 1e6:.1f} MB in {files} files, {lines / 1e6:.2f} MB of lines after {steps} steps; the most of one process {most / 1e6:.1f} MB, bound {268435456 / 1e6:.0f} MB")
    print(f"bar {BAR:.0%}: {'missed' if share > BAR else 'reached'}")
    return int(share > BAR)


def told(what: str, pairs: list[tuple[Turn, Turn]], of: Callable[[Turn], float]) -> float:
    """Print how much more the recorded one takes; gives the share: the median over pairs of the ratio."""
    ratios = [of(on) / of(off) - 1 for on, off in pairs]
    luck = random.Random(7)
    drawn = sorted(statistics.median(luck.choices(ratios, k=len(ratios))) for _ in range(1000))
    on, off = (statistics.median(of(pair[i]) for pair in pairs) for i in (0, 1))
    share = statistics.median(ratios)
    print(f"{what}: {on * 1e3:.1f} ms recorded, {off * 1e3:.1f} ms plain; {share:+.1%} in the median pair (90 % interval {drawn[50]:+.1%} to {drawn[-50]:+.1%})")
    return share


if __name__ == "__main__":
    sys.exit(main())
