"""Weighing: shares add up to one, victims are no culprits, what was caused is explained away, and silence counts only where one could hear."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from rca.correlate import graph
from rca.model import Edge, Event, Run
from rca.rules.chain import Link, Rule, load_rules
from rca.rules.judge import FAILED_FROM, judge
from rca.rules.match import holds, matches, observable, related
from rca.taxonomy import VICTIM_KINDS, Kind
from tests.builders import NOON_NS, SECOND_NS, event, run

RULES = load_rules()
HOST_OOM = {
    "kind": Kind.KILLED_BY_KERNEL,
    "text": "Killed process 71 (python)",
    "pid": 71,
    "rank": None,
    "role": None,
    "stage": None,
    "step": None,
    "source": "dmesg.txt",
}
KILLED = {"kind": Kind.KILLED, "text": "rank 1 was killed by SIGKILL", "severity": "fatal", "rank": 1, "source": "console.log", "attrs": {"signal": 9}}


def _judge(given: Run, rules=RULES):
    return judge(given, rules, graph.build(given.events, given.edges))


def _conf(verdict, cause: str) -> float:
    return next((h.confidence for h in verdict.hypotheses if h.cause == cause), 0.0)


def _at(seconds: float) -> int:
    return NOON_NS + int(seconds * SECOND_NS)


def _peer_lost(rank: int, seconds: float = 0.0, **changes) -> Event:
    return event(Kind.PEER_LOST, "RuntimeError: Connection closed by peer", rank=rank, time_ns=_at(seconds), source=f"rank{rank}.log", **changes)


# --- confidences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kinds",
    [
        (), (Kind.EXCEPTION,), (Kind.PEER_LOST, Kind.STORE_LOST), (Kind.NO_SPACE, Kind.READ_ONLY, Kind.PERMISSION, Kind.IO_ERROR),
        tuple(k for k in Kind if k not in VICTIM_KINDS),
    ],
)  # fmt: skip
def test_confidences_and_unknown_add_up_to_one(kinds: tuple) -> None:
    """Whatever is found, the hypotheses shown and `unknown` share one whole."""
    verdict = _judge(run(*(event(kind, f"{kind} happened", rank=i % 2, time_ns=_at(i * 0.1)) for i, kind in enumerate(kinds))))
    assert sum(h.confidence for h in verdict.hypotheses) + verdict.unknown_probability == pytest.approx(1.0, abs=2e-3)
    assert all(0.0 < h.confidence <= 1.0 for h in verdict.hypotheses) and 0.0 <= verdict.unknown_probability <= 1.0
    assert [h.confidence for h in verdict.hypotheses] == sorted((h.confidence for h in verdict.hypotheses), reverse=True)


def test_one_class_is_one_hypothesis() -> None:
    """Two events that two rules of one class explain are not split into two hypotheses."""
    verdict = _judge(run(event(Kind.NO_SPACE, "No space left on device"), event(Kind.WRITE_FAILED, "unexpected pos 7 vs 5", time_ns=_at(1))))
    assert [h.cause for h in verdict.hypotheses].count("fs.full") == 1


def test_a_finished_run_is_healthy() -> None:
    """An error of a run that ended well is no root cause."""
    verdict = _judge(run(event(), outcome="finished"))
    assert verdict.verdict == "healthy" and not verdict.hypotheses and verdict.unknown_probability == 0.0


def test_nothing_known_is_inconclusive() -> None:
    """A failed run without a single telling event gets no culprit."""
    verdict = _judge(run())
    assert verdict.verdict == "inconclusive" and verdict.unknown_probability == 1.0


# --- victims ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_edges", [True, False], ids=["edges", "no edges"])
@pytest.mark.parametrize("kind", sorted(VICTIM_KINDS))
def test_victims_are_never_first_even_if_first_and_loudest(kind: str, with_edges: bool) -> None:
    """Nine hundred early cries of healthy ranks do not outweigh the one exception that came after them."""
    loud = event(kind, "NCCL WARN fatal abort terminate ERROR", severity="fatal", rank=0, ranks=(0, 2, 3), count=900, time_ns=_at(0))
    quiet = event(Kind.EXCEPTION, "ValueError: label 7", rank=1, time_ns=_at(3), source="rank1.log", attrs={"traceback": True})
    edges = (Edge(1, 0, "collective"),) if with_edges else ()
    verdict = _judge(run(loud, quiet, edges=edges))
    assert verdict.hypotheses[0].cause == "sw.rank_exception" and verdict.hypotheses[0].event.rank == 1


def test_only_victims_give_no_culprit() -> None:
    """When all that is left is what healthy ranks say, the verdict is that nobody knows."""
    verdict = _judge(run(_peer_lost(0), _peer_lost(1), event(Kind.STORE_LOST, "store is gone", rank=2)))
    assert verdict.verdict == "inconclusive" and all(h.confidence < FAILED_FROM for h in verdict.hypotheses)


# --- explaining away --------------------------------------------------------------------------------------------------


def test_a_cause_explains_away_what_it_brought_about() -> None:
    """An exception that followed from a full disk is not the root; alone it would be."""
    alone = _judge(run(event(Kind.EXCEPTION, "SaveError: giving up", rank=0, time_ns=_at(1))))
    assert alone.hypotheses[0].cause == "sw.rank_exception"
    full = event(Kind.NO_SPACE, "No space left on device", rank=0, time_ns=_at(0))
    after = event(Kind.EXCEPTION, "SaveError: giving up", rank=0, time_ns=_at(1))
    verdict = _judge(run(full, after, edges=(Edge(0, 1, "program"),)))
    assert verdict.hypotheses[0].cause == "fs.full" and _conf(verdict, "sw.rank_exception") < _conf(alone, "sw.rank_exception") / 2


def test_explaining_away_needs_a_mechanism() -> None:
    """Two unrelated failures of two ranks keep both their weights when nothing orders them."""
    a = event(Kind.NO_SPACE, "No space left on device", rank=0, time_ns=None)
    b = event(Kind.EXCEPTION, "ValueError: label 7", rank=1, time_ns=None, source="rank1.log")
    apart = _judge(run(a, b))
    tied = _judge(run(a, b, edges=(Edge(0, 1, "program"),)))
    assert _conf(apart, "sw.rank_exception") > 2 * _conf(tied, "sw.rank_exception")


def test_a_weak_guess_explains_nothing_away() -> None:
    """A latent guess upstream does not take a stated cause's place."""
    guess = event(Kind.RANK_LOG_MISSING, "rank 1 of 2 left no log", rank=1, source=None, time_ns=_at(0))
    stated = event(Kind.DEVICE_OOM, "CUDA out of memory", rank=0, time_ns=_at(1))
    verdict = _judge(run(guess, stated, edges=(Edge(0, 1, "collective"),)))
    assert verdict.hypotheses[0].cause == "sw.cuda_oom"


