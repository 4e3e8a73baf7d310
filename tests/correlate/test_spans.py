"""Traces in the whole run: one event per failure, missing answers, repetitions, open spans, clocks and names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import run_of
from spans import NOON_NS, SECOND_NS, exception, failed_client, line, request, span

from rca.correlate import spans as span_tables
from rca.ingest.read import ingest
from rca.taxonomy import Kind

STACK = 'Traceback (most recent call last):\n  File "/app/train.py", line 9, in step\n    out = model(x)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.\n'


def a(n: int) -> str:
    """A span id."""
    return f"{n:016x}"


def run(folder: Path, *lines: str, **files: str) -> Any:
    """The run that left these traces."""
    return run_of(folder, {"otel/traces.jsonl": "".join(lines)} | files)


def failures(found: Any) -> list[tuple[str, str | None]]:
    """Kind and host of what failed."""
    return [(e.kind, e.host) for e in found.events if e.attrs.get("span") and e.severity in ("error", "fatal")]


def chain(status: int = 2) -> list[str]:
    """controller -> rollout server -> its engine, which raises; every level records the exception."""
    raised = [exception("torch.OutOfMemoryError", "CUDA out of memory", STACK)]
    return [
        line(request([span(a(3), a(2), "engine.generate", 1, status=2, events=raised, seconds=1), span(a(2), a(1), "generate", 2, status=status, message="CUDA out of memory", events=raised if status == 2 else None)], "rollout-worker", "n2", 70, worker__index=1)),
        line(request([failed_client("Internal Server Error", a(1), peer="rollout/1", address="10.0.0.2", port=30001, http=500, step=4, stage="rollout")])),
    ]  # fmt: skip


def test_one_failure_is_one_event(tmp_path: Path) -> None:
    """The deepest failed span is the event, at its process; its server span is the same, and the caller's failed because of it."""
    found = run(tmp_path, *chain())
    assert failures(found) == [(Kind.DEVICE_OOM, "n2"), (Kind.RPC_ERROR_REPLY, "n1")]
    oom, reply = [e for e in found.events if e.attrs.get("span")]
    assert oom.pid == 70 and len(oom.records) >= 2 and oom.span_id == a(3)
    assert reply.attrs["about"]["worker"] == "rollout/1" and reply.attrs["about"]["host"] == "n2" and reply.attrs["answer"] == "failed"
    assert any((e.cause, e.effect, e.kind) == (oom.event_id, reply.event_id, "rpc") for e in found.edges)


def test_what_was_handled_is_not_carried_up(tmp_path: Path) -> None:
    """A span that ended well in between has dealt with the failure: the caller's has another cause."""
    found = run(tmp_path, *chain(status=1))
    reply = next(e for e in found.events if e.kind == Kind.RPC_ERROR_REPLY)
    assert "cause_span" not in reply.attrs


def test_a_bare_server_error_is_its_callers(tmp_path: Path) -> None:
    """A callee's span that says only `error` adds its line to the caller's event."""
    found = run(tmp_path, line(request([failed_client("500", a(1), peer="ref/0", http=500)])), line(request([span(a(2), a(1), "logprobs", 2, status=2, message="500")], "ref-worker", "n3", 5)))
    (event,) = [e for e in found.events if e.attrs.get("span")]
    assert event.kind == Kind.RPC_ERROR_REPLY and len(event.records) == 2 and event.attrs["about"]["host"] == "n3"


