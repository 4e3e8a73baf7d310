"""One time axis: offsets between hosts, missing years, and the local zone, all learned from the logs themselves."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rca.correlate.clock import Clock, describe
from tests.builders import NOON_NS, SECOND_NS, run_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nValueError: boom'


def steps(rank: int, host: str, ahead: float = 0, count: int = 6) -> str:
    out = f"{(NOON + timedelta(seconds=ahead)):%Y-%m-%d %H:%M:%S},000 INFO train: hostname={host} rank={rank} world_size=2\n"
    for i in range(1, count):
        out += f"{(NOON + timedelta(seconds=ahead + 10 * i)):%Y-%m-%d %H:%M:%S},000 INFO train: step={i} loss=2.0\n"
    return out


def test_offset_between_hosts_is_estimated_and_applied(tmp_path: Path) -> None:
    """A host whose clock is 52 s ahead ends equal steps 52 s later; its times are moved back by that."""
    run = run_of(tmp_path, {"rank0.log": steps(0, "node-1"), "rank1.log": steps(1, "node-2", 52)})
    assert [(c["host"], c["offset_ms"]) for c in run.clocks] == [("node-2", 52000.0)]
    assert {p["last_ns"] for p in run.processes.values()} == {NOON_NS + 50 * SECOND_NS}


def test_offset_moves_events_too(tmp_path: Path) -> None:
    """An error on the host that is ahead is placed in the common time."""
    late = f"{(NOON + timedelta(seconds=52 + 55)):%Y-%m-%d %H:%M:%S},000 ERROR train: it broke\n"
    run = run_of(tmp_path, {"rank0.log": steps(0, "node-1"), "rank1.log": steps(1, "node-2", 52) + late})
    (error,) = [e for e in run.events if e.text == "it broke"]
    assert (error.host, error.time_ns) == ("node-2", NOON_NS + 55 * SECOND_NS)


def test_small_offset_and_few_steps_are_not_corrected(tmp_path: Path) -> None:
    """Below a second, or with fewer than three common steps, the clocks are left alone."""
    assert run_of(tmp_path / "near", {"rank0.log": steps(0, "node-1"), "rank1.log": steps(1, "node-2", 0.4)}).clocks == ()
    assert run_of(tmp_path / "few", {"rank0.log": steps(0, "node-1", count=3), "rank1.log": steps(1, "node-2", 52, count=3)}).clocks == ()


def test_missing_year_comes_from_other_sources(tmp_path: Path) -> None:
    """A klog line states no year; the run's other logs do."""
    line = "E1120 12:00:20.000000 4242 trainer.py:12] it broke\n"
    run = run_of(tmp_path, {"rank0.log": steps(0, "node-1"), "agent.log": line})
    (error,) = [e for e in run.events if "it broke" in e.text]
    assert error.time_ns == NOON_NS + 20 * SECOND_NS


def test_year_turns_to_the_nearest_date() -> None:
    """Of the years around the run, the one nearest to its middle is taken: 31 December lies before 1 January."""
    january = int(datetime(2026, 1, 1, 0, 10, tzinfo=UTC).timestamp()) * SECOND_NS
    december = int(datetime(1972, 12, 31, 23, 50, tzinfo=UTC).timestamp()) * SECOND_NS
    clock = Clock([january], 0, {})
    assert clock.resolve(december, None, True) == january - 1200 * SECOND_NS
    assert Clock([], 0, {}).resolve(december, None, True) == december and not clock.dated(december)


def test_zone_and_offset_are_subtracted_and_boot_time_is_no_date() -> None:
    """Local times lose the zone, a host's times its offset; seconds since boot are no date."""
    clock = Clock([NOON_NS], 3600 * SECOND_NS, {"node-2": (52 * SECOND_NS, SECOND_NS)})
    assert clock.resolve(NOON_NS, "node-1", True) == NOON_NS
    assert clock.resolve(NOON_NS, "node-1", False) == NOON_NS - 3600 * SECOND_NS
    assert clock.resolve(NOON_NS, "node-2", True) == NOON_NS - 52 * SECOND_NS
    assert clock.resolve(1234 * SECOND_NS, None, True) is None and clock.resolve(None, None, True) is None
    assert describe(clock) == ({"host": "node-2", "offset_ms": 52000.0, "error_ms": 1000.0},)


def test_zone_comes_from_the_epoch_of_an_error_file(tmp_path: Path) -> None:
    """The same traceback in local time and with an epoch tells the zone: here five and a half hours east."""
    stated = {"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": TRACE, "timestamp": str(NOON_NS // SECOND_NS)}}}
    local = "2026-11-20 17:29:58,000 INFO train: step=1 loss=2.0\n2026-11-20 17:30:00,000 ERROR train: failed\n" + TRACE + "\n"
    run = run_of(tmp_path, {"tree/attempt_0/0/error.json": json.dumps(stated), "tree/attempt_0/0/stderr.log": local})
    (error,) = [e for e in run.events if e.kind == "process.exception"]
    assert abs(error.time_ns - NOON_NS) <= SECOND_NS
    assert len(error.records) == 2


def test_a_time_service_says_how_far_a_clock_is_off(tmp_path: Path) -> None:
    """`chronyc tracking` on the host, and nothing else that could be compared; what is right within a second is left alone."""
    said = "Reference ID    : A9FEA97B\nSystem time     : {} seconds {} of NTP time\n"
    run = run_of(tmp_path, {
        "node-1/rank0.log": steps(0, "node-1", count=2), "node-2/rank1.log": steps(1, "node-2", -37, count=2),
        "node-1/tracking.txt": said.format("0.000020390", "fast"), "node-2/tracking.txt": said.format("37.000000000", "slow"),
    })  # fmt: skip
    assert [(c["host"], c["offset_ms"]) for c in run.clocks] == [("node-2", -37000.0)]
    assert {p["last_ns"] for p in run.processes.values()} == {NOON_NS + 10 * SECOND_NS}
