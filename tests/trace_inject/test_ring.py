"""The ring: the newest records survive in a file of fixed size, in order, and what is open is named however long ago it began."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rca import trace_inject as rt
from rca.correlate import spans as span_tables
from rca.ingest.read import ingest
from rca.model import Reading
from rca.trace_inject import context, export, guard, recorder, spans
from rca.trace_inject.ring import SLOT, SLOTS_LEAST

SIZE = SLOT * SLOTS_LEAST


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recording into a ring of 64 slots."""
    for name in ("RANK", "RCA_TRACE_DIR", "TRACEPARENT", "BAGGAGE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    context.forget()
    guard.faults.clear()
    rt.install(str(tmp_path), role="train", rank=3, size_max=SIZE, ring=True)
    yield tmp_path
    rt.uninstall()
    recorder._asked = True
    assert guard.faults == [] and spans.write is os.write


def read(folder: Path) -> tuple[Reading, list[tuple[str, bool]]]:
    """The reading of the one file, and its spans in order: name, and whether it is open."""
    (reading,) = ingest([str(folder)])[0]
    found = span_tables.join([reading])
    columns = found.columns
    return reading, [(found.names[name], end == span_tables.NO_TIME) for name, end in zip(columns["name"], columns["end"], strict=True)]


def test_few_records(folder: Path) -> None:
    """The same as in any journal."""
    with rt.step(4), rt.stage("train"):
        rt.event("loss", value=0.5)
    hanging = rt.span("hangs")
    hanging.__enter__()
    (path,) = folder.glob("train-3-*.ring-*.rca.jsonl")
    assert path.stat().st_size == SIZE + SLOT
    assert [json.loads(line).get("e") for line in path.read_text().splitlines() if line.strip()] == [None, "start", "start", "event", "end", "end", "start"]
    reading, rows = read(folder)
    assert rows == [("train", False), ("step", False), ("hangs", True)] and (reading.damaged, reading.reason) == (0, None)
    hanging.__exit__()


def test_overwritten(folder: Path) -> None:
    """The newest are kept in the order they were written, the number of lost ones is known; a span that began long ago and one that ended are told apart."""
    hanging = threading.Thread(target=lambda: rt.span("hangs").__enter__())
    hanging.start()
    hanging.join()
    over = rt.span("over")
    over.__enter__()
    for number in range(1000):
        if number == 990:
            over.__exit__()
        with rt.span("short", number=number):
            pass
    reading, rows = read(folder)
    assert [name for name, is_open in rows if is_open] == ["hangs"]
    assert 20 < sum(name == "short" for name, _ in rows) <= SLOTS_LEAST // 2
    missing = int(str(reading.reason).rpartition("(")[2].rstrip(")"))
    assert missing > 2 + 2000 - SLOTS_LEAST
    (path,) = folder.glob("*.rca.jsonl")
    assert path.stat().st_size == SIZE + SLOT


def test_a_slot_that_was_half_copied(folder: Path) -> None:
    """The first byte of a slot comes last: without it the record is dropped and counted."""
    for _ in range(3):
        with rt.span("whole"):
            pass
    (path,) = folder.glob("*.rca.jsonl")
    with open(path, "r+b") as file:
        file.seek(SLOT * 5)
        file.write(b" ")  # the third start
        file.seek(SLOT * 6 + 40)
        file.write(b"\xff\xff")  # and its end
    reading, rows = read(folder)
    assert rows == [("whole", False)] * 2 and reading.damaged == 2


def test_long_records(folder: Path) -> None:
    """What does not fit into a slot is cut; a short record in the place of a long one leaves nothing of it."""
    for _ in range(SLOTS_LEAST):
        rt.event("long", text="x" * 900, more="y" * 900)
    for _ in range(SLOTS_LEAST // 2):
        rt.event("short")
    (path,) = folder.glob("*.rca.jsonl")
    found = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
    assert all(len(line) == SLOT - 1 for line in path.read_bytes().split(b"\n")[:-1])
    assert [r["a"]["rca.cut"] for r in found if r.get("n") == "long"] and sum(r.get("n") == "short" for r in found) >= SLOTS_LEAST // 2 - 2


def test_children_write_files(folder: Path) -> None:
    """Many workers with a ring each would fill the memory."""
    with rt.span("parent"):
        pid = os.fork()
        if pid == 0:
            with rt.span("child"):
                pass
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    (child,) = [p for p in folder.glob("*.rca.jsonl") if "ring" not in p.name]
    assert '"n":"child"' in child.read_text() and child.stat().st_size < 2000
    (ring,) = folder.glob("*.ring-*")
    assert '"n":"child"' not in ring.read_text()


def test_from_a_ring_to_a_file(folder: Path) -> None:
    """Another `install` in the midst of spans: they end in the new journal, and are whole for the reader of both."""
    with rt.span("across"):
        rt.install(str(folder), role="train", rank=3, ring=False)
    found = span_tables.join(ingest([str(folder)])[0])
    assert [found.names[found.columns["name"][row]] for row, up in enumerate(found.up) if up != span_tables.AGAIN and found.columns["end"][row] == span_tables.NO_TIME] == []


def test_deleted_and_made_again(folder: Path) -> None:
    """Within half a round of a deletion there is a new ring, with what is open in it."""
    with rt.span("around"):
        for path in folder.glob("*"):
            path.unlink()
        for _ in range(SLOTS_LEAST):
            with rt.span("work"):
                pass
        _, rows = read(folder)
        assert ("around", True) in rows and ("work", False) in rows


def test_exported_in_order(folder: Path) -> None:
    """The command sees the records in the order of their rounds: no span ends before it starts."""
    hanging = rt.span("hangs")
    hanging.__enter__()
    for _ in range(100):
        with rt.span("short"):
            pass
    problems: list[str] = []
    found = [s for group in export.journals([str(folder)]) for r in export.requests(group, problems) for p in r["resourceSpans"] for scope in p["scopeSpans"] for s in scope["spans"]]
    names = [s["name"] for s in found if s["status"]["code"] == 2]
    assert names == ["hangs"] and sum(s["name"] == "short" for s in found) > 20 and not problems
    hanging.__exit__()
