"""Make cases with the simulator, analyze them and count: per scenario and per dialect, with what was missed.

    PYTHONPATH=.:tests python tests/coupling/measure.py [--seeds 0-1] [--scenario s03] [--dialect slime] [--mode plain,without,plus] [--misses] [--keep DIR] [--jobs 1]

Counted as in the shared scorer: verdict, cause@1 (neighbouring classes in `accept` count; a case whose decisive source was taken away may also be
called inconclusive), entity@1, both stages, coupling rule@1, and how often it was sure (0.8 or more) and wrong.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from coupling.simulate.build import build, dialects, possible, scenarios, write

import rca

SURE = 0.8
MODES = {"plain": {}, "without": {"without": True}, "plus": {"decoys": 4}}
GROUPS = ({"init", "load"}, {"save", "latest_recover_save", "periodic_recover_save"}, {"recover", "load"}, {"train", "final"})
POINTS = ("verdict", "cause", "entity", "cause_stage", "symptom_stage", "rule")


def same_place(got: dict[str, Any], true: dict[str, Any]) -> bool:
    """Host and gpu where a gpu is named, else host and rank, else the role."""
    named = {k: v for k, v in true.items() if k in ("rank", "host", "gpu", "role") and v is not None}
    if "gpu" in named and "host" in named:
        named.pop("rank", None)
    if set(named) - {"role"}:
        named.pop("role", None)
    for key, want in named.items():
        a, b = str(got.get(key, "")).lower(), str(want).lower()
        if key == "role":
            if not a or (a not in b and b not in a):
                return False
        elif (a.split(".")[0] != b.split(".")[0]) if key == "host" else a != b:
            return False
    return True


def same_stage(got: Any, truth: dict[str, Any], key: str) -> bool:
    wanted = {truth.get(key), *truth.get(key + "_accept", [])} - {None}
    return any(got == x or any({got, x} <= g for g in GROUPS) for x in wanted)


def judge(document: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """The points of one case; a point that the truth does not name is left out."""
    first = next(iter(document["hypotheses"]), {"cause": None, "confidence": 0.0})
    right = first["cause"] in truth["accept"]
    verdicts = {truth["verdict_expected"], *truth.get("verdict_accept", [])}
    failed = truth["verdict_expected"] == "failed"
    abstained = document["verdict"] == "inconclusive" and "unknown" in truth["accept"]
    row: dict[str, Any] = {"verdict": document["verdict"] in verdicts}
    if failed:
        row["cause"] = right or abstained
        if truth["faulty_entity"]:
            row["entity"] = same_place(first.get("entity") or {}, truth["faulty_entity"])
        if not abstained:
            row |= {key: same_stage(first.get(key), truth, key) for key in ("cause_stage", "symptom_stage") if truth.get(key)}
        if truth.get("scenario") and "unknown" not in truth["accept"]:
            row["rule"] = f"coupling/{truth['scenario']}" in str(first.get("rule"))
        if truth.get("not_scenario"):
            row["rule"] = f"coupling/{truth['not_scenario']}" not in str(first.get("rule"))
    sure = document["verdict"] != "healthy" and first["confidence"] >= SURE
    wrong = sure and not (right and failed)
    return row | {"sure": sure, "sure_and_wrong": wrong, "got": f"{document['verdict']} {first['cause']} {first['confidence']:.2f} {first.get('rule')} {first.get('entity')} {first.get('cause_stage')}->{first.get('symptom_stage')}"}


def run(job: tuple[str, str, int, str, str | None]) -> dict[str, Any]:
    """Make, write, analyze and judge one case."""
    scenario, dialect, seed, mode, keep = job
    files, truth = build(scenario, dialect, seed, **MODES[mode])
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        folder = Path(keep) / f"{scenario}-{dialect}-{seed}-{mode}" if keep else Path(scratch) / "case"
        write(folder, files, truth)
        began = time.monotonic()
        try:
            row = judge(rca.analyze(folder / "logs", workers=1).document, truth)
        except Exception as error:  # a crash is a miss in every point, and must be listed as one
            row = dict.fromkeys(POINTS, False) | {"sure": True, "sure_and_wrong": True, "got": f"CRASH {type(error).__name__}: {error}"}
    return row | {"id": f"{scenario}-{truth['variant']}-{dialect}-{seed}-{mode}", "scenario": scenario, "dialect": dialect, "mode": mode, "truth": truth["root_cause_class"], "place": truth["faulty_entity"], "seconds": time.monotonic() - began}


def share(rows: list[dict[str, Any]], point: str) -> str:
    judged = [r for r in rows if point in r]
    return f"{sum(r[point] for r in judged)}/{len(judged)}" if judged else "-"


def table(rows: list[dict[str, Any]], by: str) -> None:
    print(f"{by:28s} {'cases':>5s} " + " ".join(f"{p:>13s}" for p in POINTS) + f" {'sure&wrong':>11s}")
    for name in [*sorted({r[by] for r in rows}), "ALL"]:
        part = [r for r in rows if name in (r[by], "ALL")]
        print(f"{name:28s} {len(part):5d} " + " ".join(f"{share(part, p):>13s}" for p in POINTS) + f" {sum(r['sure_and_wrong'] for r in part):5d} of {sum(r['sure'] for r in part):3d}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the analyzer on simulated runs.")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--scenario", default="")
    parser.add_argument("--dialect", default="")
    parser.add_argument("--mode", default="plain")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--keep", help="write the cases here and leave them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    jobs = [(s, d, n, m, args.keep) for s in scenarios() if args.scenario in s for d in dialects() if args.dialect in d and possible(s, d)
            for m in args.mode.split(",") for n in range(int(first), int(last or first) + 1)]  # fmt: skip
    if args.jobs > 1:
        with ProcessPoolExecutor(args.jobs) as pool:
            rows = list(pool.map(run, jobs))
    else:
        rows = [run(j) for j in jobs]
    for by in ("scenario", "dialect", "mode"):
        table(rows, by)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.misses:
        for r in rows:
            wrong = [p for p in POINTS if r.get(p) is False]
            if wrong:
                print("miss", r["id"], r["truth"], r["place"], "|", ",".join(wrong), "| ->", r["got"])


if __name__ == "__main__":
    main()
