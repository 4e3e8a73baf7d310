"""What an error may mean besides what it says: facts by which a rule doubts its own words.

In a run of several roles a shape that does not fit may be a batch that lost rows, and a CUDA error may be an earlier fault of the device that
another role met first. Whether it is so, other rules show; that it could be so, makes the plain reading less sure.
"""

from __future__ import annotations

import re

from rca.correlate.concern import follows, host_of, lasting, numbers
from rca.correlate.edges.callee_host import NET
from rca.correlate.edges.dataflow import SHORT, accounts, echoes
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

MISFIT = frozenset({Kind.SHAPE_MISMATCH, Kind.BATCH_MISMATCH})
UNNAMED = frozenset({Kind.EXCEPTION, Kind.ASSERTION, Kind.BAD_ARGUMENT, Kind.CORRUPT_DATA})
#: Requests by which one role lets go of a device and another takes it; unanswered, they are events that were lost.
UNANSWERED = frozenset({Kind.RPC_TIMEOUT, Kind.RPC_FAILED})
HANDOVER = re.compile(r"\b(?:off|on)_?load|\bsleep\b|wake_?_?up|(?:release|resume)_memory|hand-?_?over|(?:rollout|train|gen(?:eration)?)_(?:start|end|mode)|switch(?:ing)? to|stage_switch|切(?:换)?到|切换|让出|释放显存|卸载", re.I)
STICKY = frozenset({Kind.DEVICE_ERROR, Kind.DEVICE_ASSERT, Kind.DEVICE_ILLEGAL_ACCESS})
TROUBLE = frozenset({Kind.ACTOR_SILENT, Kind.ACTOR_DIED, Kind.PARTIAL_RESULT, Kind.RPC_TIMEOUT, Kind.REQUEST_OPEN, Kind.RPC_FAILED})
SHAPES = re.compile(r"\[(\d+(?:, ?\d+)*)\]|\((\d+(?:, ?\d+)*),?\)")
#: Two counts of things that do not fit, whatever the exception is called.
THINGS = r"(?:len|rows?|samples?|sequences?|responses?|prompts?|trajectories|rollouts?|batch|log_?probs?|completions?|episodes?|groups?|条|行|个样本)"
COUNTS = re.compile(rf"{THINGS}[^\d\n]{{0,40}}\d+[^\d\n]{{1,40}}?(?:\bvs\.?|!=|\bgot\b|expected|instead of|but|has|have|实际|期望)[^\d\n]{{0,30}}\d+|expected \d+[^\d\n]{{0,40}}got \d+", re.I)
#: A call to an address that nobody answered in time, whatever the exception is called.
UNHEARD = re.compile(r"https?://\S{3,200}[^\n]{0,60}?\b(?:deadline|timed[ _-]?out|time-?out)\b|\b(?:deadline|timed[ _-]?out|time-?out)\b[^\n]{0,80}?https?://", re.I)
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}:\d{2,5}\b|https?://\S|\b[\w.-]{2,80}:\d{4,5}\b")
FIRST = re.compile(r"dimension 0\b|batch[ _]size|\brows\b|number of (?:samples|sequences)", re.I)


def look(view: View) -> list[Event]:
    """The events with what else they may mean, unanswered hand-overs as `event.unacknowledged`, and with `accounted` (then of kind `batch.mismatch`), `short_rows`, `rows_lost`, `unheard` and `late_report` filled in, in the same order."""
    events = [_unheard(e) for e in view.events]
    roles = {p.role for p in view.procs.values()} | {e.role for e in events}
    if len(roles & {"rollout", "reference", "train", "controller"}) < 2:
        return events
    short = [e for e in events if e.kind in SHORT]
    trouble = [e for e in events if e.kind in TROUBLE]
    out = []
    for event in events:
        extra, kind = {}, event.kind
        if event.kind in UNNAMED and "Timeout" not in str(event.attrs.get("exception")) and event.severity in ("error", "fatal") and event.source is not None:
            # Whatever the error is called: its numbers say that as many are missing as did not arrive.
            told = any(accounts(s, event) and follows(s, event) for s in short if s.event_id != event.event_id)
            kind = str(Kind.BATCH_MISMATCH) if told or COUNTS.search(event.text) else kind
        if event.kind in UNANSWERED and event.rank is None and HANDOVER.search(event.text):
            extra["asked"], kind = "handover", str(Kind.EVENT_LOST)
        if kind in MISFIT:
            if any(s.event_id != event.event_id and accounts(s, event) and follows(s, event) for s in short):
                extra["accounted"] = True
            unanswered = len(numbers(event.text) - {0, 1}) > 1 and any(_near(e, event, anywhere=True) and follows(e, event) and not echoes(e, event) for e in trouble if not e.attrs.get("recovered"))
            if (event.step is None or event.step > 1) and (rows_only(event.text) or unanswered):
                extra["short_rows"] = True
                if unanswered:
                    extra["rows_lost"] = True
        sticky = event.kind in STICKY and event.stage in ("weights_update", "train", "reference") and not event.attrs.get("assertion")
        if sticky and any(e.stage in (None, "rollout") and e.event_id != event.event_id and _near(e, event) and follows(e, event) for e in trouble):
            extra["late_report"] = True
        out.append(event.but(kind=kind, attrs={**event.attrs, **extra}) if extra else event)
    return out


def confirm(view: View) -> list[Event]:
    """The events once what was measured is known too: a lasting fault of a wire before the same step speaks for rows that were lost on it."""
    wires = [e for e in view.events if e.kind in NET and lasting(e)]
    return [e.but(attrs={**e.attrs, "rows_lost": True}) if e.attrs.get("short_rows") and any(_near(w, e, anywhere=True) and follows(w, e) for w in wires) else e for e in view.events]


def _unheard(event: Event) -> Event:
    named = "Timeout" in str(event.attrs.get("exception")) and ADDRESS.search(event.text) is not None
    waited = event.kind == Kind.EXCEPTION and (named or UNHEARD.search(event.text) is not None)
    return event.but(attrs={**event.attrs, "unheard": True}) if waited else event


def _near(trouble: Event, event: Event, anywhere: bool = False) -> bool:
    there = host_of(trouble)
    if event.step is not None and trouble.step is not None and not 0 <= event.step - trouble.step <= 1:
        return False
    return anywhere or there is None or event.host is None or there == event.host


def rows_only(text: str) -> bool:
    """Whether shapes differ in the number of rows and in nothing else.

    >>> rows_only("expected input_ids of shape [64, 512], got [32, 512]"), rows_only("expected [64, 512], got [64, 513]")
    (True, False)
    """
    shapes = [tuple(int(n) for n in (a or b).split(",")) for a, b in SHAPES.findall(text)]
    for one in shapes:
        for other in shapes:
            if len(one) == len(other) > 1 and one[0] != other[0] and one[1:] == other[1:]:
                return True
    return bool(FIRST.search(text)) and not any(len(s) > 1 for s in shapes)
