"""Beside OpenTelemetry of several releases, and without it: the user's provider is theirs, and journal and collector tell the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.venvs import environment, python_with

NEWEST = ("opentelemetry-sdk", "opentelemetry-proto", "opentelemetry-exporter-otlp-json-file>=0.60b0")
RELEASES = [("opentelemetry-sdk==1.26.0",), ("opentelemetry-sdk==1.33.1",), NEWEST]
PROGRAM = """
import json, sys
from rca import trace_inject as rt

def provide():
    global memory, provider, trace, theirs
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    theirs = trace.get_tracer("app")

folder, order, mirrored = sys.argv[1], sys.argv[2], {"yes": True, "no": False, "unsaid": None}[sys.argv[3]]
if order == "imported":
    from opentelemetry.trace import set_tracer_provider
if order == "before":
    provide()
rt.install(folder, run="r1", otel=mirrored)
rt.install(folder, run="r1", otel=mirrored)
if order != "before":
    provide()
with rt.step(3), rt.span("mine", a=1) as mine:
    mine.set(rows=3)
    with theirs.start_as_current_span("theirs", attributes={"k": "v"}), rt.span("inner"):
        rt.event("hello", x=1)
for span in (rt.span("broken"), theirs.start_as_current_span("theirs broken")):
    try:
        with span:
            raise KeyError("x")
    except KeyError:
        pass
def left_elsewhere():
    with rt.span("generator"):
        yield
half = left_elsewhere()
import contextvars
contextvars.copy_context().run(next, half)
half.close()
with rt.extract({"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"}), rt.span("called"):
    headers = rt.inject({})
