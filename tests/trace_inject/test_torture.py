"""What a process leaves that is killed, forks, or records in signal handlers.

`make soak` kills 1,000 times, by RCA_TORTURE_KILLS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from venvs import environment

import rca
from rca.correlate import spans as span_tables
from rca.ingest.read import ingest
from rca.taxonomy import Kind

pytestmark = pytest.mark.real
PROGRAMS = Path(__file__).parent / "programs"
KILLS = int(os.environ.get("RCA_TORTURE_KILLS", "200"))


def run(program: str, *arguments: Any, timeout_s: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one of the programs; it must end well, in time, and print no error."""
    done = subprocess.run([sys.executable, str(PROGRAMS / program), *map(str, arguments)], env=environment(**variables), capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def lines_of(path: Path) -> tuple[list[dict[str, Any]], int, int]:
    """The records of a file, the number of damaged lines before the last, and of torn tails."""
    whole, _, tail = path.read_bytes().rpartition(b"\n")
    found, damaged = [], 0
    for line in whole.split(b"\n"):
        try:
            if line.strip():
                found.append(json.loads(line))
        except ValueError:
            damaged += 1
    return found, damaged, bool(tail)


@pytest.mark.parametrize("how", ["file", "ring"])
def test_killed_at_random_points(tmp_path: Path, how: str) -> None:
    """No acknowledged record is lost, nothing is torn but a tail, and every open span is named."""
    kills = KILLS if how == "file" else KILLS // 2
    run("killed.py", tmp_path, kills, 5, *(["ring"] if how == "ring" else []), timeout_s=60 + kills)
    torn = lost = acked = 0
    unnamed = []
    readings, _ = ingest([str(tmp_path)])
    spans = span_tables.join(readings)
    ids = spans.columns["span"]
    open_rows = {ids[row]: row for row, end in enumerate(spans.columns["end"]) if end == span_tables.NO_TIME and spans.up[row] != span_tables.AGAIN}
    told = {int(e.span_id, 16) for r in readings for e in r.events if e.kind == Kind.REQUEST_OPEN}
    for number in range(kills):
        folder = tmp_path / str(number)
        acks = [line.split() for line in (folder / "acks").read_text().splitlines()]
        acked += len(acks)
        records = []
        for path in folder.glob("*.rca.jsonl"):
            found, damaged, tail = lines_of(path)
            assert damaged <= (4 if how == "ring" else 0), path  # in a ring each thread may have been copying
            torn += tail + damaged
            records += found
        said = {kind: {key for what, key in acks if what == kind} for kind in "OSEV"}
        unnamed += [key for key in said["O"] if int(key, 16) not in open_rows or int(key, 16) not in told]
        assert not any(int(key, 16) in open_rows for key in said["E"])
        if number % 4 == 3 or (how == "ring" and any(r.get("q", 0) > 0 for r in records)):
            continue  # the older ones are gone
        started, ended = ({r["id"] for r in records if r.get("e") == kind} for kind in ("start", "end"))
        marks = {r["a"]["mark"] for r in records if r.get("e") == "event" and r["n"] == "passed"}
        lost += len(said["S"] - started) + len(said["O"] - started) + len(said["E"] - ended) + len(said["V"] - marks)
        unnamed += [key for key in said["S"] - ended if int(key, 16) not in open_rows]
        assert not [r for r in records if r.get("n") == "rca.dropped"]
    print(f"{how}: {kills} kills, {acked} records acknowledged, {lost} lost, {torn} torn")
    assert (lost, unnamed) == (0, [])


def test_forks_under_writing_threads(tmp_path: Path) -> None:
    """No child hangs; each that writes has a file of its own, and none ends what its parent holds open."""
    run("forks.py", tmp_path)
    (parent,) = [path for path in tmp_path.glob("*.rca.jsonl") if '"n":"busy"' in path.read_text()]
    mine, damaged, tail = lines_of(parent)
    around = {r["id"] for r in mine if r.get("n") in ("around", "step") and r["e"] == "start"}
    assert (len(around), damaged, tail) == (200, 0, False) and around <= {r["id"] for r in mine if r.get("e") == "end"}
    assert not any(r.get("n") in ("child", "rca.dropped") for r in mine)
    children = sorted(set(tmp_path.glob("*.rca.jsonl")) - {parent})
    assert len(children) == 100
    for path in children:
        (head, *records), damaged, tail = lines_of(path)
        assert path.name.endswith(f"-{head['pid']}.rca.jsonl") and (damaged, tail, len(records)) == (0, False, 40)
        assert not around & {r["id"] for r in records}
        assert {r["p"] for r in records if r["e"] == "start"} <= around  # they say below which span of the parent they are


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", "loader-fork", "loader-spawn"])
def test_workers(tmp_path: Path, how: str) -> None:
    """Workers of any start method write files of their own; the parent's spans end once, in the parent's."""
    pids = run("workers.py", tmp_path, how).stdout.split()
    files = {path.name.split("-")[-1].split(".")[0]: lines_of(path) for path in tmp_path.glob("*.rca.jsonl")}
    assert set(pids) <= set(files) and all((damaged, tail) == (0, False) for _, damaged, tail in files.values())
    (parent,) = [records for records, _, _ in files.values() if any(r.get("n") == "parent" for r in records)]
    assert [r["e"] for r in parent if r.get("id")] == ["start", "start", "end", "end"]
    items = [r for pid in pids for r in files[pid][0] if r.get("n") == "item"]
    assert len(items) == 24 and sum(r.get("e") == "end" for pid in pids for r in files[pid][0]) == 24


def test_signal_handlers(tmp_path: Path) -> None:
    """Spans made by a handler in the midst of others: no hang, no damaged line, and what the handler raises reaches the program."""
    counts, faults = run("handlers.py", tmp_path).stdout.splitlines()
    handler, program, raised, caught = map(int, counts.split())
    assert not faults
    assert handler >= 100_000 and raised == caught > 100
    (path,) = tmp_path.glob("*.rca.jsonl")
    records, damaged, tail = lines_of(path)
    names = [r.get("n") for r in records if r.get("e") == "start"]
    assert (damaged, tail) == (0, False) and names.count("handler") >= handler and names.count("program") >= program
    started, ended = ({r["id"] for r in records if r.get("e") == kind} for kind in ("start", "end"))
    # A handler may raise at the very entrance of `__exit__`, where no Python code can catch it.
    assert len(started ^ ended) <= raised // 4 and "rca.dropped" not in {r.get("n") for r in records}


@pytest.mark.parametrize("how", ["file", "ring"])
def test_analyze_names_the_request_that_hung(tmp_path: Path, how: str) -> None:
    """Long after its start was overwritten in the latest records; and nothing else is said to be open."""
    done = subprocess.run([sys.executable, str(PROGRAMS / "hangs.py"), str(tmp_path), how], env=environment(), timeout=60)
    assert done.returncode == -9
    report = rca.analyze(tmp_path)
    assert report.verdict == "inconclusive" and not report.incomplete and "`generate` (rollout, step 19) of controller" in report.judged.summary
    opened = [e for e in report.run.events if e.kind in (Kind.REQUEST_OPEN, Kind.ENDS_INSIDE)]
    (event,) = [e for e in opened if e.attrs["op"] == "generate"]  # in the ring no other one is left to compare it with
    assert (event.kind, event.stage, event.step, event.attrs["callee"]) == (Kind.REQUEST_OPEN if how == "file" else Kind.ENDS_INSIDE, "rollout", 19, "rollout/3")
    assert {e.attrs["op"] for e in opened} <= {"generate", "poll"}
