"""Packet loss where little is sent: a few segments sent again tell something only at the host whose answer did not come, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import run_of
from spans import NOON_NS, SECOND_NS, failed_client, line, request, span

from rca.taxonomy import Kind


def sampler(host: str, retransmits: tuple[int, ...], pid: int) -> str:
    """A journal of `rca sample`: one sample a second."""
    head = {"schema": "rca.trace/1", "host": host, "pid": pid, "role": "sampler", "start": NOON_NS, "clock": {"wall": NOON_NS, "monotonic": 1}}
    values = [{"net.retransmits": n, "net.tcp_timeouts": n} for n in retransmits]
    return "".join(json.dumps(r) + "\n" for r in (head, *({"t": NOON_NS + i * SECOND_NS, "e": "sample", "n": "all", "a": {"": v}} for i, v in enumerate(values))))


def lost(folder: Path, bad: tuple[int, ...], other: tuple[int, ...]) -> list[str | None]:
    """Hosts that are said to lose packets, where the worker on n3 answered and its caller on n1 timed out; the worker on n2 was heard."""
    calls = [
        failed_client("timed out", "1" * 16, seconds=8, peer="rollout/1", address="10.0.0.3", port=30001, stage="rollout", step=3),
        span("3" * 16, "", "rpc.generate", 3, seconds=0.1, peer="rollout/0", address="10.0.0.2", port=30001, stage="rollout", step=3),
    ]
    trace = line(request([span("2" * 16, "1" * 16, "generate", 2, seconds=0.1)], "rollout-worker", "n3", 70))
    trace += line(request([span("4" * 16, "3" * 16, "generate", 2, seconds=0.1)], "rollout-worker", "n2", 70)) + line(request(calls))
    files = {"otel/traces.jsonl": trace, "sampler-x-n1-1.rca.jsonl": sampler("n1", bad, 1), "sampler-x-n2-2.rca.jsonl": sampler("n2", other, 2), "sampler-x-n3-3.rca.jsonl": sampler("n3", bad, 3)}
    return [e.host for e in run_of(folder, files).events if e.kind == Kind.PACKET_LOSS]


RISES, CALM = (0, 0, 2, 3, 5, 7, 8), (0, 0, 0, 0, 0, 1, 1)


def test_the_host_whose_answer_did_not_come_loses_packets(tmp_path: Path) -> None:
    """The caller's host, at the other end of the same connection, shows the same and is not named."""
    assert lost(tmp_path, RISES, CALM) == ["n3"]


@pytest.mark.parametrize(("bad", "other"), [(CALM, CALM), (RISES, RISES)])
def test_a_chance_or_what_all_hosts_show_is_nothing(tmp_path: Path, bad: tuple[int, ...], other: tuple[int, ...]) -> None:
    """One segment, or the same everywhere."""
    assert lost(tmp_path, bad, other) == []


def test_what_had_ended_before_the_answer_was_missed_is_nothing(tmp_path: Path) -> None:
    """The counters rose a minute before the call, and stood still while nobody answered."""
    quiet = (0, 4, 8, *([8] * 70))
    calls = [failed_client("timed out", "1" * 16, seconds=8, start=NOON_NS + 60 * SECOND_NS, peer="rollout/1", address="10.0.0.3", port=30001, stage="rollout", step=3)]
    trace = line(request([span("2" * 16, "1" * 16, "generate", 2, seconds=0.1, start=NOON_NS + 60 * SECOND_NS)], "rollout-worker", "n3", 70)) + line(request(calls))
    files = {"otel/traces.jsonl": trace, "sampler-x-n2-2.rca.jsonl": sampler("n2", (0,) * 70, 2), "sampler-x-n3-3.rca.jsonl": sampler("n3", quiet, 3)}
    assert not [e for e in run_of(tmp_path, files).events if e.kind == Kind.PACKET_LOSS]
