"""Every other format of traces: what is read of it, and what its deviations and damage cost."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from ingest.test_spans_otlp import read, rows

from rca.ingest.spans import chrome, console, jaeger, rca_trace, zipkin
from rca.ingest.spans.table import NO_TIME
from rca.taxonomy import Kind

US = 1_795_176_000_000_000  # noon, in microseconds
NS = US * 1000


def kinds(reading: Any) -> list[str]:
    """The kinds of a reading's events."""
    return [e.kind for e in reading.events]


# -- the SDK's console exporter ------------------------------------------------------------------------------------------


def test_console_objects_between_lines(tmp_path: Path) -> None:
    """Pretty objects one behind the other, with lines of something else between them, and the last one cut."""
    text = console.SAMPLE.strip() + "\n2026-09-07 13:03:00 ERROR torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n" + console.SAMPLE.replace("train_step", "save").replace("eee19b", "ddd19b").strip() + "\n" + console.SAMPLE[:200]
    reading = read(tmp_path, text, "spans.txt")
    assert reading.format == "console" and [r["name"] for r in rows(reading)] == ["train_step", "save"]
    (between, first, second) = reading.events
    assert between.kind == Kind.DEVICE_OOM and text[between.offset :].startswith("2026-09-07 13:03")
    assert (first.kind, first.step, first.pid, first.time_ns) == (Kind.EXCEPTION, 12, 7, 1788786178001000000)
    assert "eee19b7ec3c1b174" in first.attrs["raw"] and text[first.offset :].lstrip().startswith('"context"')
    assert second.offset > first.offset


def test_console_span_without_an_end(tmp_path: Path) -> None:
    """`end_time: null` is a span that never ended."""
    reading = read(tmp_path, console.SAMPLE.replace('"2026-09-07T13:02:58.001500Z"', "null").strip(), "spans.json")
    assert rows(reading)[0]["end"] == NO_TIME and kinds(reading) == [Kind.REQUEST_OPEN]


# -- Jaeger --------------------------------------------------------------------------------------------------------------


def trace(**changes: Any) -> dict[str, Any]:
    """A trace with a caller and its callee."""
    tags = [{"key": "span.kind", "type": "string", "value": "client"}, {"key": "peer.service", "type": "string", "value": "rollout-1"}, {"key": "error", "type": "bool", "value": True}, {"key": "http.status_code", "type": "int64", "value": "503"}]
    spans = [
        {"traceID": "ab", "spanID": "1", "operationName": "rpc.generate", "references": [], "startTime": US, "duration": 2_000_000, "tags": tags, "logs": [], "processID": "p1"},
        {"traceID": "ab", "spanID": "2", "operationName": "generate", "references": [{"refType": "CHILD_OF", "traceID": "ab", "spanID": "1"}], "startTime": US + 10, "duration": 1000, "tags": [{"key": "span.kind", "type": "string", "value": "server"}],
         "logs": [{"timestamp": US + 20, "fields": [{"key": "event", "value": "error"}, {"key": "error.object", "value": "ValueError"}, {"key": "message", "value": "bad"}]}], "processID": "p2"},
    ]  # fmt: skip
    processes = {"p1": {"serviceName": "controller", "tags": [{"key": "hostname", "value": "n1"}]}, "p2": {"serviceName": "rollout", "tags": [{"key": "hostname", "value": "n2"}, {"key": "ip", "value": "10.0.0.2"}]}}
    return {"traceID": "ab", "spans": spans, "processes": processes, "warnings": None} | changes


@pytest.mark.parametrize("indent", [None, 2])
def test_jaeger_export(tmp_path: Path, indent: int | None) -> None:
    """Microseconds, processes that come behind their spans, tags for status and kind."""
    reading = read(tmp_path, json.dumps({"data": [trace()], "total": 0, "errors": None}, indent=indent), "trace.json")
    one, two = rows(reading)
    assert (one["start"], one["end"] - one["start"], one["mark"], one["peer"]) == (NS, 2_000_000_000, 3 + 16, ("rollout-1", None, None))
    assert two["proc"] == {"host": "n2", "service": "rollout", "address": "10.0.0.2"} and two["parent"] == one["span"]
    assert reading.format == "jaeger" and kinds(reading) == [Kind.RPC_FAILED, Kind.EXCEPTION]


def test_jaeger_in_elasticsearch(tmp_path: Path) -> None:
    """One document per span, with its process inside and tags as fields."""
    span = trace()["spans"][0] | {"process": {"serviceName": "c", "tag": {"host@name": "n9"}}, "tag": {"error": True, "span@kind": "client"}, "tags": [], "parentSpanID": "77"}
    reading = read(tmp_path, "".join(json.dumps({"_index": "jaeger-span-2026-11-20", "_source": span}) + "\n" for _ in range(2)), "dump.json")
    assert [(r["proc"].get("host"), r["parent"], r["mark"]) for r in rows(reading)] == [("n9", 0x77, 19)] * 2


