"""Which spans took many times as long as others of their name and worker: candidates that the whole run judges."""

from __future__ import annotations

from statistics import median

from rca.ingest.spans.table import CALLS, NO_TIME, SERVER, Table

TIMES = 3.0  # the usual time of that name and worker; training steps vary by tens of percent, generation by a factor of two
LEAST_NS = 1_000_000_000  # beyond the usual
ENOUGH = 4  # spans of one name and worker before there is a usual
MOST = 64  # candidates of one file
GROUPS_MAX = 50_000


def rows(table: Table) -> list[int]:
    """The rows, the slowest in proportion first."""
    columns = table.columns
    groups: dict[int, list[tuple[int, int]]] = {}
    for row, (start, end, name, proc, phase, peer, mark) in enumerate(zip(*(columns[n] for n in ("start", "end", "name", "proc", "phase", "peer", "mark")), strict=True)):
        kind = mark & 7
        if end == NO_TIME or start == NO_TIME or mark >> 3 == 2 or not (kind == SERVER or (peer and kind in CALLS) or phase):
            continue
        key = name << 40 | (peer << 1 | 1 if peer and kind in CALLS else proc << 1)
        group = groups.get(key)
        if group is None:
            if len(groups) >= GROUPS_MAX:
                continue
            group = groups[key] = []
        group.append((end - start, row))
    found = []
    for group in groups.values():
        if len(group) < ENOUGH:
            continue
        usual = median([duration for duration, _ in group])
        found += [(duration / max(usual, 1), row) for duration, row in group if duration > TIMES * usual and duration - usual > LEAST_NS]
    return [row for _, row in sorted(found, reverse=True)[:MOST]]
