"""What each rank waits in, as its watchdog says: another operation or size at one sequence number, or another sequence number.

Only numbers of one process group are compared. The majority is right: who issued something else at the same place is the mismatch, and
who waits in an earlier collective never came to the one that the rest wait in. A rank that was only told to dump, and had not even enqueued what
the rest wait in, is late in the same way. Counters that were never set (`completed: 3452013982` of one work) say nothing.

Source: torch ProcessGroupNCCL's watchdog message; torchfrtrace aligns flight recorder entries likewise.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

GROUP = re.compile(r"PG (?:ID \d+ PG GUID [^\s(]+(?:\([^)]*\))?|\d+\b)")
LEAST = 3  # ranks in a group before a majority means anything


def detect(view: View) -> list[Event]:
    """`collective.mismatch` for a rank whose operation differs, `rank.silent` for one that waits in an earlier collective."""
    waits: dict[str, dict[int, Event]] = defaultdict(dict)
    told: dict[str, dict[int, Event]] = defaultdict(dict)
    for reading in view.readings:
        said: dict[str, Event] = {}  # what each stream waits in, until the line that names the process group
        for event in reading.events:
            attrs, stream = event.attrs, event.attrs.get("stream", "")
            if "enqueued" in attrs and event.kind != Kind.COLLECTIVE_TIMEOUT and (group := GROUP.search(event.text)) and _sane(attrs):
                writer = view.identity.writer(event.source, stream)
                rank = event.rank if event.rank is not None else (writer.rank if writer else None)
                if rank is not None:
                    told[group[0]].setdefault(rank, event.but(rank=rank, host=event.host or (writer.host if writer else None)))
            if event.kind != Kind.COLLECTIVE_TIMEOUT:
                continue
            if str(attrs.get("sequence", "")).isdecimal() and attrs.get("op") is not None:
                said[stream] = event
            group = GROUP.search(event.text)
            if group is None or stream not in said:
                continue  # without its group a sequence number says nothing
            wait = said.pop(stream)
            writer = view.identity.writer(event.source, stream)
            rank = wait.rank if wait.rank is not None else (writer.rank if writer else None)
            if rank is not None:
                where = writer.host if writer else None
                waits[group[0]].setdefault(rank, wait.but(rank=rank, host=wait.host or where))
    found: list[Event] = []
    for group, ranks in waits.items():
        if len(ranks) >= LEAST:
            found += _outliers(ranks, view)
        found += _never_came(ranks, told[group], view)
    return list({(e.kind, e.rank): e for e in found}.values())


def _outliers(ranks: dict[int, Event], view: View) -> list[Event]:
    places = Counter(int(e.attrs["sequence"]) for e in ranks.values())
    usual, count = places.most_common(1)[0]
    if count * 2 <= len(ranks):
        return []
    found = []
    here = {r: e for r, e in ranks.items() if int(e.attrs["sequence"]) == usual}
    calls = Counter(_call(e) for e in here.values())
    call, agreed = calls.most_common(1)[0]
    for rank, event in sorted(ranks.items()):
        number = int(event.attrs["sequence"])
        kind = text = None
        if number < usual:
            kind, text = Kind.RANK_SILENT, f"rank {rank} waits in collective {number} while {count} rank(s) wait in {usual}"
        elif number == usual and _call(event) != call and agreed * 2 > len(here):
            kind, text = Kind.COLLECTIVE_MISMATCH, f"rank {rank} issued {' '.join(map(str, _call(event)))} where {agreed} rank(s) issued {' '.join(map(str, call))}"
        if kind and text:
            found.append(_derived(event, kind, text, usual - number, view))
    return found


def _never_came(waiting: dict[int, Event], told: dict[int, Event], view: View) -> list[Event]:
    """`rank.silent` for ranks that do not wait and had not enqueued the collective that the others wait in."""
    late = {r: e for r, e in told.items() if r not in waiting}
    if not waiting or not late:
        return []
    usual = Counter(int(e.attrs["sequence"]) for e in waiting.values()).most_common(1)[0][0]
    return [
        _derived(e, Kind.RANK_SILENT, f"rank {r} had enqueued collective {e.attrs['enqueued']} when {len(waiting)} rank(s) waited in {usual}", usual - int(e.attrs["enqueued"]), view)
        for r, e in sorted(late.items())
        if int(e.attrs["enqueued"]) < usual
    ]  # fmt: skip


def _sane(attrs: dict) -> bool:
    """Whether the counters of a watchdog can be meant: nothing completes that was not enqueued."""
    try:
        return -1 <= int(attrs.get("completed", -1)) <= int(attrs["enqueued"])
    except (TypeError, ValueError):
        return False


def _derived(event: Event, kind: Kind, text: str, behind: int, view: View) -> Event:
    proc = next((p for p in view.ranked if p.rank == event.rank), None)
    return event.but(
        kind=kind, text=text, severity="error", source=None, also=event.records, attrs={"behind": behind, "alone": True, "order": True}, event_id=-1, ranks=(),
        host=event.host or (proc.host if proc else None), time_ns=view.clock.resolve(event.time_ns, event.host, not event.time_assumed),
    )  # fmt: skip


def _call(event: Event) -> tuple[str, ...]:
    return tuple(str(event.attrs[k]) for k in ("op", "numel_in", "numel_out") if event.attrs.get(k) is not None)
