"""How far the hosts' clocks are apart, learned from what happened everywhere at once, and from calls that cannot be received before they are sent.

* Workers of one role are told to begin a stage together, and in a synchronous job end a step together. Beginnings are believed more than ends, and
  ends of training more than those of other roles: a slow host ends late with a good clock.
* A call and its answer bound the difference of two clocks from both sides, `lower <= b - a <= upper`, whatever the network did.
* Where most hosts agree, theirs is the common time: the clock that is off is corrected, not the others.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import combinations
from statistics import median
from typing import NamedTuple

from rca.correlate.identity import Identity, Writer

MIN_SHARED = 3  # fewer common moments than this tell nothing about two clocks
WORST_NS = 3_000_000_000  # moments that scatter more than this are not the same moments
RESOLUTION_NS = 50_000_000
WORTH_NS = 1_000_000_000  # an offset below a second is not corrected: logs have that resolution
AGREE_NS = 2_000_000_000
DRIFT_FROM, DRIFT_NS = 8, 600_000_000_000  # moments, and how long they must span, before a drift is estimated
PAIRS_MAX = 2000  # of moments, from which a drift is estimated
HUBS_MAX = 16  # hosts that others are compared with, and groups of hosts that have nothing in common
#: What the moments are worth, best first: told to begin together, barriers of training, whatever else ended.
BEGAN, TRAINED, ENDED = 0, 1, 2
NUMBER = re.compile(r"\d+")
CENTRAL = ""  # the clock of what is written nobody knows where: controllers without a host, servers of metrics, schedulers
TRIM = 20  # of so many bounds one may be wrong: a step that was made again, a line that came late
Key = tuple  # (worth, role, attempt, stage, step)
Bound = tuple[str, str, int, int]


class Offset(NamedTuple):
    """What one clock is ahead of the common time: `ns` at `at_ns`, with its error; `drift` is dimensionless (1e-6: a microsecond per second)."""

    ns: int
    error_ns: int
    drift: float = 0.0
    at_ns: int = 0
    by: str = "steps"

    def when(self, time_ns: int) -> int:
        """The offset at a time of that clock."""
        return self.ns + int(self.drift * (time_ns - self.at_ns)) if self.drift else self.ns


def estimate(identity: Identity, common: Callable[[int], int | None], bounds: Iterable[Bound] = ()) -> dict[str, Offset]:
    """The hosts whose clocks are off by more than a second and more than what can be told; `common` gives a stated time its year and zone."""
    seen = _moments(identity, common)
    limits = _limits([*_announced(identity, common), *bounds])
    hosts = sorted(set(seen) | {h for pair in limits for h in pair})
    found: dict[str, Offset] = {}
    left = [CENTRAL] * (CENTRAL in hosts) + _by_rank(identity, hosts)
    for _ in range(HUBS_MAX):
        if len(left) < 2:
            break
        group = _spread(left, seen, limits)
        if len(group) > 1:
            found |= _agreed(group, left[0])
        left = [h for h in left if h not in group]
    for host in hosts:  # known only within wide bounds, but off for certain
        limit = limits.get((CENTRAL, host))
        if host not in found and limit is not None and (limit[0] > WORTH_NS or limit[1] < -WORTH_NS):
            found[host] = Offset((limit[0] + limit[1]) // 2, (limit[1] - limit[0]) // 2 + RESOLUTION_NS, by="calls")
    return {host: o for host, o in sorted(found.items()) if host != CENTRAL and abs(o.ns) > max(WORTH_NS, o.error_ns if o.by == "calls" else 3 * o.error_ns)}


def _by_rank(identity: Identity, hosts: list[str]) -> list[str]:
    """The hosts, those of the lowest ranks first."""
    ranks: dict[str, int] = {}
    for writer in identity.writers:
        if writer.rank is not None and writer.host in hosts:
            ranks[writer.host] = min(writer.rank, ranks.get(writer.host, writer.rank))
    return sorted((h for h in hosts if h != CENTRAL), key=lambda h: (ranks.get(h, 2**31), h))


def _moments(identity: Identity, common: Callable[[int], int | None]) -> dict[str, dict[Key, int]]:
    """Per host when every moment came that other hosts may have seen as well: the median of its processes."""
    seen: dict[str, dict[Key, list[int]]] = {}
    for writer in identity.writers:
        group = _group(writer)
        if not writer.host or group is None:
            continue
        worth = TRAINED if group in ("rank", "train") else ENDED
        mine: dict[Key, int] = {}
        for mark in writer.info["steps"]:
            if mark[0] and mark[1] is not None and (ns := common(mark[0])) is not None:
                mine.setdefault((worth, group, writer.attempt, None, mark[1]), ns)
        for stated, stage, step, phase, *more in writer.info.get("marks", ()):
            if stated and step is not None and phase in ("start", "end") and (ns := common(stated)) is not None:
                spoken = more[3] if len(more) > 3 else None
                mine.setdefault((BEGAN if phase == "start" else worth, spoken or group, writer.attempt, stage, step), ns)
        for key, ns in mine.items():
            seen.setdefault(writer.host, {}).setdefault(key, []).append(ns)
    return {host: {key: int(median(times)) for key, times in keys.items()} for host, keys in seen.items()}


def _group(writer: Writer) -> str | None:
    """Whom a process is compared with: those of its role, or of its kind of name."""
    if writer.role is not None:
        return writer.role if writer.role != "controller" else None
    if writer.rank is not None:
        return "rank"
    return NUMBER.sub("#", writer.actor) if writer.actor and NUMBER.search(writer.actor) else None


def _announced(identity: Identity, common: Callable[[int], int | None]) -> list[Bound]:
    """Bounds from what the controller says: a worker begins and ends a stage of a step after it was told to, and ends it before the controller goes on."""
    told: dict[str, dict[tuple, int]] = {}
    for writer in identity.writers:
        if writer.role == "controller":
            for stated, stage, step, phase, *_ in writer.info.get("marks", ()):
                if stated and step is not None and (ns := common(stated)) is not None:
                    mine = told.setdefault(writer.host or CENTRAL, {})
                    key = (phase, stage, step)
                    mine[key] = max(ns, mine.get(key, ns)) if phase == "end" else min(ns, mine.get(key, ns))
    found = []
    for controller, marks in told.items():
        lower: dict[str, list[int]] = {}
        upper: dict[str, list[int]] = {}
        for writer in identity.writers:
            if writer.role == "controller" or not writer.host or writer.host == controller:
                continue
            for stated, stage, step, phase, *_ in writer.info.get("marks", ()):
                if phase not in ("start", "end") or not stated or step is None or (ns := common(stated)) is None:
                    continue
                if (began := marks.get(("start", stage, step))) is not None:
                    upper.setdefault(writer.host, []).append(ns - began)
                if (ended := marks.get(("end", stage, step))) is not None:
                    lower.setdefault(writer.host, []).append(ns - ended)
        for host in sorted(set(lower) & set(upper)):
            low, high = sorted(lower[host], reverse=True), sorted(upper[host])
            skip = min(len(low), len(high)) // TRIM
            if min(len(low), len(high)) >= MIN_SHARED and low[skip] <= high[skip]:
                found.append((controller, host, low[skip], high[skip]))
    return found


def _limits(bounds: Iterable[Bound]) -> dict[tuple[str, str], tuple[int, int]]:
    """The bounds of `b - a` by pair of hosts, both ways."""
    limits: dict[tuple[str, str], tuple[int, int]] = {}
    for a, b, lower, upper in bounds:
        if a != b and lower <= upper:
            limits[a, b], limits[b, a] = (lower, upper), (-upper, -lower)
    return limits


def _spread(hosts: list[str], seen: dict[str, dict[Key, int]], limits: dict[tuple[str, str], tuple[int, int]]) -> dict[str, Offset]:
    """Offsets against the first host, directly or over others, by the paths of the least error; hosts that no path leads to are left out."""
    done: dict[str, Offset] = {}
    order = {host: i for i, host in enumerate(hosts)}
    found = {hosts[0]: Offset(0, 0)}
    while len(done) < len(found) and len(done) < HUBS_MAX:
        hub = min((h for h in found if h not in done), key=lambda h: (found[h].error_ns, order[h]))
        base = done[hub] = found[hub]
        for host in hosts:
            if host in done or (one := _pair(seen.get(hub, {}), seen.get(host, {}), limits.get((hub, host)))) is None:
                continue
            error = one.error_ns + base.error_ns
            if host not in found or error < found[host].error_ns:
                found[host] = one._replace(ns=one.ns + base.ns, error_ns=error, drift=one.drift + base.drift, at_ns=one.at_ns or base.at_ns)
    return found


def _pair(one: dict[Key, int], other: dict[Key, int], limit: tuple[int, int] | None) -> Offset | None:
    """How far `other` is ahead of `one`, where that can be told closely."""
    told = None
    for worth in (BEGAN, TRAINED, ENDED):
        times = sorted((ns, ns - one[key]) for key, ns in other.items() if key[0] == worth and key in one)
        if len(times) >= MIN_SHARED and (told := _fit(times)) is not None:
            break
    if limit is None:
        return told
    lower, upper = limit
    middle, half = (lower + upper) // 2, (upper - lower) // 2 + RESOLUTION_NS
    if half <= WORST_NS and (told is None or half < told.error_ns):
        return Offset(middle, half, by="calls")
    return told if told is not None and lower - told.error_ns <= told.ns <= upper + told.error_ns else None


def _fit(times: list[tuple[int, int]]) -> Offset | None:
    """Median and scatter of the differences, and their drift if they show one."""
    gaps = [gap for _, gap in times]
    middle = int(median(gaps))
    error = int(median([abs(gap - middle) for gap in gaps])) + RESOLUTION_NS
    span = times[-1][0] - times[0][0]
    if len(times) >= DRIFT_FROM and span >= DRIFT_NS:
        step = max(1, len(times) * len(times) // 2 // PAIRS_MAX)
        pairs = [p for i, p in enumerate(combinations(times, 2)) if i % step == 0]
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] - a[0] > span // 4]
        drift = median(slopes) if slopes else 0.0
        at = times[len(times) // 2][0]
        straight = [gap - drift * (t - at) for t, gap in times]
        level = median(straight)
        scatter = int(median([abs(s - level) for s in straight])) + RESOLUTION_NS
        if abs(drift) * span > max(WORTH_NS, 4 * scatter) and scatter < error and scatter <= WORST_NS:
            return Offset(int(level), scatter, drift, at)
    return Offset(middle, error) if error <= WORST_NS else None


def _agreed(found: dict[str, Offset], first: str) -> dict[str, Offset]:
    """The offsets against the time that most hosts share. Where none is shared, two clocks do not tell which is right; of more it is the middle one."""
    if len(found) < 3:
        return found
    ordered = sorted(found.items(), key=lambda item: (item[1].ns, item[0]))
    places = [o.ns for _, o in ordered]
    around = [(bisect_left(places, ns - AGREE_NS), bisect_right(places, ns + AGREE_NS)) for ns in places]
    low, high = max(around, key=lambda span: (span[1] - span[0], -abs(places[span[0]])))
    near = [o for _, o in ordered[low:high]]
    if 2 * len(near) > len(found):
        shift = median(o.ns for o in near)
    else:
        shift = 0 if first == CENTRAL else ordered[len(ordered) // 2][1].ns
    if abs(shift) <= WORTH_NS:
        return found
    error = int(median(o.error_ns for o in near)) or RESOLUTION_NS
    return {host: o._replace(ns=o.ns - int(shift), error_ns=max(o.error_ns, error)) for host, o in found.items()}
