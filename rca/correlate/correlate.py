"""Readings to a run: identity, clock, folding, progress, detectors, edges - in this order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rca import discover
from rca.correlate import annotate, course, doubt, exits, fold, identity, kernel, outcome, progress, refused_load, replays, settings, traced
from rca.correlate import baseline as baselines
from rca.correlate import clock as clocks
from rca.correlate import detectors as detector_folder
from rca.correlate import edges as edge_folder
from rca.correlate import spans as span_tables
from rca.correlate.tracks import tracks
from rca.correlate.view import View
from rca.model import Event, Missing, Reading, Run, event_schema
from rca.taxonomy import Kind

if TYPE_CHECKING:
    import polars as pl



def correlate(readings: list[Reading], topology: Any = None, baseline: Any = None) -> Run:
    """Join everything that was read into one picture of the run. `topology` is what the user says about who ran where, `baseline` what a healthy run shows."""
    readings, afterwards = replays.apart(readings)
    who = identity.resolve(readings) if topology is None else identity.resolve(readings, topology)
    stated = [e for r in readings for e in r.events]
    calls = span_tables.join(readings)
    clock = clocks.estimate(who, stated, calls.bounds(who.name_of), readings)
    events = kernel.join_swap(kernel.join_oom(fold.merge_copies(traced.interpret(fold.settle(stated, who, clock), calls))))
    events = fold.fold(exits.claim(exits.interpret(events)))
    phases = course.build(who, clock)
    procs = progress.processes(who, events, clock, phases.given_up_ns())
    view = View(readings, who, clock, annotate.annotate(View(readings, who, clock, events, procs, phases, calls)), procs, phases, calls)
    view = View(readings, who, clock, refused_load.look(doubt.look(view)), procs, phases, calls)
    if baseline is not None:
        usual = baselines.discount(view.events, who.hosts, _summary(procs), baseline)
        procs = progress.processes(who, usual, clock, phases.given_up_ns())  # what is usual ended nobody
        view = View(readings, who, clock, usual, procs, phases, calls)
    derived = [e for module in discover.modules(detector_folder) for e in module.detect(view)]
    derived = [annotate.place(e, view).but(event_id=len(view.events) + i) for i, e in enumerate(derived)]
    if baseline is not None:
        derived = baselines.discount(derived, who.hosts, _summary(procs), baseline)
    view = View(readings, who, clock, view.events + derived, procs, phases, calls)
    view = View(readings, who, clock, doubt.confirm(view), procs, phases, calls)
    edges = sorted({edge for module in discover.modules(edge_folder) for edge in module.build(view)})
    ended = outcome.how(view)
    return Run(
        events=(*view.events, *replays.events(afterwards, who, clock, 1 + max((e.event_id for e in view.events), default=-1))), edges=tuple(edges),
        readings=(*settings.named(_timed(readings, who, clock)), *replays.readings(afterwards)), processes=_summary(procs),
        hosts=tuple(who.hosts), world=who.world, attempts=who.attempts, clocks=clocks.describe(clock),
        missing=_missing(view, ended) + replays.missing(readings, afterwards, ended), notes=outcome.notes(view) + (baselines.notes(view.events, baseline) if baseline is not None else ()), coverage=_coverage(view), outcome=ended,
    )  # fmt: skip


def frame(events: list[Event]) -> pl.DataFrame:
    """The events as a frame of the declared schema, sorted by event id; attributes are JSON text."""
    import polars as pl

    schema = event_schema()
    columns = {
        name: [json.dumps(e.attrs, default=str, sort_keys=True) if name == "attrs" else list(e.ranks) if name == "ranks" else getattr(e, name) for e in events]
        for name in schema
    }  # fmt: skip
    return pl.DataFrame(columns, schema=schema).sort("event_id")


def _timed(readings: list[Reading], who: identity.Identity, clock: clocks.Clock) -> list[Reading]:
    """Readings with their host, rank and first and last common time."""
    from dataclasses import replace

    out = []
    for reading in readings:
        writers = who.writers_of(reading.source)
        times = [t for w in writers for m in (w.info["first"], w.info["last"]) if m and (t := clock.resolve(m[0], w.host, bool(reading.facts.get("zoned")))) is not None]
        times = [t for t in times if clock.dated(t)]
        ranks = {w.rank for w in writers if w.rank is not None}
        hosts = {w.host for w in writers if w.host}
        facts = {"rank": ranks.pop() if len(ranks) == 1 else None, "host": hosts.pop() if len(hosts) == 1 else None}
        out.append(replace(reading, facts=facts, first_ns=min(times, default=None), last_ns=max(times, default=None)))
    return out


def _summary(procs: dict) -> dict:
    return {
        key: {"rank": p.rank, "actor": p.actor, "role": p.role, "host": p.host, "attempt": p.attempt, "last_step": p.last_step,
              "last_stage": p.last_stage, "last_ns": p.last_ns, "first_ns": p.first_ns, "finished": p.finished, "pids": tuple(sorted(p.pids)),
              "ended_by": p.ended_by.event_id if p.ended_by else None, "steps": len(p.steps)}
        for key, p in procs.items()
    }  # fmt: skip


def _coverage(view: View) -> frozenset[tuple[str, str | None]]:
    """What could have been seen, and on which host (None: anywhere): absence counts only there."""
    seen: set[tuple[str, str | None]] = set()
    for reading in view.readings:
        host = next((w.host for w in view.identity.writers_of(reading.source) if w.host), None)
        if reading.of_host:
            seen.add(("kernel", host))
        if not reading.facts.get("measured") and any(s[3] != "handed" for s in reading.facts.get("samples", ())):
            seen.add(("counters", host))
    for event in view.events:
        if event.kind in (Kind.EXITED, Kind.AGENT_REPORT, Kind.AGENT_SIGNALLED):
            seen.add(("launcher", event.host))
        if event.kind == Kind.STACK_DUMP:
            seen.add(("stacks", event.host))
    seen |= {("counters", track.host) for track in tracks(view)}
    seen |= {("ranks", p.host) for p in view.procs.values() if p.rank is not None and p.lines}
    return frozenset(seen)


def _missing(view: View, ended: str) -> tuple[Missing, ...]:
    found = [Missing(e.text, "collect the log folder of that rank's node (torchrun --log-dir, --redirects 3)") for e in view.of(Kind.RANK_LOG_MISSING)]
    if ended == "finished":
        return tuple(found)
    kernel = {host for what, host in _coverage(view) if what == "kernel"}
    lacking = [h for h in view.identity.hosts if h not in kernel and None not in kernel]
    if lacking:
        names = ", ".join(lacking[:4]) + (f" and {len(lacking) - 4} more" if len(lacking) > 4 else "")
        found.append(Missing(f"no kernel log of {names}", "dmesg -T --time-format iso > dmesg-$(hostname).log, or journalctl -k -o json"))
    return tuple(found)
