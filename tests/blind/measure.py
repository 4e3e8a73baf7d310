"""Analyze the blind cases and count: verdicts, causes, false alarms, and how often it was sure and wrong.

    python tests/blind/measure.py [--misses]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import rca

CASES = Path(__file__).parent / "cases"
SURE = 0.8
NAMES = {"insufficient-evidence": "inconclusive"}


def truth(case: Path) -> dict[str, Any]:
    """Verdicts and causes that an expert would accept."""
    told = json.loads((case / "truth.json").read_text())
    cause = told.get("root_cause_class")
    default = {"unknown": "inconclusive", "sw.false_alarm": "healthy"}.get(cause, "failed")
    verdict = told.get("verdict_expected") or default
    verdicts = {NAMES.get(v, v) for v in (verdict, *told.get("verdict_accept", []))}
    causes = {cause, *told.get("accept", [])} - {None}
    return {"verdict": NAMES.get(verdict, verdict), "verdicts": verdicts | ({"inconclusive"} if "unknown" in causes else set()), "causes": causes}


def row(case: Path) -> dict[str, Any]:
    """One case: what came out and whether it is right."""
    want = truth(case)
    logs = next(p for name in ("logs", "log", "log.txt") if (p := case / name).exists())
    document = rca.analyze(logs, workers=1).document
    first = next(iter(document["hypotheses"]), {"cause": None, "confidence": 0.0})
    right = first["cause"] in want["causes"]
    return {
        "case": case.name, "failed": want["verdict"] == "failed", "healthy": want["verdict"] == "healthy",
        "verdict_ok": document["verdict"] in want["verdicts"], "alarm": want["verdict"] == "healthy" and document["verdict"] == "failed",
        "cause_ok": right or (document["verdict"] == "inconclusive" and "unknown" in want["causes"]),
        "sure": first["confidence"] >= SURE, "wrong": not (right and want["verdict"] == "failed"),
        "got": f"{document['verdict']} {first['cause']} {first['confidence']:.2f}",
    }  # fmt: skip


def measure() -> dict[str, Any]:
    """All cases with the counts."""
    rows = [row(p.parent) for p in sorted(CASES.glob("*/truth.json"))]
    failed = [r for r in rows if r["failed"]]
    return {
        "rows": rows, "cases": len(rows), "verdict": sum(r["verdict_ok"] for r in rows) / len(rows), "cause": sum(r["cause_ok"] for r in failed) / len(failed),
        "alarms": sum(r["alarm"] for r in rows), "sure": sum(r["sure"] for r in rows), "sure_and_wrong": sum(r["sure"] and r["wrong"] for r in rows),
    }  # fmt: skip


if __name__ == "__main__":
    found = measure()
    print(f"{found['cases']} cases: verdict {found['verdict']:.0%}, cause@1 {found['cause']:.0%}, {found['alarms']} false alarms, sure and wrong {found['sure_and_wrong']} of {found['sure']}")
    if "--misses" in sys.argv:
        for r in found["rows"]:
            if not r["verdict_ok"] or (r["failed"] and not r["cause_ok"]):
                print("miss", r["case"], "->", r["got"])
