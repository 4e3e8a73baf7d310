"""OTLP in JSON, in its usual spelling and in every deviation that is seen."""

from __future__ import annotations

import base64
import itertools
import json
import random
from array import array
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from spans import NOON_NS, failed_client, line, request, span

from rca.ingest import excerpt, series
from rca.ingest import spans as spans_room
from rca.ingest.engines import matcher
from rca.ingest.read import literal_table, read_source, reading
from rca.ingest.signatures import load
from rca.ingest.sources import list_sources
from rca.ingest.spans import otlp
from rca.ingest.spans.table import NO_TIME, Table, number_of_id
from rca.taxonomy import Kind


@cache
def engine() -> tuple[Any, Any]:
    """What finds the phrases of signatures; made once."""
    literals, by_literal = literal_table(load())
    return matcher(literals), by_literal


def read(folder: Path, text: str | bytes, name: str = "traces.jsonl") -> Any:
    """The reading of one file, as `ingest` gives it."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (source,) = list_sources([folder / name])
    found = source.reason is None and spans_room.read(source, *engine(), 100)
    if not found and source.reason is None:
        found = read_source(source, *engine(), (excerpt.share(1), excerpt.hits_share(1), series.share(1)))
    return reading(source, found)


def rows(reading: Any) -> list[dict[str, Any]]:
    """The rows of a reading's table, with names and phases written out."""
    table = reading.facts["spans"][0]
    columns = {}
    for name, code in (("start", "q"), ("end", "q"), ("span", "Q"), ("parent", "Q"), ("name", "I"), ("proc", "I"), ("phase", "I"), ("peer", "I"), ("mark", "B"), ("offset", "Q")):
        columns[name] = array(code)
        columns[name].frombytes(table["columns"][name])
    found = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in found:
        row |= {"name": table["names"][row["name"]], "phase": tuple(table["phases"][row["phase"]]), "proc": table["procs"][row["proc"]], "peer": tuple(table["peers"][row["peer"]])}
    return found


def test_a_line_is_a_request(tmp_path: Path) -> None:
    """One request a line: every span has its process, stage, step, callee and the offset of its line."""
    first = line(request([span(name="rpc.rollout", kind=3, stage="gen", step=4, peer="rollout/2")]))
    reading = read(tmp_path, first + line(request([span(id="b" * 16, parent="a" * 16, name="rollout", kind=2)], service="rollout-worker", host="n2", pid=7)))
    assert reading.format == "otlp" and reading.damaged == 0
    one, two = rows(reading)
    assert (one["name"], one["phase"], one["peer"], one["mark"]) == ("rpc.rollout", ("rollout", 4), ("rollout/2", None, None), 3 + 8)
    assert one["proc"] == {"host": "n1", "pid": 11, "service": "controller"} and two["proc"]["host"] == "n2"
    assert (two["offset"], two["parent"], two["start"]) == (len(first), one["span"], NOON_NS)


