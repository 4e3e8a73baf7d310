"""Nouns for tests: each builder has a plain default, and a test states only what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rca.model import Event, Evidence, Hypothesis, Missing, Reading, Record, Run, Verdict
from rca.taxonomy import Kind

NOON_NS = 1_795_176_000_000_000_000  # 2026-11-20T12:00:00Z
SECOND_NS = 1_000_000_000


def event(kind: str = Kind.EXCEPTION, text: str = "RuntimeError: boom", **changes: Any) -> Event:
    """An error of rank 0 on node-1 at noon, in line 1 of `rank0.log`."""
    defaults = {"time_ns": NOON_NS, "host": "node-1", "role": "train", "rank": 0, "stage": "train", "step": 1, "source": "rank0.log", "line": 1}
    return Event(kind=kind, text=text, **(defaults | changes))


def reading(source: str = "rank0.log", **changes: Any) -> Reading:
    """A parsed log of 100 bytes."""
    defaults = {"format": "python_logging", "size": 100, "parsed": 90, "plain": 10, "skipped": 0, "lines": 3, "first_ns": NOON_NS, "last_ns": NOON_NS}
    return Reading(source=source, **(defaults | changes))


def run(*events: Event, **changes: Any) -> Run:
    """A failed run of one attempt with two ranks on node-1."""
    defaults = {
        "edges": (), "readings": (reading(),), "processes": {(0, "train", 0): {"role": "train", "rank": 0, "last_step": 1}}, "hosts": ("node-1",),
        "world": 2, "attempts": 1, "clocks": (), "missing": (), "notes": (), "coverage": frozenset(), "outcome": "failed",
    }  # fmt: skip
    numbered = tuple(e.but(event_id=i) for i, e in enumerate(events))
    return Run(events=numbered, **(defaults | changes))


def evidence(of: Event, link: str = "cause") -> Evidence:
    """The line that states `of`, or for a derived event the first line it rests on."""
    return Evidence(of.records[0], of.kind, link, of)


def hypothesis(cause: str = "sw.rank_exception", **changes: Any) -> Hypothesis:
    """Rank 0 raised an exception, and its line says so."""
    at = changes.pop("event", event())
    defaults = {
        "rule": "sw/rank_exception", "title": "A Python exception on one rank", "summary": "rank 0 raised RuntimeError", "logit": 2.0, "event": at,
        "confidence": 0.9, "entity": {"host": at.host, "role": at.role, "rank": at.rank},
        "evidence": (evidence(at),) if at.records else (), "remedy": {"action": "fix-code", "text": "fix the exception", "retryable": False},
    }  # fmt: skip
    return Hypothesis(cause=cause, **(defaults | changes))


def verdict(*hypotheses: Hypothesis, **changes: Any) -> Verdict:
    """`failed` with these hypotheses; what they leave is unknown."""
    defaults = {
        "verdict": "failed" if hypotheses else "healthy", "unknown_probability": 1.0 - sum(h.confidence for h in hypotheses) if hypotheses else 0.0,
        "summary": hypotheses[0].summary if hypotheses else "the run finished",
    }  # fmt: skip
    return Verdict(hypotheses=hypotheses, **(defaults | changes))


def missing(what: str = "no kernel log of node-1", how: str = "dmesg -T") -> Missing:
    return Missing(what, how)


def record(text: str, source: str = "rank0.log", line: int | None = 1, offset: int = 0) -> Record:
    return Record(source, line, offset, text)


def run_of(folder: Path, files: dict[str, str] | str) -> Run:
    """What correlate makes of these files, read as any input is; a text alone is rank 0's log."""
    from rca.correlate.correlate import correlate
    from rca.ingest.read import ingest

    for name, text in ({"rank0.log": files} if isinstance(files, str) else files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return correlate(ingest([folder], workers=1)[0])