def test_cut_jaeger_keeps_its_spans(tmp_path: Path) -> None:
    """Of a document that breaks off the whole spans are there; their processes stood behind them."""
    text = json.dumps({"data": [trace()]}, indent=1)
    reading = read(tmp_path, text[: text.index('"processes"') - 30], "trace.json")
    assert len(rows(reading)) >= 1


# -- Zipkin --------------------------------------------------------------------------------------------------------------


def test_zipkin(tmp_path: Path) -> None:
    """Arrays of arrays; no duration is no end; the key `error` marks a failure whatever it holds; both halves may share an id."""
    server = {"traceId": "1" * 16, "id": "2" * 16, "kind": "SERVER", "name": "/call", "timestamp": US, "duration": 500, "localEndpoint": {"serviceName": "train", "ipv4": "10.0.0.5"}, "shared": True}
    client = server | {"kind": "CLIENT", "duration": 900, "tags": {"error": "500", "http.status_code": "500"}, "localEndpoint": {"serviceName": "controller"}, "remoteEndpoint": {"serviceName": "train", "ipv4": "10.0.0.5", "port": 8001}}
    client.pop("shared")
    dead = {k: v for k, v in server.items() if k not in ("duration", "shared")} | {"id": "3" * 16}
    reading = read(tmp_path, json.dumps([[client, server], [dead]]), "spans.json")
    assert [(r["mark"], r["end"] == NO_TIME) for r in rows(reading)] == [(3 + 16, False), (2, False), (2, True)]
    assert rows(reading)[0]["peer"] == ("train", "10.0.0.5", 8001) and sorted(kinds(reading)) == [Kind.REQUEST_OPEN, Kind.RPC_ERROR_REPLY]


# -- Chrome --------------------------------------------------------------------------------------------------------------


def test_ray_timeline(tmp_path: Path) -> None:
    """Tasks with the address of their node and the time of day."""
    events = [{"cat": "task::f", "name": "task::WorkerDict.update", "ph": "X", "ts": US + 0.5, "dur": 1500, "pid": "10.0.0.7", "tid": "worker:a", "args": {"task_id": "t1"}}] * 3
    reading = read(tmp_path, json.dumps(events), "timeline.json")
    assert reading.format == "chrome" and [(r["proc"]["host"], r["end"] - r["start"]) for r in rows(reading)] == [("10.0.0.7", 1_500_000)] * 3


def test_areal_tracer_has_no_wall_clock(tmp_path: Path) -> None:
    """Times that count from the tracer's start are durations only; the rank is in the name of the file."""
    lines = [{"name": "train_step", "ph": "X", "ts": 10.0 + i, "dur": 5, "pid": 3, "tid": 0, "cat": "compute", "args": {"global_step": i}} for i in range(4)]
    folder = tmp_path / "perf_tracer" / "actor"
    folder.mkdir(parents=True)
    reading = read(folder, "".join(json.dumps(x) + "\n" for x in lines) + '{"name": "cut', "traces-r3.jsonl")
    assert rows(reading)[0]["proc"]["rank"] == 3 and reading.damaged == 1 and not reading.facts["spans"][0]["clock"]
    assert all(stream["last"] is None for stream in reading.facts["streams"].values())


def test_array_that_was_never_closed(tmp_path: Path) -> None:
    """The array form may break off anywhere; begin and end are paired, what has no end is open."""
    events = [{"name": "step", "ph": "B", "ts": US, "pid": 1, "tid": 1}, {"name": "save", "ph": "B", "ts": US + 5, "pid": 1, "tid": 1}, {"ph": "E", "ts": US + 9, "pid": 1, "tid": 1}]
    reading = read(tmp_path, "[" + ",\n".join(json.dumps(e) for e in events) + ",\n", "trace.json")
    assert [(r["name"], r["end"] == NO_TIME) for r in rows(reading)] == [("save", False), ("step", True)]


def test_torch_profile(tmp_path: Path) -> None:
    """Of a profile only the process and its steps are read, compressed or not."""
    events = [{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5.0, "dur": 1.0, "args": {"stream": 7}}] * 500
    events += [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 9, "tid": 9, "ts": 100.5 + n, "dur": 50.25} for n in (3, 4)]
    document = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 16}, "baseTimeNanoseconds": NS, "traceEvents": events}
    (tmp_path / "x").mkdir()
    reading = read(tmp_path / "x", gzip.compress(json.dumps(document).encode()), "node7_811.1757250178000.pt.trace.json.gz")
    found = rows(reading)
    assert [(r["phase"][1], r["end"] - r["start"]) for r in found] == [(3, 50_250), (4, 50_250)]
    assert found[0]["proc"] == {"host": "node7", "pid": 811, "rank": 5, "world": 16} and found[0]["start"] // 10**9 == NS // 10**9


# -- rca.trace/1 ---------------------------------------------------------------------------------------------------------