def test_a_call_that_was_never_received(tmp_path: Path) -> None:
    """A hand-over that timed out and left no span of a callee that writes spans was lost; the worker and its host are named."""
    good = [span(a(10 + i), "", "rpc.notify_event", 3, peer=f"rollout/{i}", address=f"10.0.0.{i}", port=30001, stage="rollout", step=6) for i in range(3)]
    got = [line(request([span(a(20 + i), a(10 + i), "notify_event", 2)], "rollout-worker", f"n{i + 2}", 70 + i)) for i in range(3)]
    lost = failed_client("timeout", a(1), name="rpc.notify_event", peer="rollout/1", address="10.0.0.1", port=30001, http=0, seconds=600, stage="rollout", step=7, start=NOON_NS + 60 * SECOND_NS)
    found = run(tmp_path, line(request([*good, lost])), *got)
    event = next(e for e in found.events if e.kind == Kind.EVENT_LOST)
    assert event.attrs["answer"] == "missing" and event.attrs["about"] | {} == event.attrs["about"] and event.attrs["about"]["host"] == "n3" and event.attrs["about"]["worker"] == "rollout/1"
    assert (event.stage, event.step) == ("rollout", 7) and "600.0 s" in event.text
    quiet = next(e for e in found.events if e.kind == Kind.EVENT_ACKNOWLEDGED)
    assert quiet.step == 6 and quiet.attrs["receivers"] == 3


def test_an_untraced_callee_proves_nothing(tmp_path: Path) -> None:
    """Where nothing on the callee's side is traced, the absence of its span means nothing."""
    found = run(tmp_path, line(request([failed_client("timeout", a(1), peer="rollout/1")])))
    assert next(e for e in found.events if e.kind == Kind.RPC_TIMEOUT).attrs["answer"] == "unknown"


def test_an_answer_that_got_lost(tmp_path: Path) -> None:
    """The callee ended well, the caller timed out: its answer did not come back."""
    found = run(tmp_path, line(request([failed_client("timeout", a(1), peer="rollout/1", seconds=100)])), line(request([span(a(2), a(1), "generate", 2, seconds=20)], "rollout-worker", "n2", 7)))
    event = next(e for e in found.events if e.kind == Kind.RPC_TIMEOUT)
    assert event.attrs["answer"] == "ok" and "ended it well" in event.text


def test_an_answer_that_came_when_nobody_waited_any_more(tmp_path: Path) -> None:
    """The callee ended well, but took as long as its caller waited: it was late, and nothing was lost on the way. Durations tell, since clocks differ."""
    served = request([span(a(2), a(1), "generate", 2, seconds=31, start=NOON_NS + 40 * SECOND_NS)], "rollout-worker", "n3", 70)
    found = run(tmp_path, line(served), line(request([failed_client("timed out", a(1), seconds=30, peer="rollout/1", address="10.0.0.3", port=30001)])))
    event = next(e for e in found.events if e.kind == Kind.RPC_TIMEOUT)
    assert event.attrs["answer"] == "late" and "ended it well" not in event.text


def test_a_call_made_of_several_knows_what_became_of_its_parts(tmp_path: Path) -> None:
    """`rpc generate` around a request, and the body of its answer, have no span of the callee; the request between them has."""
    calls = [
        failed_client("timed out", a(1), name="rpc generate", seconds=30, peer="rollout/1"),
        span(a(2), a(1), "POST /generate", 3, seconds=1, peer="rollout/1", address="10.0.0.3", port=30001),
        failed_client("timed out", a(3), parent=a(1), name="POST /generate body", seconds=29, peer="rollout/1", address="10.0.0.3", port=30001),
    ]
    served = request([span(a(4), a(2), "generate", 2, seconds=0.9)], "rollout-worker", "n3", 70)
    found = run(tmp_path, line(served), line(request(calls)))
    answers = {e.attrs["op"]: e.attrs["answer"] for e in found.events if e.kind == Kind.RPC_TIMEOUT}
    assert answers and set(answers.values()) == {"ok"}


def test_a_repetition_that_was_answered_is_quiet(tmp_path: Path) -> None:
    """Several calls of one name under one parent: what was answered in the end is over; what never was is not."""
    calls = [failed_client("connection refused", a(i), parent=a(99), peer="ref/0", start=NOON_NS + i * 5 * SECOND_NS) for i in (1, 2)]
    ended = span(a(3), a(99), "rpc.generate", 3, peer="ref/0", start=NOON_NS + 20 * SECOND_NS)
    assert [e.kind for e in run(tmp_path / "a", line(request([*calls, ended]))).events if e.attrs.get("span")] == [Kind.RETRIED]
    assert [e.kind for e in run(tmp_path / "b", line(request(calls))).events if e.attrs.get("span")] == [Kind.RPC_REFUSED]


