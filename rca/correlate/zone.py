"""The zone of logs that state none: other files of the run state one, or traces show it, since spans carry the time since 1970, and both tell of the same stages of the same steps.

Zones are multiples of a quarter of an hour, so clocks that are off by a minute or two do not matter; what is asked for is that nearly all
of the stages that both tell agree on one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from statistics import median

from rca.correlate.identity import Identity
from rca.model import Reading

STEP_NS = 900 * 10**9  # zones are multiples of this
STATED_NS = 94_694_400 * 10**9  # times below carry no year
FARTHEST = 14 * 4  # quarters of an hour
ENOUGH = 3  # stages that both tell
SHARE = 0.7  # of them that agree
RHYTHM = 5  # beginnings and ends of stages that make a rhythm
STEADY_NS = 3 * 10**9  # how far these may scatter
CLEARLY = 3  # times as much must they scatter at any other zone
SAMPLES = 16  # of a file's samples so many, evenly taken, or a few more: an export has thousands, a log two ends
WHOLE = "step"  # stands for all stages of a step
REST_NS = 240 * 10**9  # what may be left: clocks off by a minute, and lines that come late


def by_statement(readings: Sequence[Reading]) -> int:
    """The zone that other files of the run state (`+0800`), where the logs that state none fit the local time there and not UTC; else 0.

    Fitting means that most of their last lines fall between the first and last times of what states its zone.
    """
    minutes = Counter(fields["minutes"] for reading in readings for kind, fields in reading.facts.get("sightings", ()) if kind == "zone")
    if len(minutes) != 1:
        return 0
    zone_ns = next(iter(minutes)) * 60 * 10**9
    ends: dict[bool, list[int]] = {True: [], False: []}
    for reading in readings:
        times = [m[0] for info in reading.facts.get("streams", {}).values() for m in (info["first"], info["last"]) if m and m[0] is not None and m[0] >= STATED_NS]
        sampled = reading.sample_times
        times += sampled[:: max(1, len(sampled) // SAMPLES)]
        ends[bool(reading.facts.get("zoned"))] += times
    if not ends[True] or not ends[False]:
        return 0
    first, last = min(ends[True]), max(ends[True])
    inside = [sum(first - REST_NS <= ns - shift <= last + REST_NS for ns in ends[False]) for shift in (0, zone_ns)]
    return zone_ns if inside[1] >= SHARE * len(ends[False]) and inside[0] < inside[1] / 2 else 0


def by_traces(identity: Identity) -> int:
    """Local time minus UTC in nanoseconds; 0 where nothing shows it."""
    traced: dict[tuple[str, int], tuple[int, int]] = {}
    told: list[tuple[str, int, str, int]] = []
    over: set[tuple[int, int]] = set()  # steps that were summed up, and when
    for writer in identity.writers:
        zoned = bool(writer.reading.facts.get("zoned"))
        for mark in writer.info.get("marks") or ():
            ns, stage, step, phase, seconds = mark[0], mark[1], mark[2], mark[3], mark[8]
            if ns is None or ns < STATED_NS or step is None:
                continue
            if writer.stream.startswith("span:"):
                start = ns - int((seconds or 0) * 1e9)
                known = traced.get((stage, step), (start, ns))
                traced[stage, step] = (min(start, known[0]), max(ns, known[1]))
            elif not zoned and phase in ("start", "end", "failed"):
                told.append((stage, step, phase, ns))
            elif not zoned and phase == "after" and (step, ns) not in over:  # the step is over: each of its stages is summed up, in one line
                over.add((step, ns))
                told.append((WHOLE, step, "end", ns))
    for (_, step), (start, end) in list(traced.items()):
        known = traced.get((WHOLE, step), (start, end))
        traced[WHOLE, step] = (min(start, known[0]), max(end, known[1]))
    return _by_steps(traced, told) or _by_rhythm(traced, told)


def _by_steps(traced: dict[tuple[str, int], tuple[int, int]], told: list[tuple[str, int, str, int]]) -> int:
    """Both tell of the same stage of the same step."""
    gaps = [ns - traced[stage, step][phase != "start"] for stage, step, phase, ns in told if (stage, step) in traced]
    if len(gaps) < ENOUGH:
        return 0
    (quarters, count), *_ = Counter(round(gap / STEP_NS) for gap in gaps).most_common(1)
    rest = median([abs(gap - quarters * STEP_NS) for gap in gaps if round(gap / STEP_NS) == quarters])
    good = count >= max(ENOUGH, SHARE * len(gaps)) and rest < REST_NS and 0 < abs(quarters) <= FARTHEST
    return quarters * STEP_NS if good else 0


def _by_rhythm(traced: dict[tuple[str, int], tuple[int, int]], told: list[tuple[str, int, str, int]]) -> int:
    """They count steps differently, but stages begin and end in one rhythm: at the right zone all are the same few seconds apart, at others they scatter."""
    marks: dict[tuple[str, bool], list[int]] = {}
    for (stage, _), ends in traced.items():
        for ended in (False, True):
            marks.setdefault((stage, ended), []).append(ends[ended])
    for times in marks.values():
        times.sort()
    both = [(marks[stage, phase != "start"], ns) for stage, _, phase, ns in told if (stage, phase != "start") in marks]
    if len(both) < RHYTHM:
        return 0
    found = sorted((_scatter(both, quarters * STEP_NS), abs(quarters), quarters) for quarters in range(-FARTHEST, FARTHEST + 1))
    (best, _, quarters), (next_best, *_) = found[:2]
    return quarters * STEP_NS if best < STEADY_NS and next_best > CLEARLY * best + STEADY_NS else 0


def _scatter(both: list[tuple[list[int], int]], shift: int) -> float:
    """By how much the distances between what is told and the nearest that is traced differ, in ns; infinite where too few have one near."""
    near = []
    for times, ns in both:
        place = bisect_left(times, ns - shift)
        gap = min((ns - shift - t for t in times[max(0, place - 1) : place + 1]), key=abs)
        if abs(gap) < REST_NS:
            near.append(gap)
    if len(near) < max(RHYTHM, SHARE * len(both)):
        return float("inf")
    middle = median(near)
    return median([abs(gap - middle) for gap in near])
