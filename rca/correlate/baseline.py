"""What a healthy run of the same job shows too is no cause: messages of the same kind and wording, at a similar rate and level.

A message counts as usual if the healthy run has it as often for its length and number of processes, and if processes go on after it there
as here: a time-out that was retried in the healthy run says nothing about one that ended a process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rca.correlate.fold import masked
from rca.model import Event, Run
from rca.taxonomy import VICTIM_KINDS

SIMILAR = 3.0  # times as often as expected is still usual
CHANCE = 2  # and so many more
HIGHER = 2.0  # times the level of the healthy run is no longer usual
PLACES = frozenset({"seq", "last_seq", "last_ns", "last_offset", "rank", "step", "line", "offset"})  # numbers that are no levels
SHOWN = 10  # notes
Key = tuple[str, str]


@dataclass(frozen=True)
class Usual:
    """One kind of message of the healthy run."""

    count: int
    ended: bool  # it was the last that some process said
    levels: dict[str, float]


@dataclass(frozen=True)
class Baseline:
    """What the healthy run shows. `seconds` is None where it states no times."""

    usual: dict[Key, Usual]
    seconds: float | None
    processes: int
    outcome: str


def learn(run: Run) -> Baseline:
    """Learn from a healthy run. From one that failed itself only what its processes survived is learned."""
    usual: dict[Key, Usual] = {}
    for event in run.events:
        if run.outcome == "failed" and not event.attrs.get("lived_on"):
            continue
        key, levels = _key(event, run.hosts), _levels(event)
        before = usual.get(key, Usual(0, False, {}))
        highest = {name: max(value, before.levels.get(name, value)) for name, value in levels.items()}
        usual[key] = Usual(before.count + event.count, before.ended or not _over(event), before.levels | highest)
    return Baseline(usual, _seconds(run.processes), max(1, len(run.processes)), run.outcome)


def discount(events: list[Event], hosts: list[str], processes: dict[Any, dict[str, Any]], baseline: Baseline) -> list[Event]:
    """The events, those that are usual as mere remarks: `info`, which no rule takes for a cause, and marked with how often the healthy run has them."""
    seconds = _seconds(processes)
    longer = seconds / baseline.seconds if seconds and baseline.seconds else 1.0
    wider = max(1, len(processes)) / baseline.processes
    counts: dict[Key, int] = {}
    for event in events:
        counts[_key(event, hosts)] = counts.get(_key(event, hosts), 0) + event.count
    out = []
    for event in events:
        key = _key(event, hosts)
        usual = baseline.usual.get(key)
        once = usual is not None and usual.count <= baseline.processes  # per process, at its start or end: how long it runs does not matter
        if usual is None or event.severity == "info" or not _similar(event, counts[key], usual, wider * (1.0 if once else longer)):
            out.append(event)
        else:
            out.append(event.but(severity="info", attrs={**event.attrs, "usual": usual.count}))
    return out


def notes(events: list[Event], baseline: Baseline) -> tuple[tuple[str, Event | None], ...]:
    """What was discounted, and what to think of the healthy run."""
    found: list[tuple[str, Event | None]] = []
    if baseline.outcome == "failed":
        found.append(("the run given as healthy looks failed itself; only what its processes survived was taken as usual", None))
    for event in [e for e in events if "usual" in e.attrs][:SHOWN]:
        times = f"{event.attrs['usual']} time(s) there, {event.count} here"
        found.append((f"the healthy run shows this too ({times}), so it is no cause: {event.text[:120]}", event if event.source else None))
    return tuple(found)


def _similar(event: Event, count: int, usual: Usual, scale: float) -> bool:
    if not _over(event) and not usual.ended:
        return False
    if event.kind in VICTIM_KINDS and event.attrs.get("traceback") and not _over(event):
        return False  # whom it ended did not end of something usual
    if count > SIMILAR * max(1.0, usual.count * scale) + CHANCE:
        return False
    return all(value <= HIGHER * usual.levels[name] for name, value in _levels(event).items() if name in usual.levels)


def _over(event: Event) -> bool:
    """Whether things went on after it; what a detector derives from numbers, or a host's log says, is no end of anybody."""
    return bool(event.attrs.get("lived_on")) or event.source is None or (event.rank is None and event.actor is None) or event.severity in ("info", "warning")


def _key(event: Event, hosts: Any) -> Key:
    text = event.text
    for host in sorted((h for h in hosts if h in text), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "HOST", text)
    return event.kind, masked(text)


def _levels(event: Event) -> dict[str, float]:
    """The numbers of a derived event that say how much."""
    if event.source is not None:
        return {}
    return {k: float(v) for k, v in event.attrs.items() if isinstance(v, int | float) and not isinstance(v, bool) and k not in PLACES}


def _seconds(processes: dict[Any, dict[str, Any]]) -> float | None:
    """How long the processes lived, from the first sign of life to the last."""
    first = [p["first_ns"] for p in processes.values() if p.get("first_ns") is not None]
    last = [p["last_ns"] for p in processes.values() if p.get("last_ns") is not None]
    return (max(last) - min(first)) / 1e9 if first and last and max(last) > min(first) else None