def test_an_export_that_was_repeated_counts_once(tmp_path: Path) -> None:
    """The same span twice in the file, or in two files, is one event."""
    text = line(request([failed_client("timeout", a(1), peer="ref/0")]))
    found = run(tmp_path, text, text, **{"otel/traces-2026-11-20T12-00-05.000.jsonl": text})
    assert [e.count for e in found.events if e.kind == Kind.RPC_TIMEOUT] == [1]


def test_many_callees_stay_apart(tmp_path: Path) -> None:
    """Two workers that do not answer are two events; twenty that fail alike are one, with all their names."""
    two = run(tmp_path / "a", line(request([failed_client("timeout", a(i), peer=f"ref/{i}") for i in (1, 2)])))
    assert sorted(e.attrs["callee"] for e in two.events if e.kind == Kind.RPC_TIMEOUT) == ["ref/1", "ref/2"]
    many = run(tmp_path / "b", line(request([failed_client("timeout", a(i), peer=f"ref/{i}") for i in range(1, 21)])))
    (event,) = [e for e in many.events if e.kind == Kind.RPC_TIMEOUT]
    assert event.count == 20 and len(event.attrs["callees"]) == 20


def test_spans_without_an_end(tmp_path: Path) -> None:
    """Of those that never ended, the innermost that lasted far longer than others of its name is told; one that had just begun is not."""
    usual = [span(a(10 + i), "", "all_gather", 1, start=NOON_NS + i * SECOND_NS, seconds=0.5) for i in range(5)]
    stuck = [span(a(1), "", "train_step", 1, start=NOON_NS, end=False), span(a(2), a(1), "all_gather", 1, start=NOON_NS + 10 * SECOND_NS, end=False)]
    late = span(a(3), "", "all_gather", 1, start=NOON_NS + 119 * SECOND_NS, end=False)
    found = run(tmp_path, line(request([*usual, *stuck])), line(request([late, span(a(50), "", "x", 1, start=NOON_NS + 118 * SECOND_NS)], pid=12)))
    (event,) = [e for e in found.events if e.kind == Kind.REQUEST_OPEN]
    assert event.span_id == a(2) and event.severity == "warning" and event.attrs["usual_s"] == 0.5


def test_clocks_are_bounded_by_calls(tmp_path: Path) -> None:
    """Send and receive times of calls from both sides bound the difference of two clocks; a wrong pair among many is left out."""
    late = 40 * SECOND_NS
    lines = []
    for i in range(30):
        lines.append(line(request([span(a(i + 1), "", "rpc.x", 3, start=NOON_NS + i * SECOND_NS, seconds=0.5)], host="n1")))
        lines.append(line(request([span(a(i + 100), a(i + 1), "x", 2, start=NOON_NS + i * SECOND_NS + late + 2_000_000, seconds=0.495)], "w", "n2", 7)))
    lines.append(line(request([span(a(500), "", "rpc.x", 3)], host="n1")) + line(request([span(a(501), a(500), "x", 2, start=NOON_NS + 3 * late)], "w", "n2", 7)))
    (tmp_path / "t.jsonl").write_text("".join(lines))
    joined = span_tables.join(ingest([tmp_path], workers=1)[0])
    ((one, other, lower, upper),) = joined.bounds()
    assert (one, other) == ("n1", "n2") and lower <= late <= upper and upper - lower < 10_000_000
    ((one, other, *_),) = joined.bounds({"n1": "z1", "n2": "a2"}.get)
    assert (one, other) == ("a2", "z1") and joined.bounds()[0][3] == upper


def test_callees_are_named(tmp_path: Path) -> None:
    """The process that answered at an address is who lives there."""
    lines = [line(request([span(a(1), "", "rpc.x", 3, peer="rollout/9", address="10.4.7.17", port=30001)])), line(request([span(a(2), a(1), "x", 2)], "rollout-worker", "gn17", 45210))]
    (tmp_path / "t.jsonl").write_text("".join(lines))
    joined = span_tables.join(ingest([tmp_path], workers=1)[0])
    assert joined.addresses() == {"10.4.7.17": "gn17"} and joined.callee(0) == {"worker": "rollout/9", "address": "10.4.7.17", "port": 30001, "host": "gn17", "pid": 45210}