DEVIATIONS: dict[str, Any] = {
    "numbers for strings": lambda s: s | {"startTimeUnixNano": int(s["startTimeUnixNano"]), "endTimeUnixNano": int(s["endTimeUnixNano"])},
    "kind by name": lambda s: s | {"kind": "SPAN_KIND_CLIENT"},
    "kind by short name": lambda s: s | {"kind": "CLIENT"},
    "upper-case ids": lambda s: s | {"spanId": s["spanId"].upper(), "traceId": s["traceId"].upper()},
    "ids in base64": lambda s: s | {k: base64.b64encode(bytes.fromhex(s[k])).decode() for k in ("traceId", "spanId")},
    "parent of zeros": lambda s: s | {"parentSpanId": "0" * 16},
    "parent null": lambda s: s | {"parentSpanId": None},
    "no parent": lambda s: {k: v for k, v in s.items() if k != "parentSpanId"},
    "microseconds": lambda s: s | {k: s[k][:-3] for k in ("startTimeUnixNano", "endTimeUnixNano")},
    "unknown keys": lambda s: s | {"traceState": "", "flags": 257, "droppedAttributesCount": 1, "links": [{"traceId": "x"}], "new": {"a": [1, {}]}},
    "attributes null beside": lambda s: s | {"events": None, "links": None},
    "status by name": lambda s: s | {"status": {"code": "STATUS_CODE_OK"}},
    "values of other kinds": lambda s: s | {"attributes": [*s["attributes"], {"key": "a", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}}, {"key": "b"}, {"key": "c", "value": {"kvlistValue": {"values": []}}}]},
    "snake case": lambda s: {"".join("_" + c.lower() if c.isupper() else c for c in k): v for k, v in s.items()},
    "double step": lambda s: s | {"attributes": [{"key": "train.step", "value": {"doubleValue": 4.0}}, {"key": "train.stage", "value": {"stringValue": "gen"}}]},
    "step as text": lambda s: s | {"attributes": [{"key": "train.step", "value": {"stringValue": "4"}}, {"key": "train.stage", "value": {"stringValue": "gen"}}]},
}


@pytest.mark.parametrize("decoder", ["typed", "tolerant"])
@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviations_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, decoder: str) -> None:
    """However a writer spells it, the row is the same; with and without the typed decoder."""
    if decoder == "tolerant":
        monkeypatch.setattr(otlp, "msgspec", None)
    usual = span(name="rpc.rollout", kind=3, stage="gen", step=4)
    plain = rows(read(tmp_path, line(request([usual])), "plain.json"))
    other = rows(read(tmp_path, line(request([DEVIATIONS[name](usual)])), "other.json"))
    if name == "microseconds":
        for row in plain:
            row["start"], row["end"] = row["start"] // 1000 * 1000, row["end"] // 1000 * 1000
    assert other == plain


@pytest.mark.parametrize("wrap", [lambda r: json.dumps(r, indent=2), lambda r: json.dumps([r, r]), lambda r: json.dumps([r], indent=1) + "\n", lambda r: "\n\n" + json.dumps(r, indent=4)])
def test_layouts(tmp_path: Path, wrap: Any) -> None:
    """A pretty-printed request or an array of requests is read like lines are."""
    body = request([span(id=f"{i:016x}", name="train", kind=1) for i in range(1, 4)])
    reading = read(tmp_path, wrap(body), "traces-2022-09-14T05-02-14.173.json")
    assert reading.format == "otlp" and len(rows(reading)) in (3, 6) and reading.damaged == 0
    assert {r["proc"]["host"] for r in rows(reading)} == {"n1"}


def test_old_and_snake_case_containers(tmp_path: Path) -> None:
    """Files from before 2022 say `instrumentationLibrarySpans`; plain protobuf printers say `resource_spans`."""
    body = request([span()])
    old = {"resourceSpans": [{"resource": r["resource"], "instrumentationLibrarySpans": r["scopeSpans"]} for r in body["resourceSpans"]]}
    snake = {"resource_spans": [{"resource": r["resource"], "scope_spans": r["scopeSpans"]} for r in body["resourceSpans"]]}
    assert rows(read(tmp_path, line(old), "a.json")) == rows(read(tmp_path, line(body), "b.json"))
    assert [r["name"] for r in rows(read(tmp_path, line(snake), "c.json"))] == ["work"]


