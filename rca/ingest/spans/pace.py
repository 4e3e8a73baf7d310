"""One pass over the rows of a table: when each process last ended which stage of which step, and how long spans of one kind took.

Parts of a huge file are each passed over by the worker that read them, and joined. Spans that took many times as long as others of
their name and worker are candidates that the whole run judges.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any, NamedTuple

CALLS, SERVER, FAILED = (3, 4), 2, 2  # kinds and status as in `table`, which imports this
NO_TIME = -(1 << 62)
TIMES = 3.0  # the usual time of that name and worker; training steps vary by tens of percent, generation by a factor of two
LEAST_NS = 1_000_000_000  # beyond the usual
ENOUGH = 4  # spans of one name and worker before there is a usual
MOST = 64  # candidates of one file
GROUPS_MAX = 50_000
SERVED = bytes(mark >> 3 != FAILED and mark & 7 == SERVER for mark in range(256))
CALLED = bytes(mark >> 3 != FAILED and mark & 7 in CALLS for mark in range(256))
FINE = bytes(mark >> 3 != FAILED for mark in range(256))

Group = tuple[int, int, bool]  # name; then the callee, or else the process; which of these it is


class Pace(NamedTuple):
    """What the rows of one table say about time."""

    counts: dict[int, int]  # process -> rows
    spent: dict[int, dict[int, list[int]]]  # process -> phase -> [first start, last end, offset of that], of spans with an end
    groups: dict[Group, tuple[array, array]]  # durations in ns, and the rows, of spans that are alike

    def slow(self) -> list[int]:
        """Rows, the slowest in proportion first."""
        found = []
        for durations, rows in self.groups.values():
            if len(rows) < ENOUGH or (most := max(durations)) - min(durations) <= LEAST_NS:
                continue
            ordered = sorted(durations)
            usual = (ordered[len(ordered) // 2] + ordered[(len(ordered) - 1) // 2]) // 2
            limit = max(TIMES * usual, usual + LEAST_NS)
            if most > limit:
                found += [(duration / max(usual, 1), row) for duration, row in zip(durations, rows, strict=True) if duration > limit]
        return [row for _, row in sorted(found, reverse=True)[:MOST]]

    def part(self) -> tuple:
        """Plain values, for `join`."""
        return (self.counts, self.spent, {key: (durations.tobytes(), rows.tobytes()) for key, (durations, rows) in self.groups.items()})

    def join(self, part: tuple, first: int, known: dict[str, list[int]]) -> None:
        """Take what another worker's rows said, which come after `first` rows, and whose entries have these numbers here."""
        counts, spent, groups = part
        phases, procs = known["phase"], known["proc"]
        for proc, count in counts.items():
            self.counts[procs[proc]] = self.counts.get(procs[proc], 0) + count
        for proc, of_part in spent.items():
            of_proc = self.spent.setdefault(procs[proc], {})
            for phase, found in of_part.items():
                phase = phases[phase]
                before = of_proc.get(phase)
                of_proc[phase] = found if before is None else [min(found[0], before[0]), *(found[1:] if found[1] > before[1] else before[1:])]
        for (name, whose, called), (durations, rows) in groups.items():
            key = (known["name"][name], known["peer" if called else "proc"][whose], called)
            if key not in self.groups and len(self.groups) >= GROUPS_MAX:
                continue
            own = self.groups.setdefault(key, (array("q"), array("I")))
            own[0].frombytes(durations)
            more = array("I")
            more.frombytes(rows)
            own[1].extend([row + first for row in more])


def of(columns: dict[str, Any]) -> Pace:
    """The pace of all rows."""
    counts = dict(Counter(columns["proc"]))
    spent: dict[int, dict[int, list[int]]] = {proc: {} for proc in counts}
    groups: dict[int, tuple[list[int], list[int]]] = {}
    rows = zip(*(columns[n] for n in ("start", "end", "offset", "name", "proc", "phase", "peer", "mark")), strict=True)
    for row, (start, end, offset, name, proc, phase, peer, mark) in enumerate(rows):
        if end == NO_TIME:
            continue
        of_proc = spent[proc]
        if phase in of_proc:
            known = of_proc[phase]
            if end > known[1]:
                known[1], known[2] = end, offset
            if start < known[0]:
                known[0] = start
        else:
            of_proc[phase] = [start, end, offset]
        # Calls of one callee are alike, and spans of one process; what is neither a call nor in a stage may take any time.
        if peer and CALLED[mark]:
            key = name << 40 | peer << 1 | 1
        elif SERVED[mark] or (phase and FINE[mark]):
            key = name << 40 | proc << 1
        else:
            continue
        if start == NO_TIME:
            continue
        if key in groups:
            group = groups[key]
        elif len(groups) < GROUPS_MAX:
            group = groups[key] = ([], [])
        else:
            continue
        group[0].append(end - start)
        group[1].append(row)
    return Pace(counts, spent, {(key >> 40, (key >> 1) & (1 << 39) - 1, bool(key & 1)): (array("q", d), array("I", r)) for key, (d, r) in groups.items()})
