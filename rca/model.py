"""The noun sheet, in flow order: Record -> Event -> Edge -> Hypothesis -> Verdict -> Report.

The rooms share these and nothing else. Null means "the source did not say". Times are integer nanoseconds, UTC;
`time_assumed` marks a time whose year or zone no line stated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rca.taxonomy import HOST_SHAPES

REPORT_SCHEMA = "rca.report/1"


class Record(NamedTuple):
    """One decoded line with its address.

    `line` counts from 1 by newlines and is None where a large file was not counted up to there yet.
    """

    source: str
    line: int | None
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, as one source told it or as a detector derived it.

    `rank` is global within the role's world; `local_rank` is per host; `attempt` counts restarts from 0. `time_error_ns` is half
    the width of the interval the time may lie in. `source` is None for an event no line states; its `basis` then holds the
    addresses it was derived from. `also` holds further addresses of the same event (console copies, reprints).
    """

    kind: str
    text: str
    severity: str = "error"
    time_ns: int | None = None
    time_error_ns: int = 0
    time_assumed: bool = False
    host: str | None = None
    role: str | None = None
    actor: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    gpu: int | None = None
    bus_id: str | None = None
    nic: str | None = None
    path: str | None = None
    group: str | None = None
    stage: str | None = None
    step: int | None = None
    attempt: int | None = None
    trace_id: str | None = None
    span_id: str | None = None
    request_id: str | None = None
    count: int = 1
    ranks: tuple[int, ...] = ()
    source: str | None = None
    line: int | None = None
    offset: int = 0
    attrs: dict[str, Any] = field(default_factory=dict)
    also: tuple[Record, ...] = ()
    event_id: int = -1

    def but(self, **changes: Any) -> Event:
        """A copy with some fields changed."""
        return replace(self, **changes)

    @property
    def record(self) -> Record | None:
        """The address and raw line that state the event, or None for a derived one."""
        return None if self.source is None else Record(self.source, self.line, self.offset, self.attrs.get("raw", self.text))

    @property
    def records(self) -> tuple[Record, ...]:
        """Every line that states the event, or that a derived event rests on."""
        own = self.record
        return ((own,) if own else ()) + self.also


@dataclass(frozen=True, slots=True)
class Reading:
    """What ingest learned from one file."""

    source: str
    format: str
    size: int  # bytes on disk
    parsed: int  # bytes of lines a grammar understood
    plain: int  # bytes read as plain text
    skipped: int  # bytes not read, see `reason`
    reason: str | None = None
    damaged: int = 0  # lines with bytes that are not text
    lines: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # host, rank, local_rank, actor, attempt, world, pid ...
    first_ns: int | None = None
    last_ns: int | None = None
    events: tuple[Event, ...] = ()

    @property
    def of_host(self) -> bool:
        """Whether it is a log that a host keeps, and none of the job's own."""
        return self.format in HOST_SHAPES

    @property
    def sample_times(self) -> list[int]:
        """When its samples were taken, in its order, by its own clock and zone: counters and counts, `(time_ns, host, subject, name, value, line, offset, raw)` each."""
        return [sample[0] for sample in self.facts.get("samples") or () if sample[0]]


class Edge(NamedTuple):
    """A mechanism by which `cause` may have brought about `effect`; both are event ids."""

    cause: int
    effect: int
    kind: str


class Evidence(NamedTuple):
    """One cited line and the link of the chain that it supports (`cause`, `mechanism`, `symptom` or `against`)."""

    record: Record
    kind: str
    link: str
    event: Event


@dataclass(frozen=True, slots=True)
class Missing:
    """What would have told more, and the command that collects it."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One possible root cause with what speaks for and against it. `logit` is a log-odds sum in nats."""

    cause: str
    rule: str
    title: str
    summary: str
    logit: float
    event: Event
    confidence: float = 0.0
    inferred: bool = False
    entity: dict[str, Any] = field(default_factory=dict)
    symptom: Event | None = None
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    remedy: dict[str, Any] = field(default_factory=dict)
    why: tuple[str, ...] = ()  # the terms of the sum, in words
    acted: tuple[str | None, int | None] | None = None  # stage and step in which the cause told, where they are not the event's own


