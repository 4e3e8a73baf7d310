"""The zone of logs that state none, from traces: spans carry the time since 1970, and both tell of the same stages of the same steps.

Zones are multiples of a quarter of an hour, so clocks that are off by a minute or two do not matter; what is asked for is that nearly all
of the stages that both tell agree on one.
"""

from __future__ import annotations

from collections import Counter
from statistics import median

from rca.correlate.identity import Identity

STEP_NS = 900 * 10**9  # zones are multiples of this
STATED_NS = 94_694_400 * 10**9  # times below carry no year
FARTHEST = 14 * 4  # quarters of an hour
ENOUGH = 3  # stages that both tell
SHARE = 0.7  # of them that agree
REST_NS = 240 * 10**9  # what may be left: clocks off by a minute, and lines that come late


def by_traces(identity: Identity) -> int:
    """Local time minus UTC in nanoseconds; 0 where nothing shows it."""
    traced: dict[tuple[str, int], tuple[int, int]] = {}
    told: list[tuple[str, int, str, int]] = []
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
    gaps = [ns - traced[stage, step][phase != "start"] for stage, step, phase, ns in told if (stage, step) in traced]
    if len(gaps) < ENOUGH:
        return 0
    (quarters, count), *_ = Counter(round(gap / STEP_NS) for gap in gaps).most_common(1)
    rest = median([abs(gap - quarters * STEP_NS) for gap in gaps if round(gap / STEP_NS) == quarters])
    good = count >= max(ENOUGH, SHARE * len(gaps)) and rest < REST_NS and 0 < abs(quarters) <= FARTHEST
    return quarters * STEP_NS if good else 0