def test_what_a_process_survived_weighs_less() -> None:
    """An exception after which the rank went on is less likely the end of it."""
    died = _judge(run(event()))
    survived = _judge(run(event(attrs={"lived_on": True})))
    assert _conf(survived, "sw.rank_exception") < _conf(died, "sw.rank_exception") / 2


def test_an_earlier_attempt_failed_first() -> None:
    """What breaks in the second attempt comes after the job's first failure."""
    first = event(Kind.FATAL_SIGNAL, "rank 0 died of SIGSEGV", attempt=0, time_ns=_at(0), attrs={"signal": 11})
    second = event(Kind.EXCEPTION, "KeyError: 'x'", attempt=1, time_ns=_at(90), source="rank0.attempt1.log")
    both, alone = _judge(run(first, second, attempts=2)), _judge(run(second.but(attempt=0)))
    assert both.hypotheses[0].event.attempt == 0 or _conf(both, "sw.rank_exception") < _conf(alone, "sw.rank_exception")


# --- absence ----------------------------------------------------------------------------------------------------------


def _killed(*coverage: tuple[str, str | None]):
    return _judge(run(event(**KILLED), coverage=frozenset(coverage)))


def test_absence_counts_only_where_it_could_have_been_seen() -> None:
    """A kernel log of that host that is silent about the kill speaks against the OOM killer; none, or another host's, does not."""
    blind, elsewhere, covered = _killed(), _killed(("kernel", "node-2")), _killed(("kernel", "node-1"))
    assert _conf(blind, "host.oom") == pytest.approx(_conf(elsewhere, "host.oom"))
    assert _conf(covered, "host.oom") < _conf(blind, "host.oom") / 2
    assert _conf(covered, "host.preempt") > _conf(blind, "host.preempt")