class Graph:
    """Which event may have brought about which, and by what mechanisms. Nodes are event ids.

    Plain dictionaries: importing networkx takes longer than judging a run. `networkx()` gives the same graph to who wants to draw or walk it.
    """

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._effects: dict[int, dict[int, set[str]]] = {}
        self._causes: dict[int, set[int]] = {}
        for cause, effect, kind in edges:
            if cause != effect:
                self._effects.setdefault(cause, {}).setdefault(effect, set()).add(kind)
                self._causes.setdefault(effect, set()).add(cause)

    def kinds(self, cause: int, effect: int) -> set[str]:
        """The kinds of the edge between two events; empty where there is none."""
        return self._effects.get(cause, {}).get(effect, set())

    def effects(self, cause: int) -> list[int]:
        """What an event may have brought about directly, ascending."""
        return sorted(self._effects.get(cause, ()))

    def ancestors(self, effect: int, without: str | None = None) -> set[int]:
        """Everything upstream of an event, itself excluded; `without` leaves out edges that are of that kind alone."""
        seen: set[int] = set()
        waiting = [effect]
        while waiting:
            at = waiting.pop()
            fresh = self._causes.get(at, set()) - seen
            if without is not None:
                fresh = {c for c in fresh if self._effects[c][at] != {without}}
            seen |= fresh
            waiting += fresh
        return seen - {effect}

    def networkx(self) -> Any:
        """A `networkx.DiGraph` whose edges carry their sorted `kinds`."""
        import networkx as nx

        graph = nx.DiGraph()
        for cause, effects in sorted(self._effects.items()):
            for effect, kinds in sorted(effects.items()):
                graph.add_edge(cause, effect, kinds=tuple(sorted(kinds)))
        return graph


@dataclass(frozen=True, slots=True)
class Run:
    """Everything correlate knows about the run: folded events, edges, processes, clocks, coverage."""

    events: tuple[Event, ...]
    edges: tuple[Edge, ...]
    readings: tuple[Reading, ...]
    processes: dict[tuple, dict[str, Any]]
    hosts: tuple[str, ...]
    world: int | None
    attempts: int
    clocks: tuple[dict[str, Any], ...]
    missing: tuple[Missing, ...]
    notes: tuple[tuple[str, Event | None], ...]
    coverage: frozenset[tuple[str, str | None]]  # (what could have been seen, host or None)
    outcome: str  # "finished", "failed", "cut", "goes_on", "unknown": how the last attempt ended


@dataclass(frozen=True, slots=True)
class Verdict:
    """`failed`, `healthy` or `inconclusive`, with the judged hypotheses, most likely first; `missing` would decide an inconclusive one."""

    verdict: str
    hypotheses: tuple[Hypothesis, ...]
    unknown_probability: float
    summary: str
    missing: tuple[Missing, ...] = ()


def event_schema() -> dict[str, Any]:
    """The declared schema of the event frame, in column order (polars is imported only when asked)."""
    import polars as pl

    text, number = pl.String, pl.Int64
    return {
        "event_id": number, "kind": text, "severity": text, "time_ns": number, "time_error_ns": number,
        "time_assumed": pl.Boolean, "host": text, "role": text, "rank": number, "local_rank": number, "pid": number,
        "gpu": number, "bus_id": text, "nic": text, "path": text, "group": text, "stage": text, "step": number,
        "attempt": number, "trace_id": text, "span_id": text, "request_id": text, "count": number,
        "ranks": pl.List(pl.Int64), "source": text, "line": number, "offset": number, "text": text, "attrs": text,
    }  # fmt: skip
