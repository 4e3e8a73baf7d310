"""Analyze lines one by one, each as the whole log of a run, and count how often the first hypothesis is right.

    python tests/blind/paraphrase.py FILE... [--with-signatures] [--misses]

A file holds one JSON object per line: `text`, and `cause` with the class that an expert would name; without `cause` the line is harmless and must
come out as no failure at all. Signatures are off unless asked for: then only the plain words of a line speak.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from rca.correlate import graph
from rca.correlate.correlate import correlate
from rca.ingest import read
from rca.model import Run
from rca.rules import judge as judging
from rca.rules.chain import load_rules
from rca.taxonomy import QUIET_KINDS, Kind

HARMLESS = QUIET_KINDS | {Kind.LOGGED_ERROR, Kind.LEAK_WARNING, Kind.AGENT_REPORT}


def run_of(text: str, folder: Path, *, signatures: bool) -> Run:
    """The run that left this one line."""
    (folder / "run.log").write_text(text + "\n", encoding="utf-8")
    with mock.patch.object(read, "load", read.load if signatures else lambda *_: ()):
        return correlate(read.ingest([folder / "run.log"], workers=1)[0])


def answer(text: str, folder: Path, *, signatures: bool = False) -> tuple[str | None, list[str]]:
    """The first hypothesis's class, and the kinds of the events that state a failure."""
    run = run_of(text, folder, signatures=signatures)
    verdict = judging.judge(run, load_rules(), graph.build(run.events, run.edges))
    failures = [e.kind for e in run.events if e.kind not in HARMLESS and e.severity != "info"]
    return next((h.cause for h in verdict.hypotheses), None), failures


def measure(path: Path, *, signatures: bool = False) -> list[dict[str, Any]]:
    """One row per line: what was wanted, what came out, and whether that is right."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for line in path.read_text("utf-8").splitlines():
            case = json.loads(line)
            got, kinds = answer(case["text"], Path(folder), signatures=signatures)
            right = got == case["cause"] if "cause" in case else not kinds
            rows.append({"right": right, "want": case.get("cause"), "got": got, "kinds": kinds, "text": case["text"]})
    return rows


if __name__ == "__main__":
    for name in (a for a in sys.argv[1:] if not a.startswith("--")):
        found = measure(Path(name), signatures="--with-signatures" in sys.argv)
        right = sum(r["right"] for r in found)
        print(f"{name}: {right} of {len(found)} right ({right / len(found):.0%})")
        if "--misses" in sys.argv:
            for r in found:
                if not r["right"]:
                    print("miss", r["want"], "->", r["got"], r["kinds"], "|", r["text"][:160])