def test_spans_join_across_files(tmp_path: Path) -> None:
    """One file per process: caller and callee are found all the same."""
    one, other = chain()
    found = run_of(tmp_path, {"rollout-1.json": one, "controller.json": other})
    assert {e.kind for e in found.events if e.attrs.get("span")} == {Kind.DEVICE_OOM, Kind.RPC_ERROR_REPLY}


def test_the_same_exception_in_a_log_is_the_same_event(tmp_path: Path) -> None:
    """A traceback in the worker's log and in its span is one event, cited from the log."""
    log = "2026-11-20T12:00:01Z ERROR pid=70 host=n2 step failed\n" + STACK
    found = run(tmp_path, *chain(), **{"worker.log": log})
    (event,) = [e for e in found.events if e.kind == Kind.DEVICE_OOM]
    assert event.source == "worker.log" and {r.source for r in event.records} == {"worker.log", "otel/traces.jsonl"}


# -- hand-overs and slow workers --------------------------------------------------------------------------------------------


def journal(*records: dict[str, Any], role: str = "controller", host: str = "n1", pid: int = 5, **more: Any) -> str:
    """The journal of one process."""
    return "".join(line(r) for r in ({"schema": "rca.trace/1", "host": host, "pid": pid, "role": role, "start": NOON_NS, **more}, *records))


def test_a_payload_that_arrives_as_something_else(tmp_path: Path) -> None:
    """Sender and receiver wrote down what they handed over: what differs is told at the receiver, with both lines."""
    sent = {"t": NOON_NS, "e": "handoff", "id": "1", "n": "logprobs", "st": "reference", "s": 4, "a": {"handoff": "b4", "side": "sender", "count": 64, "checksum": "aa"}}
    got = sent | {"t": NOON_NS + 9, "a": {"handoff": "b4", "side": "receiver", "count": 48, "checksum": "bb"}}
    found = run_of(tmp_path, {"ref.rca.jsonl": journal(sent, role="reference", rank=0, host="n2"), "c.rca.jsonl": journal(got)})
    (event,) = [e for e in found.events if e.kind == Kind.PAYLOAD_DIFFERS]
    assert (event.attrs["differs"], event.attrs["wanted"], event.attrs["got"], event.attrs["sender_host"]) == (["checksum", "count"], 64, 48, "n2")
    assert {r.source for r in event.records} == {"ref.rca.jsonl", "c.rca.jsonl"} and event.step == 4
    same = run_of(tmp_path / "b", {"ref.rca.jsonl": journal(sent, role="reference", rank=0), "c.rca.jsonl": journal(sent | {"a": sent["a"] | {"side": "receiver"}})})
    assert not [e for e in same.events if e.kind == Kind.PAYLOAD_DIFFERS]


def test_an_event_without_its_acknowledgement(tmp_path: Path) -> None:
    """Who did not confirm a stage event is named; one that all confirmed is quiet."""
    emitted = [{"t": NOON_NS + i, "e": "event", "id": f"e{i}", "n": "rollout_start", "st": "rollout", "s": 4 + i, "a": {"receivers": ["rollout/0", "rollout/1"]}} for i in range(2)]
    acks = [[{"t": NOON_NS + 50, "e": "ack", "id": "e0", "n": "rollout_start"}], [{"t": NOON_NS + 50, "e": "ack", "id": "e0"}, {"t": NOON_NS + 60, "e": "ack", "id": "e1"}]]
    files = {"c.rca.jsonl": journal(*emitted)} | {f"r{i}.rca.jsonl": journal(*acks[i], role="rollout", rank=i, host=f"n{i + 2}", pid=70 + i) for i in range(2)}
    found = run_of(tmp_path, files)
    (lost,) = [e for e in found.events if e.kind == Kind.EVENT_LOST]
    assert (lost.step, lost.attrs["callee"], lost.attrs["got"], lost.attrs["wanted"]) == (5, "rollout/0", 1, 2) and lost.records[0].text.startswith('{"t"')
    assert [e.step for e in found.events if e.kind == Kind.EVENT_ACKNOWLEDGED] == [4]


