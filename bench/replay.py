"""Do replays say what is true? `python bench/replay.py OUT` takes the scenarios that `rca scenarios run all -o OUT` played; `--healthy N` also replays a run of N steps whole.

For each: the replay's verdict against `replay` of truth.json, how many healthy requests gave the same bits, and the analyzer's confidence in the true cause without and
with the replay's result.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import rca
from rca.console import say
from rca.replay.replay import Choice, replay
from rca.replay.result import NAME
from rca.replay_trainer.config import Config
from rca.replay_trainer.launch import System

EXACT = "healthy"  # what a truth says of a run that went well


def confidence(logs: Path, truth: dict[str, Any]) -> tuple[float, str]:
    """How sure the analyzer is of the true cause, and what it names first. Given is a copy of the logs alone."""
    with tempfile.TemporaryDirectory(prefix="rca-check-") as scratch:
        shutil.copytree(logs, Path(scratch) / "logs")
        report = rca.analyze(str(Path(scratch) / "logs")).document
    accepted = {truth.get("root_cause_class"), *truth.get("accept", [])}
    first = report["hypotheses"][0]["cause"] if report["hypotheses"] else report["verdict"]
    return sum(h["confidence"] for h in report["hypotheses"] if h["cause"] in accepted), first


def one(folder: Path) -> dict[str, Any]:
    """Replay a played scenario; gives a row of the table."""
    truth = json.loads((folder / "truth.json").read_text("utf-8"))
    (folder / "logs" / NAME).unlink(missing_ok=True)
    before, _ = confidence(folder / "logs", truth)
    began = time.monotonic()
    found = replay(folder, Choice(), say=lambda text: None)
    seconds = time.monotonic() - began
    after, first = confidence(folder / "logs", truth)
    healthy = [each for each in found.replayed if each.recorded == "ok"]
    exact = sum(each.identical for each in healthy)
    said = found.verdict.verdict if found.verdict is not None else EXACT if healthy and exact == len(healthy) else "none"
    return {"name": folder.name, "truth": truth.get("replay"), "said": said, "healthy": len(healthy), "exact": exact, "before": before, "after": after, "first": first, "seconds": seconds, "text": found.verdict.text if found.verdict else ""}


def healthy(steps: int) -> tuple[int, int, float]:
    """Train for some steps and replay everything: requests, those with the same bits, seconds."""
    with tempfile.TemporaryDirectory(prefix="rca-bench-") as scratch:
        run = Path(scratch) / "run"
        with System(run, Config.of({"steps": steps, "record_steps": steps + 1})) as system:
            if system.wait() != 0:
                raise SystemExit("the run failed")
        began = time.monotonic()
        found = replay(run, Choice())
        return len(found.replayed), sum(each.identical for each in found.replayed), time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--healthy", type=int, metavar="N", default=0)
    given = parser.parse_args()
    bad = 0
    if given.out is not None:
        rows = []
        for file in sorted(given.out.glob("*/truth.json")):
            row = one(file.parent)
            rows.append(row)
            right = row["said"] == row["truth"]
            broken = row["truth"] != EXACT
            rises = not broken or row["after"] > row["before"]
            bad += (not right) + (not rises)
            print(f"{'ok   ' if right and rises else 'WRONG'} {row['name']:36} {row['said']:19} ({row['truth']})  {row['before']:.4f} -> {row['after']:.4f} {row['first']:18} {row['exact']}/{row['healthy']} exact  {row['seconds']:.0f} s", flush=True)
            say(f"      {row['text']}")
        ten = [row for row in rows if row["name"][:2] <= "10"]
        print(f"{sum(row['said'] == row['truth'] for row in ten)} of {len(ten)} of the ten couplings replay as the truth says; confidence in the true cause rises on {sum(row['after'] > row['before'] for row in ten)} of {len(ten)}")
    if given.healthy:
        count, exact, seconds = healthy(given.healthy)
        bad += count != exact or count < 1000
        print(f"healthy requests: {exact} of {count} gave the same bits, {seconds:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