def test_a_source_without_a_host_covers_every_host() -> None:
    """A kernel log whose host nobody stated may be that of the killed rank."""
    assert _conf(_killed(("kernel", None)), "host.oom") == pytest.approx(_conf(_killed(("kernel", "node-1")), "host.oom"))


def test_absence_is_named_among_the_reasons() -> None:
    """A hypothesis says in words what was looked for and not found."""
    reasons = next(h for h in _killed(("kernel", "node-1")).hypotheses if h.cause == "host.oom").why
    assert any("no kernel, though it could have been seen" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("seen_by", "coverage", "expected"),
    [
        ("always", (), True), ("kernel", (), False), ("kernel", (("kernel", "node-1"),), True), ("kernel", (("kernel", "node-2"),), False),
        ("kernel", (("counters", "node-1"),), False), ("launcher", (("launcher", None),), True),
    ],
)  # fmt: skip
def test_observable(seen_by: str, coverage: tuple, expected: bool) -> None:
    """A link could have been seen when something that sees its like covers the host."""
    link = Link("kernel", "mechanism", frozenset({Kind.KILLED_BY_KERNEL}), seen_by=seen_by)
    assert observable(link, event(), run(coverage=frozenset(coverage))) is expected


# --- order ------------------------------------------------------------------------------------------------------------


def _scene() -> list[Event]:
    """A kernel kill, the death it caused, two victims and a later exception."""
    return [
        event(**HOST_OOM, time_ns=_at(0)), event(**KILLED, time_ns=_at(1)), _peer_lost(0, 2), _peer_lost(2, 2.1),
        event(Kind.EXCEPTION, "SaveError: giving up", rank=0, time_ns=_at(4)),
    ]  # fmt: skip


EDGES = ((0, 1, "host"), (1, 2, "collective"), (1, 3, "collective"), (0, 2, "collective"), (2, 4, "program"))


def _shuffled(order: list[int]):
    scene = _scene()
    place = {old: new for new, old in enumerate(order)}
    edges = tuple(Edge(place[a], place[b], kind) for a, b, kind in EDGES)
    return _judge(run(*(scene[i] for i in order), edges=edges))


@pytest.mark.parametrize("order", [list(p) for p in random.Random(7).sample(list(permutations(range(5))), 24)], ids=str)
def test_order_of_events_does_not_matter(order: list[int]) -> None:
    """The same happenings in any order give the same hypotheses with the same confidences."""
    given, straight = _shuffled(order), _shuffled([0, 1, 2, 3, 4])
    assert [(h.cause, h.rule, h.confidence, h.event.text) for h in given.hypotheses] == [
        (h.cause, h.rule, h.confidence, h.event.text) for h in straight.hypotheses
    ]
    assert given.hypotheses[0].cause == "host.oom"


def test_order_of_rules_does_not_matter() -> None:
    """Rules are weighed side by side."""
    given = run(*_scene(), edges=tuple(Edge(*e) for e in EDGES))
    one, other = _judge(given), _judge(given, tuple(reversed(RULES)))
    assert [(h.cause, h.rule, h.confidence) for h in one.hypotheses] == [(h.cause, h.rule, h.confidence) for h in other.hypotheses]