assert trace.get_tracer_provider() is provider and not trace.get_current_span().get_span_context().is_valid
from rca.trace_inject import guard
hexed = lambda c: None if c is None else f"{c.span_id:016x}"
print(json.dumps({
    "faults": guard.faults, "called": headers["traceparent"],
    "spans": {s.name: {"id": hexed(s.context), "parent": hexed(s.parent), "trace": f"{s.context.trace_id:032x}", "attributes": dict(s.attributes), "status": s.status.status_code.name,
                       "events": [e.name for e in s.events]} for s in memory.get_finished_spans()},
}))
"""


def told(folder: Path, requirements: tuple[str, ...], order: str, mirrored: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the user's exporter got, and what the journal says."""
    done = subprocess.run([python_with(*requirements), "-c", PROGRAM, str(folder), order, mirrored], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [line for path in folder.glob("*.rca.jsonl") for line in path.read_text().splitlines()]
    return json.loads(done.stdout), [r for r in map(json.loads, lines) if "schema" not in r]


@pytest.mark.real
@pytest.mark.parametrize("requirements", RELEASES, ids=lambda r: r[0])
@pytest.mark.parametrize("order", ["before", "imported", "later"])
def test_their_spans_come_into_the_journal(requirements: tuple[str, ...], order: str, tmp_path: Path) -> None:
    """Each span of theirs once, with its parent, whenever the provider was set; their collector sees nothing of ours."""
    exported, records = told(tmp_path, requirements, order, "unsaid")
    assert exported["faults"] == []
    assert list(exported["spans"]) == ["theirs", "theirs broken"]
    starts = {r["n"]: r for r in records if r["e"] == "start"}
    assert sorted(r["n"] for r in records if r["e"] == "start") == ["broken", "called", "generator", "inner", "mine", "step", "theirs", "theirs broken"]
    ends = {r["id"]: r.get("a", {}) for r in records if r["e"] == "end"}
    assert set(ends) == {r["id"] for r in starts.values()}
    assert (starts["theirs"]["id"], starts["theirs"]["tr"]) == (exported["spans"]["theirs"]["id"], exported["spans"]["theirs"]["trace"])
    assert starts["theirs"]["p"] == starts["mine"]["id"]
    assert (starts["theirs"]["s"], starts["theirs"]["a"]) == (3, {"k": "v"})
    broken = ends[starts["theirs broken"]["id"]]
    assert (broken["status"], broken["exception.type"], broken["exception.message"]) == ("error", "KeyError", "'x'")


@pytest.mark.real
@pytest.mark.parametrize("requirements", RELEASES, ids=lambda r: r[0])
@pytest.mark.parametrize("order", ["before", "later"])
def test_ours_go_to_their_collector(requirements: tuple[str, ...], order: str, tmp_path: Path) -> None:
    """Each span once on either side, with one id, one trace and one parent."""
    exported, records = told(tmp_path, requirements, order, "yes")
    assert exported["faults"] == []
    starts = [r for r in records if r["e"] == "start"]
    assert len(starts) == len(exported["spans"]) == 8 and {r["id"] for r in starts} == {r["id"] for r in records if r["e"] == "end"}
    for record in starts:
        there = exported["spans"][record["n"]]
        assert (record["id"], record["tr"]) == (there["id"], there["trace"])
        if record["p"]:
            assert record["p"] == there["parent"]
    by_name = {r["n"]: r for r in starts}
    assert [by_name[n]["p"] for n in ("mine", "theirs", "inner", "called")] == [by_name["step"]["id"], by_name["mine"]["id"], by_name["theirs"]["id"], "cd" * 8]
    assert exported["called"] == f"00-{'ab' * 16}-{by_name['called']['id']}-01"
    assert exported["spans"]["mine"]["attributes"] == {"a": 1, "rca.step": 3, "rows": 3}
    assert (exported["spans"]["broken"]["status"], exported["spans"]["broken"]["events"], exported["spans"]["inner"]["events"]) == ("ERROR", ["exception"], ["hello"])
    assert len({by_name[n]["tr"] for n in ("step", "mine", "theirs", "inner", "broken", "generator")}) == 1


HOSTILE = """
import os, signal, sys, time
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from rca import trace_inject as rt
from rca.trace_inject import guard

class Broken(SpanProcessor):
    armed = True
    def on_start(self, span, parent_context=None):
        if self.armed:
            raise RuntimeError("their bug")

broken = Broken()
provider = TracerProvider()
provider.add_span_processor(broken)
trace.set_tracer_provider(provider)
rt.install(sys.argv[1], otel=True)
for i in range(5):
    with rt.span("kept"):
        pass
assert len(guard.faults) == 1, guard.faults
from rca.trace_inject import mirror
broken.armed = False
mirror.start()

class Stop(Exception):
    pass

wanted = False

def handler(number, frame):
    if wanted:
        raise Stop

import logging
logging.disable(logging.ERROR)  # where it meets OpenTelemetry's own code, that may log it and go on: then the next one comes
signal.signal(signal.SIGALRM, handler)
stopped = 0
for i in range(200):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.000005 * i, 0.01)
        wanted = True
        while True:
            with rt.span("interrupted"):
                pass
    except Stop:
        wanted = False
        stopped += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert stopped == 200 and len(guard.faults) == 1, (stopped, guard.faults)
pid = os.fork()
if pid == 0:
    with rt.span("child"):
        os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
with rt.span("last"):
    pass
"""


@pytest.mark.real
def test_a_broken_processor_and_handlers_that_raise(tmp_path: Path) -> None:
    """Their processor's bug ends the mirroring and nothing else; what their handler raises reaches them; a fork does not hang."""
    done = subprocess.run([python_with(*NEWEST), "-c", HOSTILE, str(tmp_path)], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for path in tmp_path.glob("*.rca.jsonl") for line in path.read_text().splitlines()]
    ended = {r["id"] for r in records if r.get("e") == "end"}
    assert sum(r.get("n") == "kept" and r["id"] in ended for r in records if r.get("e") == "start") == 5
    assert any(r.get("n") == "last" and r["id"] in ended for r in records if r.get("e") == "start")
    assert any(r.get("n") == "child" for r in records)


@pytest.mark.real
def test_left_alone(tmp_path: Path) -> None:
    """`otel=False`: neither way."""
    exported, records = told(tmp_path, RELEASES[-1], "later", "no")
    assert list(exported["spans"]) == ["theirs", "theirs broken"]
    assert not any(r.get("n", "").startswith("theirs") for r in records)


@pytest.mark.real
def test_without_it(tmp_path: Path) -> None:
    """Nothing of OpenTelemetry installed: everything else works, whatever is asked for, and an import is cheap (of processor time: the machine has others to serve)."""
    program = (
        "import sys, time\nbegan = time.process_time()\nfrom rca import trace_inject as rt\ntook = time.process_time() - began\n"
        f"rt.install({str(tmp_path)!r}, otel=True)\nwith rt.span('a'): rt.event('b')\n"
        "assert rt.install_otel() is False and rt.guard.faults == []\nassert not any(m.startswith('opentelemetry') for m in sys.modules)\nprint(took * 1e3)"
    )
    took = []
    for _ in range(5):
        done = subprocess.run([python_with(), "-c", program], env=environment(PYTHONDONTWRITEBYTECODE=""), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        took.append(float(done.stdout))
    assert min(took) <= 50, took
    assert [json.loads(line).get("e") for path in tmp_path.glob("*.rca.jsonl") for line in path.read_text().splitlines()] == [None, "start", "event", "end", "event"] * 5
