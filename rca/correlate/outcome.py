"""How the run ended, and what looked bad but was not."""

from __future__ import annotations

from rca.correlate import pulse
from rca.correlate.progress import NOT_TERMINAL, OF_TOTAL, key_of, lived_on, spoiled
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import QUIET_KINDS, VICTIM_KINDS, Kind

#: Marks of events that did not bring the run down.
SURVIVED = ("lived_on", "foreign", "outside", "recovered")
#: What a healthy run prints, at its end too; an alarm is anything else that a signature knows.
MARKERS = frozenset({Kind.LEAK_WARNING, Kind.STARTED, Kind.FINISHED, Kind.SAVE_STARTED, Kind.SAVED, Kind.LOAD_STARTED, Kind.LOADED, Kind.ENDS_INSIDE, Kind.EVENT_ACKNOWLEDGED})
FAILURES = frozenset({Kind.AGENT_REPORT, Kind.AGENT_SIGNALLED, Kind.SCHEDULER_STOP, Kind.SCHEDULER_TIME_LIMIT})


def how(view: View) -> str:
    """`finished`, `failed`, `cut`, `goes_on` or `unknown`, judged by the last attempt.

    A run whose loss was no number to the end has failed, although it made all its steps; so has one that used what both ends tell differently.
    """
    found = _end(view)
    return "failed" if (found in ("finished", "goes_on") and _spoiled(view)) or (found in ("finished", "goes_on", "unknown") and _used_damaged(view)) else found


def _used_damaged(view: View) -> bool:
    """Whether what arrived is not what was sent, or what was read not what was written: that nobody noticed makes it no better."""
    return any(e.attrs.get("what") for e in view.of(Kind.PAYLOAD_DIFFERS)) or any(e.attrs.get("manifest") for e in view.of(Kind.CHECKPOINT_INVALID))


def _spoiled(view: View) -> bool:
    bad = {(e.source, str(e.attrs.get("stream") or "")) for e in view.of(Kind.NON_FINITE)}
    return bool(bad) and any((w.source, w.stream) in bad and w.attempt in (None, view.identity.attempts - 1) and spoiled(w) for w in view.identity.writers)


def _end(view: View) -> str:
    last = view.attempt(view.identity.attempts - 1)
    finished = [p for p in last if p.finished]
    ended = [p for p in last if p.ended_by is not None]
    exits = [e for e in view.of(Kind.EXITED) if (e.attempt or 0) == view.identity.attempts - 1 and not _before(e, finished)]
    bad_exit = [e for e in exits if e.attrs.get("exitcode") not in (0, None)]
    undone = _undone(view)
    if all(e.attrs.get("left") for e in view.of(Kind.FINISHED)):  # processes that were asked to end do so in order, whatever made the run end
        finished = [p for p in finished if not errors_of(view)]
    if finished and not undone and not bad_exit and not any(e.kind in FAILURES and not _before(e, finished) for e in view.events):
        unfinished = [p for p in last if not p.finished and p.rank is not None and p.ended_by is not None]
        return "failed" if unfinished else "finished"
    done = [] if errors_of(view) and all(e.attrs.get("left") for e in view.of(Kind.FINISHED)) else view.of(Kind.FINISHED)
    if done and not undone and not (ended or bad_exit or any(e.kind in FAILURES for e in view.events)):
        return "finished"  # somebody said so, and nobody contradicts
    if _restarted(view) or (not bad_exit and not any(e.kind in FAILURES for e in view.events) and _torn_down(view)):
        return "finished"
    if view.of(Kind.CUT_SHORT):
        return "cut"
    if bad_exit or ended or errors_of(view) or any(e.kind in FAILURES for e in view.events):
        return "failed"
    return "goes_on" if _goes_on(view) or (view.of(Kind.LOSS_SPIKE) and _metrics_alone(view)) else "unknown"


def errors_of(view: View) -> list[Event]:
    """Errors that nothing shows to have been survived."""
    return [e for e in view.events if e.kind not in NOT_TERMINAL and e.severity in ("error", "fatal") and not any(e.attrs.get(k) for k in SURVIVED)]


def _goes_on(view: View) -> bool:
    """Whether something alarming was said, and the steps that follow show that the run went on after all of it.

    What was corrected or repeated with success needs one step, in whatever file; a device's own note that it corrected something, and
    complaints that are known to mean nothing, none.
    """
    alarms = [e for e in view.events if e.source is not None and e.kind not in MARKERS and not e.attrs.get("foreign")]
    beats = pulse.beats(view)

    def over(event: Event) -> bool:
        if event.kind in QUIET_KINDS or event.attrs.get("recovered"):
            return bool(pulse.steps_after(event, beats, view)) or (len(beats) >= pulse.ENOUGH and all(b.source != event.source for b in beats))
        return pulse.steps_after(event, beats, view) >= pulse.ENOUGH

    noted = any(e.kind == Kind.DEVICE_NOTICE or e.attrs.get("harmless") for e in view.events)
    return (bool(alarms) and all(map(over, alarms))) or (noted and not beats and all(e.kind in QUIET_KINDS for e in alarms))