# --- matching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"rank": 0}, True), ({"rank": [1, 2]}, False), ({"rank": [0, 2]}, True), ({"step": {"min": 1}}, True), ({"step": {"min": 2}}, False),
        ({"step": {"max": 0}}, False), ({"hosts": {"min": 2}}, True), ({"nothing": {"min": 2}}, False), ({"flag": True}, True), ({"gone": True}, False),
        ({"gone": False}, True), ({"flag": False}, False), ({"place": ["loader"]}, True), ({"place": ["save"]}, False), ({}, True),
    ],
)  # fmt: skip
def test_holds(where: dict, expected: bool) -> None:
    """A list is one of, a table is a range, true and false are set or not; columns and attributes alike."""
    assert holds(where, event(attrs={"hosts": 2, "flag": True, "place": "loader"})) is expected


@pytest.mark.parametrize(
    ("relation", "changes", "expected"),
    [
        ({"same": ["rank"]}, {"rank": 0}, True), ({"same": ["rank"]}, {"rank": 1}, False), ({"same": ["path"]}, {}, False),
        ({"differs": ["rank"]}, {"rank": 1}, True), ({"differs": ["rank"]}, {"rank": 0}, False), ({"after_s": 60}, {"time_ns": _at(50)}, True),
        ({"after_s": 60}, {"time_ns": _at(70)}, False), ({"after_s": 60}, {"time_ns": _at(-9)}, False), ({"before_s": 60}, {"time_ns": _at(-9)}, True),
        ({"after_s": 60}, {"time_ns": None}, True), ({"step_gap": [1, 50]}, {"step": 9}, True), ({"step_gap": [1, 50]}, {"step": 1}, False),
        ({"step_gap": [1, 50]}, {"step": None}, False), ({"edge": "collective"}, {}, True), ({"edge": "host"}, {}, False), ({"edge": "any"}, {}, True),
    ],
)  # fmt: skip
def test_related(relation: dict, changes: dict, expected: bool) -> None:
    """A link asks for equal or different places, an order in time with its slack, steps, or a mechanism of the graph."""
    anchor, other = event(event_id=0), event(Kind.PEER_LOST, "lost", event_id=1, **changes)
    tied = graph.build((anchor, other), (Edge(0, 1, "collective"),))
    assert related(relation, anchor, other, tied) is expected


def test_a_rule_names_the_class_of_its_cause_event() -> None:
    """One rule may cover several classes; the event decides."""
    link = Link("cause", "cause", frozenset({Kind.NO_SPACE, Kind.READ_ONLY}), present=3.0, cause_class={Kind.READ_ONLY: "fs.readonly"})
    rule = Rule("lab/storage", "Storage failed", "fs.full", (link,), path=None)  # type: ignore[arg-type]
    given = run(event(Kind.NO_SPACE, "full"), event(Kind.READ_ONLY, "read-only"))
    assert [m.cause_class for m in matches(rule, given, graph.build(given.events, ()))] == ["fs.full", "fs.readonly"]


def test_one_event_serves_one_link() -> None:
    """An event that already stands for one link of a chain does not stand for the next one too."""
    links = (
        Link("cause", "cause", frozenset({Kind.EXCEPTION}), present=1.0), Link("again", "mechanism", frozenset({Kind.EXCEPTION}), present=1.0),
    )  # fmt: skip
    rule = Rule("lab/twice", "Twice", "sw.bug", links, path=None)  # type: ignore[arg-type]
    given = run(event())
    assert [sorted(m.found) for m in matches(rule, given, graph.build(given.events, ()))] == [["cause"]]


def test_no_hypothesis_without_a_line() -> None:
    """That a rank left no log is no evidence that it failed: with nobody who lost a peer, its base rate alone names no cause."""
    missing = event(Kind.RANK_LOG_MISSING, "6 of 8 ranks left no log", severity="warning", source=None, line=None, host=None, rank=None, time_ns=None)
    assert _judge(run(missing, outcome="failed")).hypotheses == ()
    assert _judge(run(missing, outcome="goes_on")).verdict == "healthy"
    lost = event(Kind.PEER_LOST, "Connection closed by peer [10.0.0.3]:1234")
    assert all(h.evidence for h in _judge(run(missing, lost)).hypotheses)
