"""Find a rule's chain in the graph: every event that may be its cause, and for each other link the event that fits best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rca.model import Event, Evidence, Graph, Run
from rca.rules.chain import Link, Rule
from rca.taxonomy import Kind

SIMULTANEOUS_NS = 1_000_000_000  # logs have whole seconds: events closer than this are not ordered


@dataclass
class Match:
    """One rule fitted to one cause event."""

    rule: Rule
    cause: Event
    found: dict[str, Event] = field(default_factory=dict)
    absent: list[Link] = field(default_factory=list)
    cited: list[Evidence] = field(default_factory=list)  # beside the chain: what was made of the run afterwards

    @property
    def cause_class(self) -> str:
        return self.rule.cause_link.cause_class.get(self.cause.kind, self.rule.cause)

    def terms(self) -> list[tuple[str, float]]:
        """The worth of every link, in words and nats."""
        seen = [(f"{link.name}: {self.found[link.name].kind}", link.present) for link in self.rule.links if link.name in self.found]
        for link in self.rule.links:
            event = self.found.get(link.name)
            seen += [(m.get("says", "detail"), m["worth"]) for m in link.more if event is not None and holds(m["where"], event)]
        return seen + [(f"no {link.name}, though it could have been seen", link.absent) for link in self.absent]


def matches(rule: Rule, run: Run, graph: Graph) -> Iterator[Match]:
    """Yield a match for each event that fits the rule's cause link."""
    for cause in run.events:
        if cause.severity != "info" and fits(rule.cause_link, cause):
            match = Match(rule, cause, {rule.cause_link.name: cause})
            for link in rule.links:
                if link.role == "cause":
                    continue
                anchor = match.found.get(link.relation.get("to", rule.cause_link.name))
                event = _best(link, anchor, run, graph, {e.event_id for e in match.found.values()}) if anchor is not None else None
                if event is not None:
                    match.found[link.name] = event
                elif link.absent and observable(link, cause, run):
                    match.absent.append(link)
            yield match


def fits(link: Link, event: Event) -> bool:
    """Whether an event has the kind, stage and attributes that a link asks for."""
    # An exception that only its plain words place is an unknown exception as well.
    exception = event.attrs.get("generic") and event.attrs.get("traceback") and Kind.EXCEPTION in link.kinds
    if event.kind not in link.kinds and not exception:
        return False
    if link.stages and event.stage not in link.stages:
        return False
    return holds(link.where, event)


def holds(where: dict[str, Any], event: Event) -> bool:
    """Whether an event's columns and attributes are as asked."""
    return all(_holds(_value(event, name), wanted) for name, wanted in where.items())


def _value(event: Event, name: str) -> Any:
    return getattr(event, name) if name in Event.__dataclass_fields__ else event.attrs.get(name)


def _holds(value: Any, wanted: Any) -> bool:
    """A list means one of; a table {min, max} means a range; `true`/`false` mean set or not."""
    if isinstance(wanted, bool):
        return bool(value) is wanted
    if isinstance(wanted, list):
        return value in wanted
    if isinstance(wanted, dict):
        return value is not None and wanted.get("min", value) <= value <= wanted.get("max", value)
    return value == wanted


def observable(link: Link, cause: Event, run: Run) -> bool:
    """Whether the link would have been seen had it been there: something that sees it covers the host."""
    if link.seen_by == "always":
        return True
    return any(what == link.seen_by and (host is None or cause.host is None or host == cause.host) for what, host in run.coverage)


def _best(link: Link, anchor: Event, run: Run, graph: Graph, used: set[int]) -> Event | None:
    fitting = [e for e in run.events if e.event_id not in used and fits(link, e) and related(link.relation, anchor, e, graph)]
    return min(fitting, key=lambda e: (e.source is None and not e.also, e.time_ns if e.time_ns is not None else 2**62, e.event_id)) if fitting else None


def related(relation: dict[str, Any], anchor: Event, event: Event, graph: Graph) -> bool:
    """Whether an event stands in the asked relation to the anchor."""
    for name in relation.get("same", ()):
        if name == "rank" and event.ranks and anchor.rank in event.ranks:
            continue  # folded from several ranks, this one among them
        if _value(anchor, name) is None or _value(anchor, name) != _value(event, name):
            return False
    for name in relation.get("differs", ()):
        mine, other = _value(anchor, name), _value(event, name)
        if (mine == other and mine is not None and not event.ranks) or (mine is None and other is None and not event.ranks):
            return False
    if (kind := relation.get("edge")) and not _edge(kind, anchor, event, graph):
        return False
    if "step_gap" in relation:
        low, high = relation["step_gap"]
        if anchor.step is None or event.step is None or not low <= event.step - anchor.step <= high:
            return False
    if anchor.time_ns is not None and event.time_ns is not None:
        gap = event.time_ns - anchor.time_ns
        slack = SIMULTANEOUS_NS + anchor.time_error_ns + event.time_error_ns
        if "after_s" in relation and not -slack <= gap <= relation["after_s"] * 1e9 + slack:
            return False
        if "before_s" in relation and not -slack <= -gap <= relation["before_s"] * 1e9 + slack:
            return False
    return True


def _edge(kind: str, anchor: Event, event: Event, graph: Graph) -> bool:
    if kind == "path":  # over any number of edges
        return anchor.event_id in graph.ancestors(event.event_id)
    kinds = graph.kinds(anchor.event_id, event.event_id) | graph.kinds(event.event_id, anchor.event_id)
    return bool(kinds) if kind == "any" else kind in kinds