@pytest.mark.parametrize(("lived_s", "lived"), [(0.2, False), (30, True)])
def test_a_receiver_that_lived_on(tmp_path: Path, lived_s: float, lived: bool) -> None:
    """Whoever serves others long after an event was sent, and never confirms it, did not get it; the dead and the late confirm nothing either."""
    emitted = {"t": NOON_NS, "e": "event", "id": "e0", "n": "rollout_done", "a": {"rca.receivers": ["train/0"]}}
    served = [{"t": NOON_NS + int(lived_s * 1e9), "e": "start", "id": "s", "n": "GET /health"}, {"t": NOON_NS + int(lived_s * 1e9) + 1000, "e": "end", "id": "s"}]
    found = run_of(tmp_path, {"c.rca.jsonl": journal(emitted), "t.rca.jsonl": journal(*served, role="train", rank=0, host="n2", pid=70)})
    (lost,) = [e for e in found.events if e.kind == Kind.EVENT_LOST]
    assert (lost.attrs["callee"], lost.attrs["about"]["pid"], lost.attrs["receiver_lived"]) == ("train/0", 70, lived)


def steps(slow: dict[tuple[int, int], float], workers: int = 3) -> str:
    """Six steps of three workers that take ten seconds each, but for some."""
    spans = []
    for step in range(6):
        for worker in range(workers):
            seconds = slow.get((step, worker), 10.0 + worker * 0.3)
            spans.append(line(request([span(a(1 + step * 10 + worker), "", "compute_logprobs", 2, NOON_NS + step * 100 * SECOND_NS, seconds, stage="ref", step=step)], "ref-worker", f"n{worker}", 70 + worker, worker__index=worker)))
    return "".join(spans)


def test_one_worker_that_became_slow(tmp_path: Path) -> None:
    """Many times as long as its siblings and as before: told with worker, host and step; it cites the line."""
    found = run(tmp_path, steps({(4, 1): 55.0}))
    (event,) = [e for e in found.events if e.kind == Kind.LATENCY_ROSE]
    assert (event.host, event.step, event.attrs["usual_s"]) == ("n1", 4, 10.3) and event.records[0].text.startswith('{"resourceSpans"')


def test_a_slow_step_of_all_and_a_slow_first_step_are_nothing(tmp_path: Path) -> None:
    """What is slow for everybody, or has no past, names no worker."""
    assert not [e for e in run(tmp_path / "a", steps({(4, w): 55.0 for w in range(3)})).events if e.kind == Kind.LATENCY_ROSE]
    assert not [e for e in run(tmp_path / "b", steps({(0, 1): 55.0})).events if e.kind == Kind.LATENCY_ROSE]


def test_traces_tell_the_zone_of_logs(tmp_path: Path) -> None:
    """A log of local times without a zone and spans of the same stages differ by whole quarters of an hour: that is the zone."""
    spans, text = [], []
    for step in range(4):
        for number, stage in enumerate(("weights_update", "rollout", "train")):
            start = NOON_NS + (step * 300 + number * 100) * SECOND_NS
            spans.append(span(a(1 + step * 3 + number), "", f"rpc.{stage}", 3, start, 90, stage=stage, step=step, peer="w/0"))
            moment = step * 300 + number * 100 + 7  # the log's clock is seven seconds ahead, and in another zone
            text += [f"2026-11-20 {5 + moment // 3600:02d}:{moment % 3600 // 60:02d}:{moment % 60:02d} INFO controller: [step {step}] {stage} start"]
    found = run_of(tmp_path, {"otel/t.jsonl": line(request(spans)), "controller.log": "\n".join(text) + "\n2026-11-20 05:20:00 ERROR controller: RuntimeError: boom\n"})
    (event,) = [e for e in found.events if e.source == "controller.log" and e.severity == "error"]
    assert abs((event.time_ns or 0) - (NOON_NS + 20 * 60 * SECOND_NS)) < 10 * SECOND_NS
