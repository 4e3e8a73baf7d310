"""Memory that grows step after step until little is left, of a host, a control group, a process or a service.

Loading a model fills memory too, and then stops; a cache is emptied and fills again. Growth is what goes one way over many samples, up to the end of the
series or to the moment somebody was killed for it, and takes a good part of what there is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from rca.correlate.memory_limits import limit_of, limit_reached, silent_since
from rca.correlate.rises import Rise, rise
from rca.correlate.tracks import Point, Track, Tracks, derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

LEAST = 5  # points of the way
ONE_WAY = 0.75  # of all the movement that must go in its direction
SPREAD = 3  # separate moves at least: one jump is a load, not a growth
TAKEN = 0.35  # of what was free at the beginning
GREW = 2.0  # times its size at the beginning: what grows without a known limit
GREW_BYTES = 1 << 30
ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
LEFT = 0.15  # of the total, below which a host is short of memory


class Growth(NamedTuple):
    """A way that goes in one direction: its ends, and the moves on it."""

    start: Point
    worst: Point
    before: Point
    amount: float


def detect(view: View) -> list[Event]:
    """Growth per host and service, and kills that a counter tells of."""
    known = tracks(view)
    events = [e for t in known.of("mem.available") if (e := _falls(t, known))]
    short = {e.host for e in events}
    grew = [e for t in known.of("mem.group_used", "mem.process", "mem.service") if (e := _rises(t, known, view))]
    return events + grew + [e for t in known.of("mem.oom_kills") if (e := _kills(t, known, short, view))]


def growth(points: Sequence[Point], sign: int) -> Growth | None:
    """The largest one-way movement (`sign` 1 up, -1 down) that lasts to the end or ends in a collapse; None where there is none.

    >>> from rca.model import Record
    >>> at = lambda values: [Point(i * 10**9, v, Record("x", i, 0, "")) for i, v in enumerate(values)]
    >>> growth(at([10, 12, 20, 29, 41, 52, 60, 70]), 1).amount
    60
    >>> growth(at([10, 60, 61, 60, 61, 60, 60, 61]), 1), growth(at([10, 40, 80, 12, 41, 79, 11, 42, 80, 11]), 1)
    (None, None)
    """
    if len(points) < LEAST:
        return None
    values = [sign * p.value for p in points]
    top = max(range(len(values)), key=lambda i: values[i])
    low = min(range(top + 1), key=lambda i: values[i])
    amount = values[top] - values[low]
    if top - low + 1 < LEAST or amount <= 0:
        return None
    moves = [b - a for a, b in pairwise(values[low : top + 1])]
    up, down = sum(m for m in moves if m > 0), -sum(m for m in moves if m < 0)
    large = sum(m > min(amount / 20, amount / 2 / len(moves)) for m in moves)
    if up - down < ONE_WAY * (up + down) or large < SPREAD or max(moves) > 0.6 * amount:
        return None
    after = values[top + 1 :]
    flat = [v for v in values[low:] if v >= values[low] + 0.9 * amount]
    if len(flat) > 0.5 * (len(values) - low) and len(flat) > 4:
        return None  # a plateau
    if any(_falls_back(values[:low], amount)) or (len(after) > 3 and max(after) - min(after) > 0.5 * amount and values[top] - min(after) > 0.5 * amount and max(after[after.index(min(after)) :]) > min(after) + 0.5 * amount):
        return None  # a saw
    return Growth(points[low], points[top], points[top - 1], amount)


def _falls_back(values: list[float], amount: float) -> list[bool]:
    """Whether the like had happened before and gone."""
    return [len(values) > 3 and max(values) - values[-1] > 0.5 * amount]


def _falls(track: Track, known: Tracks) -> Event | None:
    found = growth(_smooth(track.points), -1)
    if found is None or not known.inside(track, found.worst):
        return None
    found = _to_the_end(found, track.points)
    total = max((p.value for t in known.of("mem.total") if t.host == track.host for p in t.points), default=max(p.value for p in track.points))
    taken = found.amount / max(1.0, found.start.value)
    if taken < TAKEN or found.worst.value > 0.5 * total:
        return None
    slope = _slope(found)
    left = found.worst.value / max(1.0, total)
    text = f"free memory of {track.host or 'a host'} fell from {found.start.value / 2**30:.0f} to {found.worst.value / 2**30:.0f} GiB"
    return derived(Kind.MEMORY_GREW, text, track, found.worst, found.before, attrs={
        "slope": slope, "grown": found.amount, "left": left, "short": left < LEFT, "from_ns": found.start.time_ns, "of": "host",
    }, also=(found.start.record,))  # fmt: skip


def _to_the_end(found: Growth, points: list[Point]) -> Growth:
    """The way down to its real end, which smoothing cuts off where a kill gives everything back."""
    at = next(i for i, p in enumerate(points) if p.record == found.worst.record)
    while at + 1 < len(points) and points[at + 1].value <= points[at].value:
        at += 1
    return Growth(found.start, points[at], points[at - 1], found.start.value - points[at].value)


def _smooth(points: list[Point]) -> list[Point]:
    """The points, each with the median of its neighbourhood as value."""
    return [p._replace(value=median(q.value for q in points[max(0, i - 1) : i + 2])) if 0 < i < len(points) - 1 else p for i, p in enumerate(points)]


def _rises(track: Track, known: Tracks, view: View) -> Event | None:
    found = growth(track.points, 1)
    if found is None or not known.inside(track, found.worst):
        return None
    limit = limit_of(track, known)
    if found.amount < (min(GREW_BYTES, TAKEN * limit) if limit else GREW_BYTES):
        return None
    enough = found.worst.value >= 0.8 * limit if limit else found.worst.value >= GREW * max(1.0, found.start.value)
    if not enough:
        return None
    about = track.about
    service = about.get("service") or about.get("container") or about.get("pod") or about.get("job") or (about.get("device") if track.name == "mem.service" else None)
    host = track.host or _spoken_of(found, view)
    text = f"{service or 'a process'} on {host or 'a host'} grew from {found.start.value / 2**30:.1f} to {found.worst.value / 2**30:.1f} GiB"
    of = {"mem.group_used": "group", "mem.service": "service"}.get(track.name, "process")
    role = "meta_server" if re.search(r"meta", str(service or ""), re.I) else None
    return derived(Kind.MEMORY_GREW, text, track, found.worst, found.before, role=role, host=host, attrs={
        "slope": _slope(found), "grown": found.amount, "from_ns": found.start.time_ns, "of": of, "service": service, "limit": limit or None,
    }, also=(found.start.record,))  # fmt: skip


def _spoken_of(found: Growth, view: View) -> str | None:
    """The only host of the run that all lines of a growth name by its address, where nobody knows who wrote them."""
    named = set(ADDRESS.findall(found.start.record.text)) & set(ADDRESS.findall(found.worst.record.text))
    hosts = {h for a in named if (h := view.identity.name_of(a)) in view.identity.hosts}
    return hosts.pop() if len(hosts) == 1 else None


def _slope(found: Growth) -> float | None:
    """Bytes a second."""
    if found.start.time_ns is None or found.worst.time_ns is None or found.worst.time_ns <= found.start.time_ns:
        return None
    return found.amount / ((found.worst.time_ns - found.start.time_ns) / 1e9)


def _kills(track: Track, known: Tracks, short: set[str | None], view: View) -> Event | None:
    """A counter of kills says neither whom nor why: on a host with plenty of memory it is some group's own limit."""
    found = rise(track, known, 1, factor=0.0)
    if found is None:
        return None
    if track.about.get("group") and (limit := limit_reached(track, found, known)):
        return _group_kills(track, found, limit, view)
    stalled = any(t.host == track.host and rise(t, known, 5) for t in known.of("psi.mem_full_s"))
    grave = track.host in short or stalled
    return derived(
        Kind.HOST_OOM, f"{found.grown:.0f} process(es) killed for want of memory on {track.host or 'a host'}", track, found.at, found.before,
        severity="warning" if grave else "info", attrs={"kills": int(found.grown), "short": grave, "scope": "host" if grave else "group"},
    )  # fmt: skip


def _group_kills(track: Track, found: Rise, limit: float, view: View) -> Event:
    """Kills in a control group that had reached its limit: of the job's processes on that host those are hit that are not heard of again."""
    silent = silent_since(track.host, found.at, view)
    one = silent[0] if len(silent) == 1 else None
    text = f"{found.grown:.0f} process(es) killed in control group {track.about['group']} on {track.host or 'a host'} at its limit of {limit / 2**20:.0f} MiB"
    place = {} if one is None else {"rank": one.rank, "role": one.role, "pid": min(one.pids, default=None)}
    return derived(Kind.HOST_OOM, text, track, found.at, found.before, severity="error" if silent else "info", attrs={
        "kills": int(found.grown), "short": False, "scope": "group", "limit": limit,
    }, **place)  # fmt: skip
