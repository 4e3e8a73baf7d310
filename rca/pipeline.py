"""The order of the stages, and the only place that knows it: bytes, events, graph, hypotheses, verdict, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rca import __version__
from rca.errors import RcaError
from rca.model import Event, Record, Run, Verdict


@dataclass(frozen=True, repr=False)
class Report:
    """The result of an analysis. `document` is the JSON report, `rca.report/1`."""

    document: dict[str, Any]
    run: Run
    judged: Verdict
    recognised: bool  # some input held evidence of a training run
    incomplete: bool  # some input could not be read to its end

    def __repr__(self) -> str:
        first = self.judged.hypotheses[0] if self.judged.hypotheses else None
        return f"<rca.Report {self.verdict}{f': {first.cause} {first.confidence:.0%}' if first else ''}>"

    def frame(self) -> Any:
        """All events as a polars frame of `rca.model.event_schema`, sorted by event id."""
        from rca.correlate.correlate import frame

        return frame(list(self.run.events))

    def graph(self) -> Any:
        """The causal graph as a `networkx.DiGraph` of event ids; an edge carries its sorted `kinds`."""
        from rca.correlate import graph

        return graph.build(self.run.events, self.run.edges).networkx()

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """Files that were not read to their end, with the reason."""
        return tuple((r.source, r.reason) for r in self.run.readings if r.reason and r.reason not in HARMLESS)

    @property
    def verdict(self) -> str:
        return self.judged.verdict


def analyze(
    paths: Iterable[Path | str] | Path | str, *, rules: Path | None = None, baseline: Path | None = None, topology: Path | None = None,
    prometheus: str | None = None, workers: int | None = None, progress: Callable[[int, int], None] | None = None,
) -> Report:  # fmt: skip
    """Find the root cause of the run that left its files below `paths`.

    `rules` is a folder of further rules, and of signatures in its `signatures/`, `baseline` a healthy run of the same job, `topology` a file that
    says who ran where, `prometheus` the URL of a server that is asked for the counters of the run's time.

    Raises RcaError for a path that does not exist, and for rules or a topology that are not valid.
    """
    began = time.monotonic()
    rules = Path(rules) if rules is not None else None
    known = {} if topology is None else {"topology": _topology(Path(topology))}
    if paths is None or paths == "":
        raise RcaError("no path given", hint="give the folder that the run left behind")
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(p) for p in paths]

    from rca.ingest.read import ingest

    readings, sources = ingest(given, workers=workers, progress=progress, meanwhile=lambda: _prepare(rules), signatures_of=_phrases(rules))

    from rca.correlate import graph
    from rca.correlate.correlate import correlate
    from rca.report.document import document
    from rca.rules.chain import load_rules
    from rca.rules.judge import judge

    if prometheus is not None:
        readings = [*readings, *_counters(prometheus, readings)]
    if baseline is not None:
        known["baseline"] = _healthy(Path(baseline), workers, rules)
    run = correlate(readings, **known)
    verdict = judge(run, load_rules(rules), graph.build(run.events, run.edges))
    run, verdict = _with_lines(run, verdict, sources, workers)
    recognised = bool(verdict.hypotheses) or any(e.source for e in run.events) or any(r.format not in ("plain", "skipped", "archive") for r in run.readings)
    incomplete = any(r.reason and r.reason not in HARMLESS and not r.reason.startswith(UNUSED) for r in run.readings)
    return Report(document(run, verdict, seconds=time.monotonic() - began, version=__version__), run, verdict, recognised, incomplete)


#: Skipping these loses no evidence: they are no logs.
HARMLESS = frozenset({"binary", "empty", "replaced later in the archive", "recording of requests"})
#: Values of an export that say nothing, records that their own writer let go: stated, but no part of a file is missing for them.
UNUSED = ("unused: ", "not written: ")


def _phrases(rules: Path | None) -> Path | None:
    """The folder of signatures beside a user's rules."""
    return folder if rules is not None and (folder := rules / "signatures").is_dir() else None


def _topology(path: Path) -> Any:
    """What a file says about who ran where."""
    try:
        from rca.correlate import topology
    except ImportError:
        raise RcaError("`--topology` is not available in this version") from None
    return topology.read(path)


def _counters(url: str, readings: list[Any]) -> list[Any]:
    """Readings of the counters that a Prometheus server holds of the run's time."""
    try:
        from rca.ingest.samples import prometheus_live
    except ImportError:
        raise RcaError("`--prometheus` is not available in this version") from None
    return prometheus_live.fetch(url, readings)


def _healthy(path: Path, workers: int | None, rules: Path | None) -> Any:
    """What a healthy run of the same job shows."""
    from rca.correlate import baseline
    from rca.correlate.correlate import correlate
    from rca.ingest.read import ingest

    return baseline.learn(correlate(ingest([path], workers=workers, signatures_of=_phrases(rules))[0]))


def _prepare(rules: Path | None) -> None:
    """Get ready what the later stages need, while the workers scan; what is wrong with the rules is raised here."""
    from rca.correlate import correlate  # noqa: F401
    from rca.report import document  # noqa: F401
    from rca.rules import judge  # noqa: F401
    from rca.rules.chain import load_rules

    load_rules(rules)


def _with_lines(run: Run, verdict: Verdict, sources: dict[str, Any], workers: int | None) -> tuple[Run, Verdict]:
    """Count lines, but only in files that the report cites and only up to the last cited line."""
    from rca.ingest.read import resolve_lines

    cited = [e.record for h in verdict.hypotheses for e in h.evidence] + [r for e in run.events for r in e.records[:1]]
    wanted: dict[str, list[int]] = {}
    for record in cited:
        if record.line is None:
            wanted.setdefault(record.source, []).append(record.offset)
    found = resolve_lines(sources, wanted, workers)

    def record(r: Record) -> Record:
        return r if r.line is not None else r._replace(line=found.get((r.source, r.offset)))

    def event(e: Event) -> Event:
        line = e.line if e.line is not None or e.source is None else found.get((e.source, e.offset))
        return e.but(line=line, also=tuple(record(r) for r in e.also))

    by_id = {e.event_id: event(e) for e in run.events}
    hypotheses = tuple(
        replace(
            h, event=by_id[h.event.event_id], symptom=by_id[h.symptom.event_id].but(stage=h.symptom.stage) if h.symptom else None,
            evidence=tuple(v._replace(record=record(v.record), event=by_id[v.event.event_id]) for v in h.evidence),
        )
        for h in verdict.hypotheses
    )  # fmt: skip
    notes = tuple((text, by_id.get(e.event_id, e) if e else None) for text, e in run.notes)
    return replace(run, events=tuple(by_id.values()), notes=notes), replace(verdict, hypotheses=hypotheses)
