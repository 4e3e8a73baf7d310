"""What the whole trace tells about the events of its spans.

The longest error span is usually the outermost caller. What broke is told by the deepest one that failed while its own calls were fine or
left no span: that stays an event of its own, its callers are calls that failed because of it, and the levels of one process that one
exception passed through are one event. A call that failed and was repeated with success is over; a span without an end counts where others
of its name took far less.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from rca.correlate.spans import AGAIN, CLIENT, ERROR, NO_TIME, NONE, NOWHERE, OK, PRODUCER, Spans
from rca.model import Event
from rca.taxonomy import VICTIM_KINDS, Kind

DEPTH_MAX = 64  # levels of calls that are climbed
OPEN_TIMES = 3.0  # a span without an end is telling if it lasted so many times as long as others of its name
OPEN_SECONDS = 30.0  # or, where there are no others, so long
OPEN_MAX = 32  # of them are told
RETRY_NS = 3600 * 10**9  # a call of the same name to the same callee within this time after a failure is its repetition
CALLS = (CLIENT, PRODUCER)
#: What a failed call is; work that failed is anything else.
CALL_KINDS = frozenset({Kind.RPC_FAILED, Kind.RPC_TIMEOUT, Kind.RPC_REFUSED, Kind.RPC_ERROR_REPLY, Kind.STOP_FAILED, Kind.EVENT_LOST, Kind.SAVE_FAILED})


def interpret(events: list[Event], spans: Spans) -> list[Event]:
    """The events with those of spans set right; all others are left as they are."""
    if not len(spans):
        return events
    events = list(events)
    mine: dict[int, int] = {}  # row -> place of its event
    bases = {source: first for first, source in reversed(spans.sources)}
    dropped: set[int] = set()
    for place, event in enumerate(events):
        if event.attrs.get("span") and event.source in bases and isinstance(event.attrs.get("row"), int):
            row = bases[event.source] + event.attrs["row"]
            if row in spans.begun:
                row = spans.begun[row]
                events[place] = _named(event, row, spans)
            elif row < len(spans) and event.kind == Kind.REQUEST_OPEN and spans.columns["end"][row] != NO_TIME:
                dropped.add(place)  # its end stands in another file
                continue
            if row >= len(spans) or spans.up[row] == AGAIN or row in mine:
                dropped.add(place)
            else:
                mine[row] = place
    if not mine:
        return events
    out = list(events)
    failed = {row for row, place in mine.items() if events[place].kind not in (Kind.REQUEST_OPEN, Kind.EVENT_ACKNOWLEDGED)}
    _chain(failed, mine, out, dropped, spans)
    calls = [row for row in sorted(failed) if mine[row] not in dropped and spans.kind(row) in CALLS]
    parts = _answers_of_parts(calls, spans)
    for row in calls:
        out[mine[row]] = _call(out[mine[row]], row, spans, parts.get(row, 0))
    _retries(failed, mine, out, dropped, spans)
    _open({row for row, place in mine.items() if events[place].kind == Kind.REQUEST_OPEN}, mine, out, dropped, spans)
    return [event for place, event in enumerate(out) if place not in dropped]


def _named(event: Event, row: int, spans: Spans) -> Event:
    """The event of an end without its start, with what the start says in another file of the process."""
    stage, step = spans.phases[spans.columns["phase"][row]]
    name = spans.names[spans.columns["name"][row]]
    start = spans.columns["start"][row]
    return event.but(stage=event.stage or stage, step=step if event.step is None else event.step, attrs={**event.attrs, "op": name, "started_ns": None if start == NO_TIME else start})


def _above(row: int, among: set[int], spans: Spans) -> int | None:
    """The nearest failed span above; what ended well in between has dealt with the failure."""
    for _ in range(DEPTH_MAX):
        row = spans.up[row]
        if row < 0 or spans.status(row) == OK:
            return None
        if row in among:
            return row
    return None


def _chain(failed: set[int], mine: dict[int, int], out: list[Event], dropped: set[int], spans: Spans) -> None:
    """One event per failure: join the levels of one process, and name the cause of each failed call."""
    below: dict[int, list[int]] = {}
    for row in sorted(failed):
        if (above := _above(row, failed, spans)) is not None:
            below.setdefault(above, []).append(row)
    depth = {row: _depth(row, spans) for row in failed}
    became = {row: row for row in failed}  # the row whose event tells of it
    procs = spans.columns["proc"]
    for row in sorted(below, key=lambda r: -depth[r]):
        inner = min(below[row], key=lambda r: (spans.columns["end"][r], r))
        told = became[inner]
        here, there = out[mine[row]], out[mine[told]]
        bare = bool(here.attrs.get("bare_status"))
        if there.attrs.get("bare_status") and not (bare and here.kind == there.kind and spans.kind(row) not in CALLS):
            # The callee's span says no more than that it failed: the caller's is the event, and its callee is known now.
            out[mine[row]] = here.but(also=here.also + there.records, attrs={**here.attrs, "callee_span": there.span_id, **_cause(there)})
            dropped.add(mine[told])
            became[told] = row
        elif procs[row] == procs[told] and spans.kind(row) not in CALLS and here.kind not in CALL_KINDS:
            out[mine[told]] = there.but(also=there.also + here.records)
            dropped.add(mine[row])
            became[row] = told
        else:
            kind = here.kind if here.kind in VICTIM_KINDS or here.kind in CALL_KINDS else Kind.RPC_FAILED
            out[mine[row]] = here.but(kind=kind, attrs={**here.attrs, "cause_span": there.span_id})


def _cause(event: Event) -> dict[str, Any]:
    return {"cause_span": event.attrs["cause_span"]} if event.attrs.get("cause_span") else {}


def _depth(row: int, spans: Spans) -> int:
    for depth in range(DEPTH_MAX):
        row = spans.up[row]
        if row < 0:
            return depth
    return DEPTH_MAX


def _answers_of_parts(calls: list[int], spans: Spans) -> dict[int, int]:
    """What the callee's span says of calls that have none of their own: one made of several (`rpc generate` around `POST /generate`), or the body of an answer."""
    up, answered, procs, peers = spans.up, spans.answered, spans.columns["proc"], spans.columns["peer"]
    wanted: dict[tuple[int, int], set[int]] = {}
    for row in calls:
        if not answered[row]:
            for above in {row, up[row]} - {NONE, NOWHERE, AGAIN}:
                wanted.setdefault((above, peers[row]), set()).add(row)
    found: dict[int, int] = {}
    for other, above in enumerate(up) if wanted else ():
        if above >= 0 and answered[other] and procs[other] == procs[above]:
            same = spans.peers[peers[above]][0] == spans.peers[peers[other]][0]  # the outer call may know the callee by its name alone
            for row in wanted.get((above, peers[other]), set()) | (wanted.get((above, peers[above]), set()) if same else set()):
                found[row] = max(found.get(row, 0), answered[other])
    return found


