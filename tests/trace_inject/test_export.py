"""`rca trace export --otlp`: valid by the protocol's own classes, and the same spans as the journal's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rca import cli
from rca.ingest.sources import list_sources, read_range
from rca.ingest.spans import otlp, rca_trace
from rca.ingest.spans.table import Table
from rca.trace_inject.export import journals
from tests.trace_inject.test_otel import NEWEST
from tests.venvs import environment, python_with

PROGRAM = """
import os, sys, time
from rca import trace_inject as rt
rt.install(sys.argv[1], role="rollout", rank=2, run="r1", size_max=int(sys.argv[2]), ring=len(sys.argv) > 4)
with rt.step(4), rt.stage("rollout"):
    held = rt.Span("held to the end").__enter__()
    for i in range(int(sys.argv[3])):
        with rt.request(), rt.span("call", peer="reward/0", share=0.5, sizes=[1, 2], big=1 << 70) as span:
            span.set(rows=i)
            rt.handoff("batch", b"123", to="train/1")
        if i % 50 == 49:
            time.sleep(0.06)  # the size of the file is looked at every 50 ms
    try:
        with rt.span("breaks"):
            raise ValueError("no \\u00fcber")
    except ValueError:
        pass
rt.emit_event("switch", receivers=["train/0"]) if hasattr(rt, "emit_event") else None
os.kill(os.getpid(), 9)
"""
VALID = """
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

count = 0
for line in open(sys.argv[1]):
    request = json.loads(line)
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name, size in (("traceId", 16), ("spanId", 8), ("parentSpanId", 8)):
                    if name in span:
                        data = bytes.fromhex(span[name])
                        assert len(data) == size and any(data), span
                        span[name] = base64.b64encode(data).decode()
                count += 1
    found = json_format.Parse(json.dumps(request), ExportTraceServiceRequest())
    for resource in found.resource_spans:
        assert any(a.key == "host.name" for a in resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano and span.name
print(count)
"""


def made(folder: Path, size_max: int = 1 << 20, count: int = 3, *more: str) -> Path:
    """The journal of a process that was killed."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), str(size_max), str(count), *more], env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (-9, "")
    return folder


def spans(module: Any, folder: Path) -> list[tuple]:
    """All spans of the files of a folder, as a reader of the analyzer sees them."""
    found = []
    for source in list_sources([folder]):
        table = Table()
        module.read(source, read_range(source, 0, 4096), table)
        assert table.damaged == 0
        columns = table.columns
        for row in range(len(table)):
            about = {k: v for k, v in table.procs[columns["proc"][row]].items() if k != "service"}
            times = tuple(columns[n][row] for n in ("start", "end", "trace", "span", "parent", "mark"))
            found.append((*times, table.names[columns["name"][row]], tuple(sorted(about.items())), table.phases[columns["phase"][row]], table.peers[columns["peer"][row]]))
    return sorted(found)


def exported(folder: Path, to: Path) -> Path:
    """The export of a folder."""
    assert cli.main(["trace", "export", "--otlp", "-o", str(to), str(folder)]) == 0
    return to


@pytest.mark.parametrize("form", [(), ("ring",)], ids=["file", "ring"])
def test_the_same_spans_are_read_from_either(form: tuple[str, ...], tmp_path: Path) -> None:
    """Times, ids, names, processes, steps, callees, ends and the lack of one."""
    made(tmp_path / "journal", 1 << 20, 3, *form)
    (tmp_path / "otlp").mkdir()
    exported(tmp_path / "journal", tmp_path / "otlp" / "t.jsonl")
    ours = spans(rca_trace, tmp_path / "journal")
    theirs = [s for s in spans(otlp, tmp_path / "otlp") if s[6] != "ack" and not s[6].startswith(("event ", "switch"))]
    assert theirs == ours
    assert sum(s[6] == "held to the end" for s in ours) == 1


def test_segments_of_one_process_are_one_journal(tmp_path: Path) -> None:
    """What is open is told again in each segment, and exported once."""
    made(tmp_path / "journal", 16 << 10, 400)
    (group,) = journals([str(tmp_path / "journal")])
    assert len(group) == 3
    lines = exported(tmp_path / "journal", tmp_path / "t.jsonl").read_text().splitlines()
    found = [s for line in lines for r in json.loads(line)["resourceSpans"] for scope in r["scopeSpans"] for s in scope["spans"]]
    assert sum(s["name"] == "held to the end" for s in found) == 1
    assert len({s["spanId"] for s in found}) == len(found)


def test_what_is_damaged_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A torn line is left out, said, and the exit code is 3; without a journal it is 2."""
    journal = next(made(tmp_path / "journal").glob("*.rca.jsonl"))
    journal.write_bytes(journal.read_bytes() + b'{"t":12,"e":"sta')
    assert cli.main(["trace", "export", "--otlp", str(tmp_path / "journal")]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[0]) and "1 damaged line left out" in err
    (tmp_path / "none").mkdir()
    assert cli.main(["trace", "export", "--otlp", str(tmp_path / "none")]) == 2
    assert cli.main(["trace", "export", "--otlp", str(tmp_path / "missing")]) == 2


@pytest.mark.real
def test_it_is_valid(tmp_path: Path) -> None:
    """By the classes of opentelemetry-proto, once the hexadecimal ids are what protobuf's own JSON has."""
    file = exported(made(tmp_path / "journal", count=700), tmp_path / "t.jsonl")
    done = subprocess.run([python_with(*NEWEST), "-c", VALID, str(file)], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1404
