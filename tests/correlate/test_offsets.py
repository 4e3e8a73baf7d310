"""Clocks that are apart: what tells it, which of them is taken for right, and that a verdict does not move with them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import rca
from rca.correlate import offsets
from rca.correlate.clock import Clock
from rca.correlate.offsets import CENTRAL, Offset
from tests.builders import NOON_NS, SECOND_NS
from tests.skew import files_of, set_clock, shifted

SHARED = Path(__file__).parents[3] / "shared" / "cases"
CASES = {"coupling/005-glm9b-gsm-r3": "cn048-g", "coupling/022-glm9b-code-r3": "cn062-g", "coupling/106-qwen32b-dapo": "trn84", "coupling/073-qwen32b-math-0b": "node-97"}


def writer(host, rank=None, role=None, steps=(), marks=(), actor=None, attempt=0):
    """A process with step marks `(seconds, step)` and stage marks `(seconds, stage, step, phase)`."""
    info = {"steps": [(NOON_NS + int(s * SECOND_NS), n, 0) for s, n in steps], "marks": [(NOON_NS + int(s * SECOND_NS), *m, 1, 0, "", None) for s, *m in marks]}
    return SimpleNamespace(host=host, rank=rank, role=role, actor=actor, attempt=attempt, info=info)


def found(*writers, bounds=()):
    return {h: (round(o.ns / SECOND_NS, 1), o.by) for h, o in offsets.estimate(SimpleNamespace(writers=list(writers)), lambda ns: ns, bounds).items()}


def trains(host, rank, ahead=0.0, every=60, count=10, drift=0.0):
    return writer(host, rank, steps=[(every * i * (1 + drift) + ahead + 0.1 * (i % 3), i) for i in range(1, count)])


def test_the_clock_that_differs_from_most_is_the_one_that_is_off() -> None:
    """Also if it is that of rank 0."""
    assert found(trains("a", 0, -52), trains("b", 1), trains("c", 2), trains("d", 3)) == {"a": (-52.0, "steps")}
    assert found(trains("a", 0), trains("b", 1, 30), trains("c", 2, 0.5)) == {"b": (30.0, "steps")}


def test_of_three_that_all_differ_the_middle_one_is_right() -> None:
    """Nobody can tell; so the least is moved."""
    assert found(trains("a", 0, -50), trains("b", 1), trains("c", 2, 27)) == {"a": (-50.0, "steps"), "c": (27.0, "steps")}


def test_processes_of_different_roles_are_not_compared() -> None:
    """Rollout of a step ends half a minute before its training, on good clocks."""
    rollout = writer("b", role="rollout", steps=[(60 * i - 30, i) for i in range(1, 9)])
    assert found(trains("a", 0), rollout) == {}
    assert found(trains("a", 0), rollout, writer("c", role="rollout", steps=[(60 * i - 10, i) for i in range(1, 9)])) == {"c": (20.0, "steps")}


def test_a_slow_host_is_not_one_with_a_bad_clock() -> None:
    """Its stages begin with the others' and end later."""

    def rollout(host, slow):
        return writer(host, role="rollout", marks=[m for i in range(1, 9) for m in ((60 * i, "rollout", i, "start"), (60 * i + 10 + slow, "rollout", i, "end"))])

    assert found(rollout("a", 0), rollout("b", 0), rollout("c", 25)) == {}


def test_moments_that_scatter_tell_nothing() -> None:
    """Workers that end whenever they are done."""
    loose = writer("b", role="rollout", steps=[(60 * i + 20 * (i % 4), i) for i in range(1, 12)])
    assert found(writer("a", role="rollout", steps=[(60 * i, i) for i in range(1, 12)]), loose) == {}


def test_calls_bound_clocks_from_both_sides() -> None:
    """They are believed where they are narrow, and overrule moments that they exclude."""
    bound = [("a", "b", int(39.9 * SECOND_NS), int(40.3 * SECOND_NS))]
    assert found(bounds=bound) == {"b": (40.1, "calls")}
    assert found(trains("a", 0), trains("b", 1, 12), bounds=bound) == {}  # they contradict each other
    assert found(trains("a", 0), trains("b", 1, 40.1), bounds=[("a", "b", 0, 60 * SECOND_NS)]) == {"b": (40.1, "steps")}


def test_what_the_controller_says_bounds_its_workers() -> None:
    """No worker begins before it was told to, and the controller does not go on before the last has ended."""
    stages = [m for i in range(1, 9) for m in ((60 * i, "train", i, "start"), (60 * i + 20, "train", i, "end"))]
    work = [m for i in range(1, 9) for m in ((60 * i + 45.2, "train", i, "start"), (60 * i + 64.8, "train", i, "end"))]
    controller = writer(None, role="controller", marks=stages)
    assert found(controller, writer("b", 0, marks=work)) == {"b": (45.0, "calls")}
    wide = [m for m in work if m[3] == "end"]
    ((told, by),) = found(controller, writer("b", 0, marks=wide)).values()
    assert by == "calls" and 44.8 <= told <= 64.8