def journal(*records: dict[str, Any], **header: Any) -> str:
    """A process's journal."""
    head = {"schema": "rca.trace/1", "host": "n1", "pid": 5, "role": "train", "rank": 0, "run": "r", "start": NS, "clock": {"wall": NS, "monotonic": 1000}} | header
    return "".join(json.dumps(r) + "\n" for r in (head, *records))


def test_a_span_that_never_ended(tmp_path: Path) -> None:
    """A start without an end is on disk however the process went: SIGKILL cut the last line."""
    text = journal({"t": NS, "e": "start", "id": "1", "n": "train_step", "st": "train", "s": 4}, {"t": NS + 5, "e": "start", "id": "2", "p": "1", "n": "all_reduce"}) + '{"t": 17'
    reading = read(tmp_path, text, "train-0-n1-5.rca.jsonl")
    assert reading.format == "rca_trace" and reading.damaged == 1
    assert [(r["name"], r["end"] == NO_TIME, r["proc"]["rank"]) for r in rows(reading)] == [("train_step", True, 0), ("all_reduce", True, 0)]
    assert kinds(reading) == [Kind.REQUEST_OPEN] * 2 and reading.events[0].step == 4


def test_failed_span_and_monotonic_times(tmp_path: Path) -> None:
    """Times of the monotonic clock are brought to the wall by the header's pair; an error in the end record is a failure."""
    text = journal({"t": 1000, "e": "start", "id": "1", "n": "save", "st": "save", "s": 2}, {"t": 2_000_001_000, "e": "end", "id": "1", "a": {"exception.type": "OSError", "exception.message": "[Errno 28] No space left on device"}})
    reading = read(tmp_path, text, "a.rca.jsonl")
    assert rows(reading)[0]["end"] == NS + 2_000_000_000 and kinds(reading) == [Kind.NO_SPACE]
    assert (reading.events[0].host, reading.events[0].rank, reading.events[0].stage, reading.events[0].time_ns) == ("n1", 0, "save", NS + 2_000_000_000)


@pytest.mark.parametrize(("attributes", "kind"), [({"complete": False}, Kind.SAVE_OPEN), ({"complete": True}, Kind.SAVED), ({"complete": False, "fsync": "EIO"}, Kind.SAVE_FAILED), ({"complete": False, "error": "Input/output error"}, Kind.SAVE_FAILED)])
def test_checkpoints(tmp_path: Path, attributes: dict[str, Any], kind: str) -> None:
    """What became of a checkpoint is told with its path."""
    reading = read(tmp_path, journal({"t": NS, "e": "checkpoint", "id": "c", "n": "latest", "st": "latest_recover_save", "s": 7, "a": {"path": "/nfs/c7", **attributes}}), "a.rca.jsonl")
    (event,) = reading.events
    assert (event.kind, event.path, event.step, event.stage) == (kind, "/nfs/c7", 7, "latest_recover_save")


# -- all of them ---------------------------------------------------------------------------------------------------------

SAMPLES = {
    "console.json": console.SAMPLE.strip(), "jaeger.json": json.dumps({"data": [trace()]}), "jaeger_pretty.json": json.dumps({"data": [trace()]}, indent=2), "zipkin.json": zipkin.SAMPLE,
    "chrome.json": json.dumps({"traceEvents": [{"name": "a", "ph": "X", "ts": US, "dur": 4, "pid": 1, "tid": 1}] * 3}), "journal.jsonl": rca_trace.SAMPLE, "jaeger_sample.json": jaeger.SAMPLE,
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_any_damage_is_no_traceback(tmp_path: Path, name: str) -> None:
    """Cuts, overwritten bytes and wrong types cost what they hit; the file is still read."""
    rng = random.Random(name)
    text = SAMPLES[name].encode()
    values = [b"null", b"[]", b"{}", b'"x"', b"-1", b"1e400", b"9" * 5000, b"true", b"[" * 3000]
    for number in range(60):
        data = bytearray(text[: rng.randrange(len(text) // 4, len(text) + 1)])
        if number % 2:
            colon = data.find(b":", rng.randrange(len(data)))
            end = min(x for x in (data.find(b",", colon), data.find(b"}", colon), len(data)) if x >= 0)
            data[colon + 1 : end] = rng.choice(values)
        else:
            for _ in range(3):
                data[rng.randrange(len(data))] = rng.randrange(256)
        reading = read(tmp_path, bytes(data), name)
        assert reading.parsed + reading.plain + reading.skipped == len(data)


def test_formats_do_not_take_each_other() -> None:
    """Each sample is recognised as its own format."""
    from rca.ingest import spans

    for name, text in SAMPLES.items():
        module = spans.format_of(text[:4096].encode())
        assert module is not None and module.__name__.rsplit(".", 1)[-1].startswith(name.split(".")[0].split("_")[0].replace("journal", "rca_trace")), name
    assert chrome.recognise(b'{"level":"info","msg":"x"}') is False
