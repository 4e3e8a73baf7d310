"""The size cap: the first segment is kept, two more take turns, and no reader takes a span for open that ended in another segment, or loses one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rca import trace_inject as rt
from rca.correlate import spans as span_tables
from rca.correlate import traced
from rca.ingest.read import ingest
from rca.taxonomy import Kind
from rca.trace_inject import context, guard, recorder

CAP = 1 << 20
TOLERANCE = 256 << 10  # bytes beyond the cap: what four threads write while one of them opens the next segment on a busy machine


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recording into a folder of the test's own, of one megabyte at most."""
    for name in ("RANK", "RCA_TRACE_DIR", "TRACEPARENT", "BAGGAGE", "TORCHELASTIC_RUN_ID", "RCA_TRACE_RING"):
        monkeypatch.delenv(name, raising=False)
    context.forget()
    guard.faults.clear()
    rt.install(str(tmp_path), role="train", rank=3, size_max=CAP)
    yield tmp_path
    rt.uninstall()
    recorder._asked = True
    assert guard.faults == []


def said(path: Path) -> list[dict[str, Any]]:
    """The records of one file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def open_of(folder: Path) -> tuple[set[str], list[Any]]:
    """Names of the spans without an end in the joined table, and the events of open spans that are left."""
    readings = ingest([str(folder)])[0]
    spans = span_tables.join(readings)
    rows = [row for row, end in enumerate(spans.columns["end"]) if end == span_tables.NO_TIME and spans.up[row] != span_tables.AGAIN]
    events = traced.interpret([e for r in readings for e in r.events], spans)
    return {spans.names[spans.columns["name"][row]] for row in rows}, [e for e in events if e.kind == Kind.REQUEST_OPEN]


def fill(seconds: float, threads: int = 1) -> None:
    """Spans without a pause."""

    def work() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with rt.span("short"):
                pass

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def test_three_segments_and_the_cap(folder: Path) -> None:
    """The first is kept for good, the others hold the latest, and what is open is told again in each new one."""
    with rt.step(4), rt.span("outer"):
        first = sorted(folder.glob("*.rca.jsonl"))[0]
        fill(0.2)
        kept = first.read_bytes()
        fill(0.8, threads=4)
        files = sorted(folder.glob("*.rca.jsonl"))
        assert len(files) == 3 and first.read_bytes() == kept
        assert sum(f.stat().st_size for f in files) <= CAP + TOLERANCE
        for path in files:
            head, *records = said(path)
            assert head["schema"] == "rca.trace/1" and all("schema" not in r for r in records)
            assert {r["n"] for r in records if r["e"] == "start"} >= {"step", "outer", "short"}
        assert len({said(f)[0]["start"] for f in files}) == 1
    names, _ = open_of(folder)
    assert "outer" not in names and "step" not in names


def test_open_in_one_ended_in_another(folder: Path) -> None:
    """Spans that began before a new segment and ended after it are whole; the one that is open is open once."""
    whole = [rt.span(f"long-{i}") for i in range(20)]
    for span in whole:
        span.__enter__()
    hanging = threading.Thread(target=lambda: rt.span("hangs").__enter__())
    hanging.start()
    hanging.join()
    fill(0.3)
    for span in reversed(whole):
        span.__exit__()
    fill(0.4)
    assert open_of(folder)[0] == {"hangs"}
    (later,) = folder.glob("*.2.rca.jsonl")
    assert sum(r.get("n") == "hangs" for r in said(later)) == 1


RECORDS = [
    {"schema": "rca.trace/1", "host": "n1", "pid": 5, "role": "train", "rank": 0, "start": 1757250170000000000},
    {"t": 1757250171000000000, "e": "start", "id": "a1", "tr": "7f", "n": "save", "st": "save", "s": 4},
    {"t": 1757250172000000000, "e": "start", "id": "a2", "p": "a1", "tr": "7f", "n": "write", "st": "save", "s": 4},
]
ENDED = {"t": 1757250272000000000, "e": "end", "id": "a2", "a": {"status": "error", "exception.type": "OSError", "exception.message": "[Errno 28] No space left on device"}}


def write(path: Path, *records: dict[str, Any]) -> None:
    """A journal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


def test_an_end_alone_finds_its_start(tmp_path: Path) -> None:
    """An error whose start stands in another segment has the name, stage and step of the start."""
    write(tmp_path / "a.rca.jsonl", *RECORDS)
    write(tmp_path / "a.1.rca.jsonl", {**RECORDS[0], "segment": 1}, ENDED, {"t": 1757250273000000000, "e": "end", "id": "a1"})
    readings = ingest([str(tmp_path)])[0]
    spans = span_tables.join(readings)
    (event,) = traced.interpret([e for r in readings for e in r.events if e.attrs.get("span")], spans)
    assert (event.kind, event.stage, event.step, event.attrs["op"]) == (Kind.NO_SPACE, "save", 4, "write")


def test_a_header_in_the_middle(tmp_path: Path) -> None:
    """The same process that opened its file again goes on; another one under the same pid does not."""
    rest = [{"t": 1757250173000000000, "e": "end", "id": key} for key in ("a2", "a1")]
    write(tmp_path / "same" / "a.rca.jsonl", *RECORDS, RECORDS[0], *rest)
    assert open_of(tmp_path / "same")[0] == set()
    write(tmp_path / "other" / "a.rca.jsonl", *RECORDS, {**RECORDS[0], "start": 1757250170000000009}, {"t": 1757250174000000000, "e": "start", "id": "b1", "tr": "7f", "n": "again"})
    assert open_of(tmp_path / "other")[0] == {"save", "write", "again"}


def test_behind_dropped_records(tmp_path: Path) -> None:
    """A span whose end may have been dropped is no open one; one that is told again is."""
    dropped = {"t": 1757250180000000000, "e": "event", "n": "rca.dropped", "a": {"count": 7}}
    write(tmp_path / "a.rca.jsonl", *RECORDS, dropped, {**RECORDS[1], "again": 1})
    assert open_of(tmp_path)[0] == {"save"}
    (reading,) = ingest([str(tmp_path)])[0]
    assert str(reading.reason) == "not written: records for which there was no room (7)"


def test_told_again_behind_its_end(tmp_path: Path) -> None:
    """Another thread may end a span while it is told again: the end counts."""
    write(tmp_path / "a.rca.jsonl", *RECORDS, ENDED, {**RECORDS[2], "again": 1})
    assert open_of(tmp_path)[0] == {"save"}


CLOCK = """
import time, sys
from rca import trace_inject as rt
from rca.trace_inject import journal, spans
real, shift = time.time_ns, 0
for module in (time, ):
    module.time_ns = lambda: real() + shift
spans.now = time.time_ns
rt.install(sys.argv[1], size_max=1 << 20)
with rt.span("before"): pass
shift = -3600 * 10**9
until = time.monotonic() + 0.5
while time.monotonic() < until:
    with rt.span("after"): pass
"""


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    """The cap holds although the wall clock says that the next look is an hour away."""
    subprocess.run([sys.executable, "-c", CLOCK, str(tmp_path)], check=True, timeout=60, env={"PYTHONPATH": ":".join(sys.path)})
    assert sum(f.stat().st_size for f in tmp_path.glob("*.rca.jsonl")) <= CAP + TOLERANCE