def _call(event: Event, row: int, spans: Spans, parts: int = 0) -> Event:
    """A failed call with what is known of its callee: who it is, and whether it has a span of its own for this call."""
    answer = ("missing", "ok", "failed", "open", "late")[spans.answered[row] or parts]
    if answer == "late" and event.kind != Kind.RPC_TIMEOUT:
        answer = "ok"  # a call that broke off as the answer came lasts as long as the callee's part of it
    if answer == "missing" and not _traced(row, spans):
        answer = "unknown"
    text, kind = event.text, event.kind
    if answer == "ok" and kind in (Kind.RPC_TIMEOUT, Kind.RPC_FAILED):
        text += "; the callee had ended it well"
    known = spans.callee(row)
    about = event.attrs.get("about")
    if about is None and (known.get("worker") or known.get("host")):
        about = {k: v for k, v in known.items() if k in ("worker", "role", "host", "pid", "gpu", "rank")}
        about.setdefault("worker", f"{known.get('address')}:{known.get('port')}")
    elif about is not None:
        about = {**{k: v for k, v in known.items() if k in ("host", "pid")}, **{k: v for k, v in about.items() if v is not None}}
    return event.but(text=text, attrs={**event.attrs, "answer": answer, **({"about": about} if about else {})})


def _traced(row: int, spans: Spans) -> bool:
    """Whether the callee writes spans: then it would have one of this call, had it received it and lived."""
    peer, name = spans.columns["peer"][row], spans.columns["name"][row]
    if peer in spans.served:
        return True
    names = spans.columns["name"]
    return any(spans.answered[other] for other in range(len(spans)) if names[other] == name) if len(spans) < 200_000 else False


