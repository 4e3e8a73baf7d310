"""Weigh what a replay says: software fails again, machines and networks do not, and wrong numbers point at the machine that computed them.

A replay names no cause by itself, with the one exception that `gpu/sdc` describes. It moves the hypotheses that explain the failure that was replayed, by
how often failures of their class come back (`replay.toml`). Nothing is weighed of a replay with the fault in it, or in another environment.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from rca.model import Event, Evidence, Graph, Run
from rca.rules.match import Match
from rca.taxonomy import QUIET_KINDS, REPLAY_KINDS, Kind

OUTCOMES = {Kind.REPLAY_REPRODUCED: "reproduces", Kind.REPLAY_NOT_REPRODUCED: "does_not_reproduce", Kind.REPLAY_DIVERGED: "diverges"}
SAID = {
    "reproduces": "run again in fresh processes, the failed request fails again",
    "does_not_reproduce": "run again in fresh processes, the failed request does not fail",
    "diverges": "run again in fresh processes, the request gives other numbers",
}
COMING_UP = ("init", "load", "recover")  # the step is that of whatever was stopped, or none
LEAST = 0.005  # nats; less is no term
INDEX = re.compile(r"[-_/.](\d{1,6})(?:\D|$)")
Weighed = tuple[Match, float, list[str]]


@lru_cache
def table() -> dict[str, Any]:
    """`replay.toml`."""
    return tomllib.loads((Path(__file__).parent / "replay.toml").read_text("utf-8"))


def share(cause: str, outcome: str) -> float:
    """How often a failure of a class of causes has this outcome when its request is run again."""
    fitting = [(pattern == cause, len(pattern), entry[outcome]) for entry in table()["class"] for pattern in entry["cause"] if fnmatchcase(cause, pattern)]
    return float(max(fitting)[2])


def average(outcome: str, rates: dict[str, float]) -> float:
    """The same of a failure whose cause is not known: over all classes, by their base rates."""
    known = {cause: rate for cause, rate in rates.items() if "." in cause}
    return sum(rate * share(cause, outcome) for cause, rate in known.items()) / sum(known.values())


def worth(cause: str, outcome: str, trust: float, rates: dict[str, float]) -> float:
    """Log-odds of a class against `unknown`, in nats, where the replay is with probability `trust` one of the failure that this cause is to explain."""
    usual = average(outcome, rates)
    return math.log((trust * share(cause, outcome) + (1 - trust) * usual) / usual)


@dataclass(frozen=True)
class Failure:
    """A replay's verdict, the events of the run that tell of the failure it is about, and everything that may have brought those about."""

    verdict: Event
    outcome: str
    told: frozenset[int]
    upstream: frozenset[int]


def counts(event: Event) -> bool:
    """Whether an event of a replay weighs: made without the fault, in the environment of the run."""
    return event.kind in REPLAY_KINDS and not event.attrs.get("void")


def diverged(run: Run) -> bool:
    """Whether some replay's verdict is that the same request gave other numbers."""
    return any(e.kind == Kind.REPLAY_DIVERGED and e.attrs.get("of") == "verdict" and counts(e) for e in run.events)


def weigh(weighed: list[Weighed], run: Run, graph: Graph, rates: dict[str, float]) -> list[Weighed]:
    """The same with what replays add to each sum, in words too; lines that speak for or against a hypothesis are cited."""
    said = [e for e in run.events if counts(e)]
    if not said:
        return weighed
    failures = _failures([e for e in said if e.attrs.get("of") == "verdict" and e.kind in OUTCOMES], run, graph)
    broken = [e for e in said if e.kind == Kind.REPLAY_HAND_OVER_BROKEN]
    return [_moved(w, failures, broken, run, rates) for w in weighed]


def _failures(verdicts: Iterable[Event], run: Run, graph: Graph) -> list[Failure]:
    """One per outcome and failure, from the replay that was made last: the same, made twice, says nothing new."""
    latest: dict[tuple, Event] = {}
    for event in sorted(verdicts, key=lambda e: (e.attrs.get("made") or 0, e.event_id)):
        latest[event.kind, event.request_id, event.attempt, event.step, event.stage] = event
    found = []
    for event in latest.values():
        told = frozenset(e.event_id for e in run.events if _tells_of(event, e, run))
        found.append(Failure(event, OUTCOMES[Kind(event.kind)], told, frozenset().union(*(graph.ancestors(i) for i in told))))
    return found


