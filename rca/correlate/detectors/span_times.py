"""One worker whose requests take many times as long as those of its siblings in the same step, and as its own before.

Both are asked for: a long step is slow for everybody, and a worker that was always slower has a harder task. Whether the callee worked or the
way to it was slow is told apart by the two halves of the call.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from rca.correlate.spans import AGAIN, CLIENT, ERROR, NO_TIME, PRODUCER, SERVER, Spans
from rca.correlate.view import View
from rca.model import Event, Record
from rca.taxonomy import Kind

TIMES = 3.0  # times the median of the others; see the constant of that name in ingest, whose candidates these are
LEAST_S = 2.0
PAST = 3  # earlier spans of the worker that show its usual time
MOST = 4  # workers that are told; where more are slow it is no one's fault
ON_THE_WAY = 0.5  # share of a call's time outside of the callee's span from which on the way was slow
CALLS = (CLIENT, PRODUCER)


def detect(view: View) -> list[Event]:
    """`net.latency_rose` for each such worker, at its slowest span."""
    spans = view.spans
    if not spans.raws:
        return []
    candidates = {row for row in _rows(spans) if spans.up[row] != AGAIN}
    names = {spans.columns["name"][row] for row in candidates}
    steps: dict[tuple, dict[int, dict[int, float]]] = {}  # (name, stage and kind) -> step -> worker -> seconds
    for row, name in enumerate(spans.columns["name"]):
        if name in names and (key := _key(spans, row)) is not None and (seconds := spans.seconds(row)) is not None:
            workers = steps.setdefault(key[:2], {}).setdefault(key[2], {})
            workers[key[3]] = max(workers.get(key[3], 0.0), seconds)
    slowest: dict[Any, tuple[float, int, float]] = {}
    for row in sorted(candidates):
        key, seconds = _key(spans, row), spans.seconds(row)
        if key is None or seconds is None:
            continue
        of_name = steps[key[:2]]
        others = [s for worker, s in of_name[key[2]].items() if worker != key[3]]
        past = [workers[key[3]] for step, workers in of_name.items() if step < key[2] and key[3] in workers]
        if not others or len(past) < PAST:
            continue
        usual = max(median(others), median(past))
        if seconds > TIMES * usual and seconds - usual > LEAST_S:
            who = _who(spans, row)
            if who not in slowest or seconds / usual > slowest[who][0]:
                slowest[who] = (seconds / usual, row, usual)
    if len(slowest) > MOST:
        return []
    return [_event(view, row, usual) for _, row, usual in sorted(slowest.values())]


def _rows(spans: Spans) -> list[int]:
    offsets = spans.columns["offset"]
    found = []
    for number, (first, source) in enumerate(spans.sources):
        kept = {offset for name, offset in spans.raws if name == source}
        end = spans.sources[number + 1][0] if number + 1 < len(spans.sources) else len(spans)
        found += [row for row in range(first, end) if offsets[row] in kept] if kept else []
    return found


def _key(spans: Spans, row: int) -> tuple[int, tuple[str | None, int], int, int] | None:
    """(name, stage and kind, step, worker) of a span that counts; None for one that failed, has no step, or is the caller's half of an answered call."""
    kind, peer = spans.kind(row), spans.columns["peer"][row]
    stage, step = spans.phases[spans.columns["phase"][row]]
    if step is None or spans.status(row) == ERROR or spans.up[row] == AGAIN or spans.columns["end"][row] == NO_TIME:
        return None
    if kind in CALLS:
        if spans.peers[peer] == (None, None, None):
            return None
        return spans.columns["name"][row], (stage, CLIENT), step, peer
    return spans.columns["name"][row], (stage, kind), step, spans.columns["proc"][row]


def _who(spans: Spans, row: int) -> tuple:
    """A worker, whichever half of the call shows it."""
    if spans.kind(row) in CALLS:
        peer = spans.columns["peer"][row]
        return ("proc", spans.served[peer]) if peer in spans.served else ("peer", peer)
    return ("proc", spans.columns["proc"][row])


def _event(view: View, row: int, usual: float) -> Event:
    spans = view.spans
    seconds = spans.seconds(row) or 0.0
    stage, step = spans.phases[spans.columns["phase"][row]]
    source = spans.source(row)
    offset = spans.columns["offset"][row]
    called = spans.kind(row) in CALLS
    about = spans.callee(row) if called else spans.process(row)
    part = "unknown"
    above = spans.up[row]
    if spans.kind(row) == SERVER and above >= 0 and (whole := spans.seconds(above)):
        part = "work" if seconds > (1 - ON_THE_WAY) * whole else "way"
    elif called and spans.answered[row]:
        part = "way"  # the callee's own half is not slow, or it would stand here
    host = about.get("host") or about.get("address")
    worker = about.get("worker")
    name = spans.names[spans.columns["name"][row]]
    text = f"{name} of {worker if isinstance(worker, str) else about.get('service') or about.get('role') or 'a worker'}{f'/{worker}' if isinstance(worker, int) else ''} took {seconds:.1f} s, usually {usual:.1f} s"
    end = spans.columns["end"][row]
    return Event(
        Kind.LATENCY_ROSE, text, severity="warning", time_ns=view.clock.resolve(end, host, True), host=host, pid=about.get("pid") if isinstance(about.get("pid"), int) else None,
        rank=about.get("rank") if isinstance(about.get("rank"), int) else None, gpu=about.get("gpu") if isinstance(about.get("gpu"), int) else None, stage=stage, step=step,
        attrs={"span": True, "seconds": round(seconds, 3), "usual_s": round(usual, 3), "part": part, "about": {k: v for k, v in about.items() if k in ("worker", "host", "pid", "gpu", "rank")}},
        also=(Record(source, None, offset, spans.raws[source, offset]),),
    )  # fmt: skip