def test_a_drift_is_followed() -> None:
    """A clock that gains two milliseconds a second is right at no time but one."""
    writers = [trains("a", 0, count=60), trains("b", 1, 10, count=60, drift=0.002)]
    at = offsets.estimate(SimpleNamespace(writers=writers), lambda ns: ns)["b"]
    assert at.drift == pytest.approx(0.002, rel=0.05)
    clock = Clock([NOON_NS], 0, {"b": at})
    for seconds in (60, 1800, 3540):
        read = NOON_NS + int((seconds * 1.002 + 10) * SECOND_NS)
        assert abs(clock.resolve(read, "b", True) - NOON_NS - seconds * SECOND_NS) < SECOND_NS
        assert abs(clock.of_file("b", True)(read) - NOON_NS - seconds * SECOND_NS) < SECOND_NS


def test_what_is_written_nowhere_known_keeps_its_clock() -> None:
    """Schedulers and servers of metrics are nobody's host."""
    assert CENTRAL not in found(writer(None, role="controller", marks=[(0, "train", 1, "start")]), trains("a", 0, 30), trains("b", 1), trains("c", 2))
    assert Clock([NOON_NS], 0, {"a": Offset(SECOND_NS, 0)}).resolve(NOON_NS, None, True) == NOON_NS


def test_many_hosts_take_no_time() -> None:
    """A thousand of them, over a few that all are compared with."""
    import time

    began = time.process_time()
    writers = [trains(f"n{i}", i, 20 if i == 7 else 0) for i in range(1000)]
    assert found(*writers) == {"n7": (20.0, "steps")}
    assert time.process_time() - began < 3


@pytest.mark.parametrize("case", [c for c in CASES if (SHARED / c).is_dir()])
@pytest.mark.parametrize("seconds", [-90, 40])
def test_the_verdict_does_not_move_with_the_clock_of_the_faulty_host(tmp_path: Path, case: str, seconds: int) -> None:
    """All that the host writes is moved; cause and place stay."""
    logs = SHARED / case / "logs"
    before = rca.analyze(logs, workers=1)
    files = files_of(before, CASES[case])
    assert files
    after = rca.analyze(set_clock(logs, tmp_path / "logs", files, seconds), workers=1)
    told = [(r.verdict, *[(h["cause"], h["entity"]["host"]) for h in r.document["hypotheses"][:1]]) for r in (before, after)]
    assert told[0] == told[1]


def test_the_clock_setter_sets_clocks() -> None:
    """Every form that a log states a time in; nothing else that is a number."""
    text = "2026-11-20T11:59:58.100Z 20261120-11:59:58 11-20 11:59:58 I1120 11:59:58.1 11/20/2026 11:59:58 1795176000 loss=1234567.5 step 1200"
    assert shifted(text, 3) == "2026-11-20T12:00:01.100Z 20261120-12:00:01 11-20 12:00:01 I1120 12:00:01.1 11/20/2026 12:00:01 1795176003 loss=1234567.5 step 1200"


def test_traces_of_two_hosts_tell_their_clocks(tmp_path: Path) -> None:
    """Spans of caller and callee, in one file per host, one clock 37 s behind."""
    spans = {"node1": [], "node2": []}
    for i in range(1, 7):
        sent = NOON_NS + i * 60 * SECOND_NS
        for host, own, parent, kind, start, end in (
            ("node1", 2 * i, "", 3, sent, sent + 10 * SECOND_NS), ("node2", 2 * i + 1, f"{2 * i:016x}", 2, sent + 10**7, sent + 10 * SECOND_NS - 10**7),
        ):  # fmt: skip
            start, end = (t - (37 * SECOND_NS if host == "node2" else 0) for t in (start, end))
            spans[host].append(
                f'{{"traceId":"{i:032x}","spanId":"{own:016x}","parentSpanId":"{parent}","name":"train_batch","kind":{kind},'
                f'"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}","status":{{"code":1}}}}'
            )
    for host, lines in spans.items():
        resource = f'"resource":{{"attributes":[{{"key":"host.name","value":{{"stringValue":"{host}"}}}}]}}'
        (tmp_path / f"{host}.jsonl").write_text(f'{{"resourceSpans":[{{{resource},"scopeSpans":[{{"spans":[{",".join(lines)}]}}]}}]}}\n')
    (clock,) = rca.analyze(tmp_path, workers=1).run.clocks
    assert (clock["host"], clock["offset_ms"], clock["by"]) == ("node2", -37000.0, "calls")