def _tells_of(verdict: Event, event: Event, run: Run) -> bool:
    """Whether an event of the run tells of the failure that was replayed."""
    if event.kind in REPLAY_KINDS or event.kind in QUIET_KINDS or event.severity == "info":
        return False
    if verdict.request_id and event.request_id == verdict.request_id:
        return True
    if run.attempts > 1 and None not in (verdict.attempt, event.attempt) and verdict.attempt != event.attempt:
        return False
    return verdict.stage is not None and event.stage == verdict.stage and (verdict.step in (None, event.step) or verdict.stage in COMING_UP)


def _trust(match: Match, failure: Failure) -> float:
    """How likely the replay is one of the failure that a hypothesis explains."""
    levels, verdict = table()["trust"], failure.verdict
    chain = list(match.found.values())
    if match.cause.event_id in failure.upstream or any(e.event_id in failure.told for e in chain):
        return levels["same_failure"]
    steps = {e.step for e in chain} - {None}
    if verdict.step is None or not steps:
        return levels["unplaced"]
    return levels["same_step"] if verdict.step in steps else 0.0


def _moved(weighed: Weighed, failures: list[Failure], broken: list[Event], run: Run, rates: dict[str, float]) -> Weighed:
    match, logit, why = weighed
    limits = table()["worth"]
    against = -sum(value for term in why if (value := _value(term)) < 0 and " base rate " not in term)
    terms: list[tuple[str, float, Event]] = []
    for failure in failures:
        if match.cause.event_id != failure.verdict.event_id:  # which is in the sum already
            terms.append((SAID[failure.outcome], worth(match.cause_class, failure.outcome, _trust(match, failure), rates), failure.verdict))
    places = [(value, event) for event in broken if (value := _sender(match, event, run))]
    if places:
        value, event = max(places, key=lambda p: (p[0], -p[1].event_id))
        terms.append((f"what {event.attrs.get('from') or 'its sender'} handed over did not arrive as it was sent", value, event))
    # What other evidence speaks against, a replay hardly lifts: it may be of another failure.
    lifts = math.exp(-against / limits["doubted"])
    terms = [(text, value * lifts if value > 0 else value, event) for text, value, event in terms]
    total = sum(value for _, value, _ in terms)
    scale = min(1.0, limits["most"] / abs(total)) if total else 1.0
    terms = [(text, value * scale, event) for text, value, event in terms if abs(value * scale) >= LEAST]
    match.cited += [Evidence(record, event.kind, "mechanism" if value > 0 else "against", event) for _, value, event in terms if (record := event.record) is not None]
    return match, logit + sum(value for _, value, _ in terms), [*why, *(f"{value:+.1f} {text}" for text, value, _ in terms)]


def _value(term: str) -> float:
    """The number that a term in words begins with."""
    try:
        return float(term.split(" ", 1)[0])
    except ValueError:
        return 0.0


def _sender(match: Match, event: Event, run: Run) -> float:
    """What a broken hand-over adds to a cause at the end that sent it; 0 where the cause lies elsewhere."""
    cause = match.cause
    about = cause.attrs.get("about") or {}
    role, host = about.get("role") or cause.role, about.get("host") or cause.host
    if None not in (cause.step, event.step) and cause.step > event.step:  # type: ignore[operator]
        return 0.0
    sender, _, number = str(event.attrs.get("from") or "").partition("/")
    states = [s for s in run.processes.values() if s.get("role") == sender and sender]
    hosts = {s["host"] for s in states if s.get("host") and (not number or _index(s) == number)}
    if not hosts and event.role in (None, sender):  # the place is that of the worker, which may be the receiver
        hosts = {event.host} - {None}
    if role is not None and role == sender:
        own = cause.rank if role == "train" else about.get("rank")
        index = str(own) if own is not None else _index({"actor": about.get("worker") or cause.actor})
        same = index == number if number and index is not None else not hosts or host in hosts
        return table()["worth"]["sender"] if same else 0.0
    if role is not None or cause.rank is not None:  # another process's fault
        return 0.0
    return table()["worth"]["host"] if host is not None and host in hosts else 0.0


def _index(state: dict[str, Any]) -> str | None:
    """The number of a worker within its role."""
    if state.get("rank") is not None:
        return str(state["rank"])
    found = INDEX.search(str(state.get("actor") or ""))
    return found[1] if found else None