def _retries(failed: set[int], mine: dict[int, int], out: list[Event], dropped: set[int], spans: Spans) -> None:
    """A failed call that was made again and answered is over."""
    columns = spans.columns
    wanted = {(columns["name"][row], columns["peer"][row], columns["trace"][row], columns["parent"][row]): [] for row in failed if spans.kind(row) in CALLS and mine[row] not in dropped}
    if not wanted:
        return
    for row, key in enumerate(zip(columns["name"], columns["peer"], columns["trace"], columns["parent"], strict=True)):
        if key in wanted and row not in failed and spans.up[row] != AGAIN and columns["end"][row] != NO_TIME and spans.status(row) != ERROR:
            wanted[key].append(columns["start"][row])
    for row in failed:
        key = (columns["name"][row], columns["peer"][row], columns["trace"][row], columns["parent"][row])
        end = columns["end"][row]
        if key in wanted and mine[row] not in dropped and any(end <= start <= end + RETRY_NS for start in wanted[key]):
            event = out[mine[row]]
            out[mine[row]] = event.but(kind=Kind.RETRIED, severity="info", text=f"{event.text}; made again, and answered", attrs={**event.attrs, "was": event.kind})


def _open(rows: set[int], mine: dict[int, int], out: list[Event], dropped: set[int], spans: Spans) -> None:
    """Keep of the spans without an end the innermost of each process that lasted longer than others of its name; the last that began in it tells at least where it was."""
    if not rows:
        return
    ends = spans.columns["end"]
    names = {spans.columns["name"][row] for row in rows}
    usual: dict[int, list[float]] = {}
    last = max((e for e in ends if e != NO_TIME), default=NO_TIME)
    last = max(last, max((s for s in spans.columns["start"]), default=NO_TIME))
    for row, name in enumerate(spans.columns["name"]):
        if name in names and (seconds := spans.seconds(row)) is not None and spans.up[row] != AGAIN:
            usual.setdefault(name, []).append(seconds)
    outer = set()
    for row in rows:
        above = spans.up[row]
        for _ in range(DEPTH_MAX):
            if above < 0:
                break
            outer.add(above)
            above = spans.up[above]
    told = []
    inmost: dict[int, list[int]] = {}  # of each process, the last that began, and the one of another thread that has been open for the longest
    for row in sorted(rows - outer, key=lambda r: (spans.columns["start"][r], r)):
        known = inmost.setdefault(spans.columns["proc"][row], [])
        known[1:] = [row]
    for row in sorted(rows):
        place, start = mine[row], spans.columns["start"][row]
        lasted = (last - start) / 1e9 if start != NO_TIME else 0.0
        others = usual.get(spans.columns["name"][row])
        most = OPEN_TIMES * median(others) if others else OPEN_SECONDS
        if row in outer or lasted < max(most, 1.0):
            of_process = inmost.get(spans.columns["proc"][row], [])
            if of_process[-1:] == [row] or (of_process[:1] == [row] and lasted >= 1.0):
                out[place] = out[place].but(kind=Kind.ENDS_INSIDE, severity="info")
            else:
                dropped.add(place)
            continue
        event = out[place]
        text = f"{event.text}: open for {lasted:.0f} s" + (f", others took {median(others):.1f} s" if others else "")
        attrs = {**event.attrs, "open_s": round(lasted, 1), "usual_s": round(median(others), 3) if others else None}
        out[place] = event.but(text=text, attrs=attrs)
        if spans.kind(row) in CALLS:
            out[place] = _call(out[place], row, spans)
        told.append((-lasted, place))
    dropped |= {place for _, place in sorted(told)[OPEN_MAX:]}
