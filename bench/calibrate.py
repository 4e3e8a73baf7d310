#!/usr/bin/env python3
"""How well confidences fit: analyze labelled cases once, then judge them again with other weights of `unknown`, and with flatter or steeper sums.

    python bench/calibrate.py CASES_DIR [CASES_DIR ...]

For each set and for all together it prints the expected calibration error (five bins), the Brier score and the share that is wrong at 0.8 or more,
as the product judges and over a grid. It only shows: the sums are taken as they are (a temperature of 1), and `UNKNOWN_LOGIT` in `rca/rules/judge.py` is set
by hand, so that it does not follow every case that is added.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
BINS = 5
SURE = 0.8
TEMPERATURES = (0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 1.8)
UNKNOWNS = (1.0, 1.25, 1.5, 1.75, 2.0)


def cases(folder: Path) -> list[tuple[list[float], bool]]:
    """`(logits, right)` of each case that got an answer: the sums of its hypotheses, first first, and whether the first is right."""
    import rca

    found = []
    for path in sorted(folder.glob("*/truth.json")):
        truth = json.loads(path.read_text())
        logs = next(p for name in ("logs", "log", "log.txt") if (p := path.parent / name).exists())
        hypotheses = rca.analyze(logs, workers=1).judged.hypotheses
        if hypotheses:
            failed = truth.get("verdict_expected", "failed") in ("failed", None)
            right = failed and hypotheses[0].cause in {truth.get("root_cause_class"), *truth.get("accept", [])}
            found.append(([h.logit for h in hypotheses], right))
    return found


def first(logits: list[float], temperature: float, unknown: float) -> float:
    """The confidence of the first hypothesis, as `judge` computes it."""
    shares = [math.exp(logit / temperature) for logit in logits]
    return shares[0] / (sum(shares) + math.exp(unknown / temperature))


def fit(answers: list[tuple[list[float], bool]], temperature: float, unknown: float) -> tuple[float, float, int, int]:
    """Expected calibration error, Brier score, answers at 0.8 or more, and how many of these are wrong."""
    given = [(first(logits, temperature, unknown), right) for logits, right in answers]
    bins: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in given:
        bins.setdefault(min(BINS - 1, int(confidence * BINS)), []).append((confidence, right))
    error = sum(abs(sum(c for c, _ in b) - sum(r for _, r in b)) for b in bins.values()) / len(given)
    brier = sum((c - r) ** 2 for c, r in given) / len(given)
    return error, brier, sum(c >= SURE for c, _ in given), sum(c >= SURE and not r for c, r in given)


def main(folders: list[str]) -> None:
    from rca.rules.judge import UNKNOWN_LOGIT

    sets = {Path(folder).name: cases(Path(folder)) for folder in folders}
    sets["ALL"] = [answer for answers in sets.values() for answer in answers]
    for name, answers in sets.items():
        if not answers:
            continue
        error, brier, sure, wrong = fit(answers, 1.0, UNKNOWN_LOGIT)
        print(f"{name}: {len(answers)} answers at unknown={UNKNOWN_LOGIT}: ECE {error:.3f}, Brier {brier:.3f}, wrong at {SURE} or more {wrong} of {sure}")
        for unknown in UNKNOWNS:
            row = [fit(answers, t, unknown) for t in TEMPERATURES]
            print(f"  unknown {unknown:4}: " + "  ".join(f"T{t} {e:.3f}/{w}of{s}" for t, (e, _, s, w) in zip(TEMPERATURES, row, strict=True)))


if __name__ == "__main__":
    main(sys.argv[1:]) if len(sys.argv) > 1 else sys.exit(__doc__)
