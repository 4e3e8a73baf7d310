"""The spans of all files in one table: who called whom, which answers are missing, and what that says about names and clocks.

Rows are numbered through all files. Nothing here makes an object per span: columns are arrays, joined by 64-bit keys of trace and span id.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rca.model import Reading

COLUMNS = (("start", "q"), ("end", "q"), ("trace", "Q"), ("span", "Q"), ("parent", "Q"), ("offset", "Q"), ("name", "I"), ("proc", "I"), ("phase", "I"), ("peer", "I"), ("mark", "B"))
ENTRIES = ("name", "proc", "phase", "peer")  # columns that number entries of a dictionary
NO_TIME = -(1 << 62)
NONE, NOWHERE, AGAIN = -1, -2, -3  # for a parent: none, none that is known; and a row that repeats another
MASK = (1 << 64) - 1
SPREAD = 0x9E3779B97F4A7C15  # odd: trace ids that differ stay different
SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5
OK, ERROR = 1, 2
LATE = 0.9  # of the time that its caller waited: durations, since clocks differ
BOUNDS_MAX = 4000  # pairs of one two hosts that are kept
TRIM = 20  # of so many bounds one may be wrong
Bound = tuple[str, str, int, int]


@dataclass
class Spans:
    """All spans of a run. Empty where no file holds any."""

    columns: dict[str, array] = field(default_factory=lambda: {name: array(code) for name, code in COLUMNS})
    names: list[str] = field(default_factory=list)
    procs: list[dict[str, Any]] = field(default_factory=list)
    phases: list[tuple[str | None, int | None]] = field(default_factory=list)
    peers: list[tuple[str | None, str | None, int | None]] = field(default_factory=list)
    sources: list[tuple[int, str]] = field(default_factory=list)  # (first row, file)
    raws: dict[tuple[str, int], str] = field(default_factory=dict)  # lines that ingest kept, by file and offset
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # hand-overs and acknowledgements, with their files
    up: array = field(default_factory=lambda: array("q"))  # the parent's row, or one of the numbers above
    answered: bytearray = field(default_factory=bytearray)  # of a call: 0 no span of the callee, 1 it ended well, 2 it failed, 3 it has no end, 4 it ended well when its caller had given up
    begun: dict[int, int] = field(default_factory=dict)  # an end that stands in another file than its start -> the row of the start
    served: dict[int, int] = field(default_factory=dict)  # callee -> the process that answered
    _bounds: dict[tuple[str, str], list[tuple[int | None, int | None]]] = field(default_factory=dict)
    _addresses: dict[str, str] | None = None

    def __len__(self) -> int:
        return len(self.up)

    def base(self, source: str) -> int | None:
        """The number of a file's first row."""
        return next((first for first, name in self.sources if name == source), None)

    def source(self, row: int) -> str:
        """The file of a row."""
        from bisect import bisect_right

        return self.sources[bisect_right(self.sources, (row, "\U0010ffff")) - 1][1]

    def kind(self, row: int) -> int:
        """Internal 1, server 2, client 3, producer 4, consumer 5; 0 where the source did not say."""
        return self.columns["mark"][row] & 7

    def status(self, row: int) -> int:
        """Unset 0, fine 1, failed 2."""
        return self.columns["mark"][row] >> 3

    def process(self, row: int) -> dict[str, Any]:
        """What is known of a row's process."""
        return self.procs[self.columns["proc"][row]]

    def seconds(self, row: int) -> float | None:
        """How long a span took; None for one without an end."""
        start, end = self.columns["start"][row], self.columns["end"][row]
        return None if NO_TIME in (start, end) or end < start else (end - start) / 1e9

    def bounds(self, name_of: Callable[[str], str | None] | None = None) -> list[Bound]:
        """`(host_a, host_b, lower_ns, upper_ns)`: the clock of b minus that of a lies between, as calls from a to b and back show.

        A call is received after it was sent, and its answer is sent before it is received. Of many bounds one in twenty may be wrong (a clock that
        was set, an id that came twice); hosts whose bounds still contradict each other are left out.
        """
        merged: dict[tuple[str, str], list[tuple[int | None, int | None]]] = {}
        for (a, b), pairs in self._bounds.items():
            a, b = (name_of(a) or a, name_of(b) or b) if name_of else (a, b)
            if a == b:
                continue
            swap = a > b
            merged.setdefault((b, a) if swap else (a, b), []).extend([(None if hi is None else -hi, None if lo is None else -lo) if swap else (lo, hi) for lo, hi in pairs])
        found = []
        for (a, b), pairs in sorted(merged.items()):
            lowers = sorted((lo for lo, _ in pairs if lo is not None), reverse=True)
            uppers = sorted(hi for _, hi in pairs if hi is not None)
            if not lowers or not uppers:
                continue
            for skip in range(max(1, min(len(lowers), len(uppers)) // TRIM + 1)):
                if lowers[skip] <= uppers[skip]:
                    found.append((a, b, lowers[skip], uppers[skip]))
                    break
        return found

    def addresses(self) -> dict[str, str]:
        """Address of a callee -> name of the host that answered there."""
        if self._addresses is None:
            found: dict[str, str] = {}
            for peer, proc in sorted(self.served.items()):
                address, host = self.peers[peer][1], self.procs[proc].get("host")
                if address and host and address != host:
                    found.setdefault(address, str(host))
            self._addresses = found
        return self._addresses

    def callee(self, row: int) -> dict[str, Any]:
        """What is known of the process that a call went to: worker, address, port, and its host, pid and gpu where it answered a call."""
        worker, address, port = self.peers[self.columns["peer"][row]]
        known = self.procs[self.served[self.columns["peer"][row]]] if self.columns["peer"][row] in self.served else {}
        found = {"worker": worker or worker_name(known), "role": known.get("role"), "address": address, "port": port, "host": known.get("host") or self.addresses().get(address or ""), "pid": known.get("pid"), "gpu": known.get("gpu"), "rank": known.get("rank")}
        return {k: v for k, v in found.items() if v is not None}


def worker_name(about: dict[str, Any]) -> str | None:
    """What a process of a role is called: `rollout/3`; None where it states no number.

    >>> worker_name({"role": "rollout", "worker": 3}), worker_name({"role": "train", "rank": 0}), worker_name({"worker": "gen/1"}), worker_name({"role": "controller"})
    ('rollout/3', 'train/0', 'gen/1', None)
    """
    number = about.get("worker", about.get("rank"))
    if isinstance(number, str) and not number.isdecimal():
        return number
    base = about.get("role") or about.get("service")
    return f"{base}/{number}" if base is not None and number is not None else None


def join(readings: list[Reading]) -> Spans:
    """The spans of all readings, joined."""
    spans = Spans()
    tables = [(r.source, table) for r in readings for table in r.facts.get("spans", ())]
    if not tables:
        return spans
    known: dict[str, dict[Any, int]] = {name: {} for name in ENTRIES}
    listed: dict[str, list] = {"name": spans.names, "proc": spans.procs, "phase": spans.phases, "peer": spans.peers}
    journals: list[tuple[str, int, int, int, int, bool]] = []
    for source, table in tables:
        spans.sources.append((len(spans.columns["mark"]), source))
        numbers = {
            name: [_number(known[name], listed[name], entry) for entry in table[name + "s"]] for name in ENTRIES
        }  # fmt: skip
        for name, code in COLUMNS:
            column = array(code)
            column.frombytes(table["columns"][name])
            spans.columns[name] += array(code, [numbers[name][i] for i in column]) if name in numbers else column
        for offset, raw in table.get("raws", {}).items():
            spans.raws[source, offset] = raw
        spans.records += [(source, record) for record in table.get("records", ())]
        journals += [(process, ns, spans.sources[-1][0], len(spans.columns["mark"]), offset, complete) for offset, process, ns, complete in table.get("journals", ())[-1:]]
    if journals:
        _rejoin(spans, journals)
    _link(spans)
    return spans


def _rejoin(spans: Spans, journals: list[tuple[str, int, int, int, int, bool]]) -> None:
    """A process that writes several files, one after the other, may start a span in one and end it in the next: both become one row.

    Each file tells again what is open when it begins. What an earlier one holds without an end, and the last one that came so far not at all, ended in
    a file that was overwritten. `journals`: (process, time of the header, its first row, the row behind its last, offset of the header, complete).
    """
    columns = spans.columns
    starts, ends, ids, procs, traces, marks = (columns[n] for n in ("start", "end", "span", "proc", "trace", "mark"))
    loose = {(ids[row], procs[row]): row for row, start in enumerate(starts) if start == NO_TIME and ends[row] != NO_TIME and ids[row] and not traces[row]}
    if loose:
        for row, end in enumerate(ends):
            if end == NO_TIME and (other := loose.get((ids[row], procs[row]))) is not None:
                ends[row], marks[row] = ends[other], marks[row] & 7 | marks[other] & ~7
                spans.begun[other] = row
    files: dict[str, list[tuple[int, int, int, int, bool]]] = {}
    for process, *where in journals:
        files.setdefault(process, []).append(tuple(where))
    offsets = columns["offset"]
    for found in files.values():
        last, first, stop, header, complete = max(found, key=lambda f: (f[4], f))
        if len(found) == 1 or not complete:
            continue
        known = {ids[row] for row in range(first, stop) if offsets[row] >= header}
        for ns, begin, behind, at, _ in found:
            for row in range(begin, behind) if ns < last else ():
                if ends[row] == NO_TIME and offsets[row] >= at and ids[row] not in known:
                    starts[row], ends[row] = NO_TIME, last


def _number(known: dict[Any, int], listed: list, entry: Any) -> int:
    key = tuple(sorted((k, str(v)) for k, v in entry.items())) if isinstance(entry, dict) else entry if isinstance(entry, str) else tuple(entry)
    if key not in known:
        known[key] = len(listed)
        listed.append(entry if not isinstance(entry, list) else tuple(entry))
    return known[key]


def _link(spans: Spans) -> None:
    """Find every span's parent, mark repeats, and note for each call what its callee's span says."""
    columns = spans.columns
    marks, starts, ends, procs, peers = (columns[n] for n in ("mark", "start", "end", "proc", "peer"))
    rows: dict[int, int] = {}  # key -> row; of a call's two halves under one id the caller's
    traces = [trace * SPREAD & MASK for trace in columns["trace"]]
    up = spans.up = array("q", [NONE]) * len(marks)
    halves: dict[int, int] = {}  # callee's half -> key
    begun = spans.begun
    for row in begun:
        up[row] = AGAIN
    for row, (trace, span) in enumerate(zip(traces, columns["span"], strict=True)):
        if not span or row in begun:
            continue
        first = rows.setdefault(trace ^ span, row)
        if first != row:
            one, other = marks[first] & 7, marks[row] & 7
            if one == other:
                if ends[first] == NO_TIME and ends[row] != NO_TIME:  # written when it began, and again when it ended
                    up[first], rows[trace ^ span] = AGAIN, row
                else:
                    up[row] = AGAIN
            elif one == SERVER and other == CLIENT:
                rows[trace ^ span] = row
                halves[first] = trace ^ span
            else:
                halves[row] = trace ^ span
    spans.answered = answered = bytearray(len(marks))
    for row, (trace, parent) in enumerate(zip(traces, columns["parent"], strict=True)):
        if up[row] == AGAIN:
            continue
        if row in halves:
            above = rows[halves[row]]
        elif parent:
            above = rows.get(trace ^ parent, NOWHERE)
        else:
            continue
        up[row] = above if above != row else NONE
        if above < 0 or marks[above] & 7 not in (CLIENT, PRODUCER) or procs[above] == procs[row]:
            continue
        status = 3 if ends[row] == NO_TIME else 2 if marks[row] >> 3 == ERROR else 1
        if status == 1 and marks[above] >> 3 == ERROR and NO_TIME not in (ends[above], starts[above], starts[row]) and ends[row] - starts[row] >= LATE * (ends[above] - starts[above]):
            status = 4
        answered[above] = max(answered[above], status)
        spans.served.setdefault(peers[above], procs[row])
        _bound(spans, above, row, starts, ends)
    spans.served.pop(next((i for i, p in enumerate(spans.peers) if p == (None, None, None)), -1), None)


def _bound(spans: Spans, caller: int, callee: int, starts: array, ends: array) -> None:
    here, there = spans.process(caller).get("host"), spans.process(callee).get("host")
    if not here or not there or here == there or NO_TIME in (starts[caller], starts[callee]):
        return
    pairs = spans._bounds.setdefault((str(here), str(there)), [])
    if len(pairs) < BOUNDS_MAX:
        both = spans.kind(caller) == CLIENT and spans.status(caller) != ERROR and NO_TIME not in (ends[caller], ends[callee])
        pairs.append((ends[callee] - ends[caller] if both else None, starts[callee] - starts[caller]))