def _metrics_alone(view: View) -> bool:
    """Whether the material is nothing but lines of training metrics: somebody asks about their course, not about the end of a run."""
    infos = [w.info for w in view.identity.writers if w.info["lines"]]
    steps, lines = sum(len(i["steps"]) for i in infos), sum(i["lines"] for i in infos)
    return bool(lines) and steps * 5 >= lines * 4 and all(e.kind in QUIET_KINDS for e in view.events)


def _torn_down(view: View) -> bool:
    """Whether all that went wrong is that peers left when the work was done: the last step was made, and the log ends with the end of the run."""
    errors = [e for e in view.events if e.kind not in NOT_TERMINAL and e.severity in ("error", "fatal")]
    for done in view.of(Kind.FINISHED):
        if not errors or any(e.source != done.source for e in errors):
            continue
        steps = [mark for w in view.identity.writers if w.source == done.source for mark in w.info["steps"][-1:]]
        complete = [m[4] for m in steps if (total := OF_TOTAL.search(m[5])) and total[1] == total[2] != "1"]
        if complete and all(e.kind in VICTIM_KINDS and max(complete) < e.offset < last_offset(done) for e in errors):
            return True
    return False


def _undone(view: View) -> bool:
    """Whether what was said to be finished was a part only: in the same file steps follow it, and then an exception that nothing follows."""
    raised = [e for e in view.events if e.attrs.get("traceback") is True and e.kind not in NOT_TERMINAL and e.severity in ("error", "fatal")]
    raised = [e for e in raised if not any(e.attrs.get(k) for k in (*SURVIVED, "thread"))]
    done = {e.source: last_offset(e) for e in view.of(Kind.FINISHED)} if raised else {}
    beats = pulse.beats(view) if done else []
    return any(
        len({b.step for b in beats if b.source == e.source and done[e.source] < b.offset < e.offset}) >= pulse.ENOUGH for e in raised if e.source in done
    )


def _restarted(view: View) -> bool:
    """Whether a log that goes on over a restart holds its errors before it, and behind it steps and the end of the run."""
    bad = [e for e in view.events if (e.kind not in NOT_TERMINAL and e.severity in ("error", "fatal")) or e.kind in FAILURES or e.kind == Kind.EXITED]
    beats = pulse.beats(view)
    for restart in view.of(Kind.AGENT_RESTART):
        ends = [e.offset for e in view.of(Kind.FINISHED) if e.source == restart.source and e.offset > last_offset(restart)]
        steps = {b.step for b in beats if b.source == restart.source and ends and last_offset(restart) < b.offset < max(ends)}
        if len(steps) >= pulse.ENOUGH and all(e.source == restart.source and last_offset(e) < restart.offset for e in bad):
            return True
    return False


def last_offset(event: Event) -> int:
    """Where the last repeat of an event stands in its file."""
    return max(event.offset, event.attrs.get("last_offset") or 0)


def _before(event: Event, finished: list) -> bool:
    """Whether an exit belongs to an attempt before the one that finished."""
    ends = [p.last_ns for p in finished if p.last_ns is not None]
    return event.time_ns is not None and bool(ends) and event.time_ns < max(ends) and event.attempt is None


def notes(view: View) -> tuple[tuple[str, Event | None], ...]:
    """Benign findings: scheduled dumps, retries, errors that the process survived, restarts, corrected device errors."""
    found: list[tuple[str, Event | None]] = []
    dumps = [e for e in view.of(Kind.STACK_DUMP) if not e.attrs.get("asked")]
    if dumps:
        found.append((f"{sum(e.count for e in dumps)} scheduled stack dump(s) are an alarm clock that the program set, not a failure", dumps[0]))
    retried = view.of(Kind.RETRIED)
    if retried:
        found.append((f"{sum(e.count for e in retried)} retry or fallback message(s); the job went on", retried[0]))
    if view.identity.attempts > 1:
        found.append((f"the launcher restarted the job: {view.identity.attempts} attempts", None))
    found += [(f"{event.text}: such spikes are usual and no failure", event) for event in view.of(Kind.LOSS_SPIKE)]
    for event in view.of(Kind.DEVICE_NOTICE, Kind.DEVICE_FAULT_ECHO, Kind.LINK_DOWN):
        found.append((f"{event.kind}: {event.text[:120]}", event if event.source else None))
    for event in view.events:
        proc = view.procs.get(key_of(event) or ())
        if proc and event.source and event.kind not in QUIET_KINDS and event.severity in ("error", "fatal") and lived_on(event, proc):
            found.append((f"the process went on after this: {event.text[:120]}", event))
    return tuple(found[:30])