def test_a_cut_last_line_is_counted(tmp_path: Path) -> None:
    """The exporter's host died in the midst of a line: everything before is there, and the damage is told."""
    good = line(request([span()]))
    reading = read(tmp_path, good * 3 + good[: len(good) // 2])
    assert len(rows(reading)) == 3 and reading.damaged == 1 and reading.format == "otlp"


def test_cut_pretty_document(tmp_path: Path) -> None:
    """Of a pretty-printed request that was cut, the spans before the cut are there with their process."""
    text = json.dumps(request([span(id=f"{i:016x}") for i in range(1, 5)]), indent=2)
    reading = read(tmp_path, text[: text.index('"0000000000000004"')])
    assert [r["span"] for r in rows(reading)] == [1, 2, 3] and rows(reading)[0]["proc"]["host"] == "n1"


HOSTILE = {
    "types": {"resourceSpans": [{"resource": 3, "scopeSpans": [{"spans": [{"traceId": 5, "spanId": {}, "name": [], "kind": "x", "startTimeUnixNano": {}, "endTimeUnixNano": -5, "attributes": "no", "events": 7, "status": "?"}]}]}]},
    "huge": {"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "1", "name": "n", "startTimeUnixNano": "9" * 400, "endTimeUnixNano": 10**40, "attributes": [{"key": "rank", "value": {"intValue": "9" * 50}}]}]}]}]},
    "nulls": {"resourceSpans": [None, {"scopeSpans": None}, {"scopeSpans": [{"spans": None}]}]},
    "floats": {"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "1", "name": "n", "startTimeUnixNano": 1.757250178e18, "endTimeUnixNano": "1.757250179e18"}]}]}]},
    "list": {"resourceSpans": {"resourceSpans": []}},
    "negative ids": {"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "-123456789abcdef", "traceId": "+", "name": "n"}]}]}]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values(tmp_path: Path, name: str) -> None:
    """Wrong types and endless numbers are no traceback: the file is read, and rows hold only what is sound."""
    reading = read(tmp_path, line(HOSTILE[name]) + line(request([span()])))
    assert reading.format == "otlp" and rows(reading)[-1]["name"] == "work"
    if name == "floats":
        assert rows(reading)[0]["start"] == 1757250178000000000
    for row in rows(reading):
        assert row["start"] == NO_TIME or 0 < row["start"] < 1 << 62


def test_deep_nesting_and_noise(tmp_path: Path) -> None:
    """A line of nothing but brackets, bytes that are no text and other people's lines cost themselves only."""
    good = line(request([span()]))
    deep = '{"resourceSpans":' + "[" * 100_000 + "\n"
    reading = read(tmp_path, good.encode() + deep.encode() + b"\xff\xfe\x00{\n" + b"RuntimeError: CUDA error: an illegal memory access was encountered\n" + b'{"resourceLogs":[]}\n' + good.encode())
    assert len(rows(reading)) == 2 and reading.damaged == 2  # the brackets and the bytes
    assert [e.kind for e in reading.events] == [Kind.DEVICE_ILLEGAL_ACCESS]  # what stands between spans is read like any log


def test_random_cuts_never_raise(tmp_path: Path) -> None:
    """Any cut and any overwritten byte gives a reading."""
    rng = random.Random(4)
    text = (line(request([span(), failed_client("boom")])) + json.dumps(request([span()]), indent=1)).encode()
    for _ in range(60):
        data = bytearray(text[: rng.randrange(60, len(text))])
        for _ in range(rng.randrange(4)):
            data[rng.randrange(40, len(data))] = rng.randrange(256)
        assert read(tmp_path, bytes(data)).size == len(data)


def test_parts_are_the_whole(tmp_path: Path) -> None:
    """A file read in ranges gives the table of the file read at once."""
    text = "".join(line(request([span(id=f"{i:016x}", step=i % 7, stage="gen", seconds=90 if i == 150 else 1), failed_client(f"no {i % 3}", id=f"{i + 500:016x}")], host=f"n{i % 5}")) for i in range(1, 200))
    (tmp_path / "t.json").write_text(text)
    source = list_sources([tmp_path])[0]
    whole = Table()
    otlp.read(source, text[:100].encode(), whole)
    joined = Table()
    cuts = [0, 1, 777, 20_000, 20_001, len(text) - 3, len(text)]
    for start, stop in itertools.pairwise(cuts):
        joined.join(spans_room.read_part(source, start, stop))
    assert len(whole) == len(joined) == 398
    for name in ("start", "end", "span", "parent", "offset", "mark"):
        assert whole.columns[name] == joined.columns[name], name
    assert [whole.procs[i] for i in whole.columns["proc"]] == [joined.procs[i] for i in joined.columns["proc"]]
    assert [whole.phases[i] for i in whole.columns["phase"]] == [joined.phases[i] for i in joined.columns["phase"]]
    assert joined.pace().counts == {joined.procs.index(whole.procs[proc]): count for proc, count in whole.pace().counts.items()}
    spent = [{str((t.procs[proc], t.phases[phase])): found for proc, of in t.pace().spent.items() for phase, found in of.items()} for t in (whole, joined)]
    assert spent[0] == spent[1]
    assert joined.pace().slow() == whole.pace().slow() == [2 * 149]


def test_ids() -> None:
    """One id in its three spellings is one number; no id is none."""
    raw = bytes(range(8, 16))
    assert number_of_id(raw.hex()) == number_of_id(raw.hex().upper()) == number_of_id(base64.b64encode(raw).decode()) == int.from_bytes(raw, "big")
    assert number_of_id("") == number_of_id("0" * 16) == 0


def test_other_json_is_left_alone(tmp_path: Path) -> None:
    """A log of JSON lines is no trace."""
    reading = read(tmp_path, '{"time": "2026-11-20T12:00:00Z", "level": "ERROR", "message": "RuntimeError: CUDA out of memory"}\n' * 3, "app.jsonl")
    assert "spans" not in reading.facts and reading.format != "otlp"


def test_a_failed_call_is_an_event(tmp_path: Path) -> None:
    """Its kind is how the call ended, and it cites the line of the file."""
    reading = read(tmp_path, line(request([span()])) + line(request([failed_client("timeout", peer="rollout/9", address="10.0.0.7", port=30001)])))
    (event,) = reading.events
    assert event.kind == Kind.RPC_TIMEOUT and event.host == "n1" and event.severity == "error"
    assert event.attrs["callee"] == "rollout/9" and "10.0.0.7:30001" in event.text and event.offset == len(line(request([span()])))
    assert event.attrs["raw"].startswith('{"resourceSpans"') and event.span_id == "c" * 16


def test_processes_introduce_themselves(tmp_path: Path) -> None:
    """Both halves of a call tell whose address it is; a process tells its role, number, host and pid."""
    call = span(name="rpc.rollout", kind=3, peer="rollout/9", address="10.4.7.17", port=30001)
    found = read(tmp_path, line(request([call])) + line(request([span(id="b" * 16, parent="a" * 16, kind=2, worker__index=9)], "rollout-worker", "gn17", 45210)))
    streams = {s["actor"]: s for s in found.facts["streams"].values()}
    assert (streams["rollout/9"]["host"], streams["rollout/9"]["pid"], streams["controller"]["pid"]) == ("gn17", 45210, 11)
    result = spans_room.read(list_sources([tmp_path])[0], *engine(), 100)
    assert ("alias", {"a": "gn17", "b": "10.4.7.17"}) in result["sightings"]
    assert ("worker", {"name": "rollout", "index": 9, "host": "gn17", "ip": "10.4.7.17", "port": 30001, "pid": 45210}) in result["sightings"]


def test_stages_become_marks(tmp_path: Path) -> None:
    """When a process ended a stage of a step, and how long that took, is told once however many spans it had."""
    calls = [span(id=f"{i:016x}", name="rpc.rollout", kind=3, stage="gen", step=4, start=NOON_NS + i * 10**9, seconds=3) for i in range(1, 4)]
    (stream,) = read(tmp_path, line(request(calls))).facts["streams"].values()
    assert [(m[0] - NOON_NS, *m[1:4], m[8]) for m in stream["marks"]] == [(6 * 10**9, "rollout", 4, "end", 5.0)]
