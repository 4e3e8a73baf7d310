"""The zone of logs that state none: from other files that do, and from the rhythm of stages that traces tell too."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rca.correlate import zone
from rca.model import Reading

HOUR_NS = 3600 * 10**9
NOON_NS = 1_795_176_000 * 10**9


def reading(zoned: bool, times: list[int], minutes: int | None = None) -> Reading:
    """One file whose stream begins and ends at these times."""
    ends = [(t, None, None, 1, 0, "", 1) for t in (times[0], times[-1])]
    facts = {"streams": {"": {"first": ends[0], "last": ends[1]}}, "zoned": zoned, "sightings": [("zone", {"minutes": minutes})] if minutes is not None else []}
    return Reading(f"{zoned}{times[0]}{minutes}", "plain", 0, 0, 0, 0, facts=facts)


def test_a_stated_zone() -> None:
    """Logs that lie in the local time of a file that states its zone, and not in UTC, are of that zone."""
    stated = [reading(True, [NOON_NS, NOON_NS + HOUR_NS], 480)]
    local = [reading(False, [NOON_NS + 8 * HOUR_NS + 60 * 10**9, NOON_NS + 9 * HOUR_NS])]
    assert zone.by_statement([*stated, *local]) == 8 * HOUR_NS
    assert zone.by_statement([*stated, reading(False, [NOON_NS, NOON_NS + HOUR_NS])]) == 0  # they are in UTC
    assert zone.by_statement([*stated, reading(True, [NOON_NS, NOON_NS + HOUR_NS], -300), *local]) == 0  # two zones
    assert zone.by_statement(local) == 0


def test_counters_tell_times_too() -> None:
    """The zone is stated by one file, and what is in local time are counters: thousands of samples weigh no more than a few lines do."""
    samples = [(NOON_NS + 8 * HOUR_NS + s * 10**9, "h1", (), "cpu.util", 1.0, s, 0, "") for s in range(1, 3000)]
    counters = Reading("counters.csv", "sar", 0, 0, 0, 0, facts={"streams": {}, "samples": [(None, *samples[0][1:]), *samples]})
    assert len(counters.sample_times) == 2999 and zone.by_statement([reading(True, [NOON_NS, NOON_NS + HOUR_NS], 480), counters]) == 8 * HOUR_NS


def test_a_step_is_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary names every stage of its step: that is one end of the step, however many they are."""
    spans = [(NOON_NS + s * 60 * 10**9, "step", s, "end", 0, 0, "", 0, 30.0) for s in range(4)]
    summed = [(NOON_NS + s * 60 * 10**9 + 8 * HOUR_NS, stage, s, "after", 0, 0, "", 0, None) for s in range(4) for stage in "abcdefghijkl"]
    writers = [SimpleNamespace(reading=reading(zoned, [NOON_NS]), info={"marks": marks}, stream=stream) for zoned, marks, stream in ((True, spans, "span:1"), (False, summed, ""))]
    told: list[tuple] = []
    by_steps = zone._by_steps
    monkeypatch.setattr(zone, "_by_steps", lambda traced, said: told.extend(said) or by_steps(traced, said))
    assert zone.by_traces(SimpleNamespace(writers=writers)) == 8 * HOUR_NS
    assert len(told) == 4


def test_rhythm() -> None:
    """Steps are counted differently, yet stages begin and end together at one zone only."""
    starts = [0, 61, 130, 222, 290, 377, 451, 560]  # seconds; no two steps take the same time
    traced = {("rollout", step): (NOON_NS + s * 10**9, NOON_NS + (s + 20) * 10**9) for step, s in enumerate(starts)}
    told = [("rollout", step + 71, "start", NOON_NS + 8 * HOUR_NS + s * 10**9 + 40_000_000) for step, s in enumerate(starts)]
    assert zone._by_steps(traced, told) == 0
    assert zone._by_rhythm(traced, told) == 8 * HOUR_NS
    assert zone._by_rhythm(traced, told[:3]) == 0  # too few
    even = {("rollout", step): (NOON_NS + step * 900 * 10**9, NOON_NS + (step * 900 + 20) * 10**9) for step in range(12)}
    alike = [("rollout", step, "start", NOON_NS + step * 900 * 10**9) for step in range(12)]
    assert zone._by_rhythm(even, alike) == 0  # every zone fits equally well
    assert zone._by_rhythm(traced, [(s, n, p, t - 8 * HOUR_NS) for s, n, p, t in told]) == 0
