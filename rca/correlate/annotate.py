"""What only the whole run tells about an event: whether its process lived on, whose pid it was, which stage and step it fell into."""

from __future__ import annotations

import re
from typing import Any

from rca.correlate import address, paths, progress, pulse, stage
from rca.correlate.edges import host as host_edges
from rca.correlate.edges import rpc
from rca.correlate.exits import SIGABRT
from rca.correlate.progress import Proc
from rca.correlate.view import View
from rca.model import Event, Reading
from rca.taxonomy import Kind

HOUR_NS = 3600 * 10**9
BEFORE_RUN_NS = HOUR_NS // 4  # what went wrong a quarter of an hour before the first line may still matter to it
BRIEF_NS = 60 * 10**9
SPAN_NS = 5 * 10**9
LONG_RUN_NS = 6 * HOUR_NS  # where nothing says when the job began
AFTER_RUN_NS = 60 * 10**9
DATED_NS = 94_694_400 * 10**9
LONGEST_NS = 3 * 24 * 3600 * 10**9  # measurements over more than that are of no run in particular
ZONES = 14  # hours that zones differ from UTC at most
#: Faults that may end by themselves, and what says so.
PAIRED = {Kind.LINK_DOWN: (Kind.LINK_UP,), Kind.STORAGE_HANG: (Kind.RETRIED,)}
#: What the kernel or the driver says of a process that it names.
OF_A_PROCESS = frozenset({Kind.DEVICE_ILLEGAL_ACCESS, Kind.DEVICE_ERROR, Kind.DEVICE_FAULT_ECHO, Kind.FATAL_SIGNAL})
#: Ends of the whole job are not survived by the steps of what was started after them.
ENDS_ALL = frozenset({Kind.SCHEDULER_STOP, Kind.SCHEDULER_TIME_LIMIT})
NOT_OVER = ENDS_ALL | {Kind.AGENT_SIGNALLED, Kind.EXITED, Kind.AGENT_REPORT, Kind.HOST_DOWN}
CRASHES = frozenset({Kind.NATIVE_ABORT, Kind.FATAL_SIGNAL})
WAITED_OR_LOST = frozenset({
    Kind.COLLECTIVE_TIMEOUT, Kind.WATCHDOG_STUCK, Kind.PEER_LOST, Kind.STORE_LOST, Kind.STORE_TIMEOUT, Kind.RENDEZVOUS_TIMEOUT, Kind.RPC_TIMEOUT,
})  # fmt: skip
MOMENT_NS = 10**9
#: What a process says that cannot write or read a file.
OF_FILES = frozenset({Kind.READ_ONLY, Kind.WRITE_FAILED, Kind.SAVE_FAILED, Kind.SAVE_OPEN, Kind.IO_ERROR, Kind.NO_SPACE, Kind.PERMISSION, Kind.CHECKPOINT_INVALID, Kind.MISSING_FILE, Kind.STORAGE_HANG})
STOPPED = (-15, 143, -9, 137)  # what a stopped process ends with is no failure of its own
WORD_OF_STOP = re.compile(r"preempt|evict|time limit|node fail|reclaim|maintenance", re.I)
NEAR_BYTES = 16 << 10  # a console holds the report of a wait, with its frames, this near to the crash that it ends in
NON_FINITE = re.compile(r"[+-]?(?:nan|inf)", re.I)
#: Before any step is made: what these report is the start-up, whatever the log says of stages.
START_UP = frozenset({
    Kind.RENDEZVOUS_TIMEOUT, Kind.RENDEZVOUS_UNREACHABLE, Kind.RENDEZVOUS_REFUSED, Kind.ADDRESS_IN_USE, Kind.ADDRESS_UNRESOLVED,
    Kind.ADDRESS_LOOPBACK, Kind.NET_MISCONFIGURED, Kind.MESH_FAILED, Kind.BAD_ARGUMENT, Kind.IMPORT_FAILED,
})  # fmt: skip
ROLE_STAGE = {"rollout": "rollout", "reference": "reference"}


def annotate(view: View) -> list[Event]:
    """The folded events with these facts filled in, in the same order."""
    lonely = _lonely_non_finite(view)
    window = _window(view)
    actors = {p.actor for p in view.procs.values() if p.actor}
    # What the scheduler writes into the job's own output is about this job, whatever its clock says.
    own = {w.source for w in view.identity.writers if w.rank is not None and not w.reading.of_host}
    beats = pulse.beats(view)
    out = []
    for event in view.events:
        proc = view.procs.get(progress.key_of(event) or ())
        extra: dict[str, Any] = {}
        ended = proc is not None and proc.ended_by is not None and proc.ended_by.event_id == event.event_id
        # A process outlives its helper threads by nature: that it wrote on says nothing about what the thread was needed for.
        if proc is not None and event.source is not None and not (ended or event.attrs.get("thread") or event.kind in ENDS_ALL) and progress.lived_on(event, proc):
            extra["lived_on"] = True
        if event.kind == Kind.NON_FINITE and (writer := view.identity.writer(event.source, str(event.attrs.get("stream") or ""))) is not None and progress.spoiled(writer):
            extra["lasts"] = True
        elif proc is None and event.source is not None and event.kind not in NOT_OVER and pulse.steps_after(event, beats, view) >= pulse.ENOUGH:
            extra["lived_on"] = True
        if (event.kind == Kind.KILLED_BY_KERNEL or (event.kind in OF_A_PROCESS and event.attrs.get("name"))) and host_edges.foreign(event, view) is True:
            extra["foreign"] = True
        if event.kind == Kind.EXITED and proc is not None and proc.ended_by is not None and proc.ended_by.event_id != event.event_id:
            extra["told"] = True
        if event.rank is None and event.actor not in actors and event.source not in own and _outside(event, window):
            extra["outside"] = True
        if event.kind in CRASHES and _after_wait(event, view):
            extra["after_wait"] = True
        if (event.kind == Kind.SCHEDULER_STOP and _after_exit(event, view)) or (event.kind == Kind.AGENT_SIGNALLED and _given_up(event, view)):
            extra["after_exit"] = True
        if event.kind == Kind.READ_ONLY and _unmet(event, view):
            extra["unmet"] = True
        if event.kind == Kind.IO_ERROR and _local_disk(event, view):
            extra["local"] = True
        if event.kind in PAIRED:
            extra["recovered"] = _recovered(event, view)
        if value := event.attrs.get("value"):
            extra["own"] = "non_finite" if NON_FINITE.match(str(value)) else "finite"
        elif event.event_id in lonely:
            extra["own"] = "non_finite"
        event = event.but(attrs={**event.attrs, **extra}) if extra else event
        if event.kind in rpc.ABOUT_CALLEE:
            event = rpc.about(event, view)
        if event.kind == Kind.RENDEZVOUS_UNREACHABLE:
            event = address.about(event, view)
        if event.kind == Kind.UNREACHABLE:
            event = address.cut_off(event, view)
        if event.kind == Kind.MESH_FAILED and address.loops_back(event, view):
            event = event.but(attrs={**event.attrs, "loopback": True})
        out.append(_placed(_timed(event, proc), proc, view))
    return out


def _window(view: View) -> tuple[int, int] | None:
    """From the first to the last sign of life of the job's processes, in the common time."""
    spans = [(p.first_ns, p.last_ns) for p in view.procs.values() if p.first_ns is not None and p.last_ns is not None and view.clock.dated(p.first_ns)]
    spans = spans or _written(view)
    long = [(a, b) for a, b in spans if b - a >= SPAN_NS]  # a few lines at the end do not show when it began
    if long:
        return min(a for a, _ in long), max(b for _, b in spans)
    times = [e.time_ns for e in view.events if e.time_ns is not None and view.clock.dated(e.time_ns) and (e.rank is not None or e.kind == Kind.EXITED)]
    return (min(times) - LONG_RUN_NS, max(times)) if times else _measured(view)


def _measured(view: View) -> tuple[int, int] | None:
    """Where the job's own logs carry no dates: the time that was measured, which whoever collected the counters took for that of the run."""
    times: list[int] = []
    for reading in view.readings:
        zoned = bool(reading.facts.get("zoned"))
        stamps = reading.sample_times
        times += [ns for ns in (view.clock.resolve(t, None, zoned) for t in (min(stamps), max(stamps))) if ns is not None and view.clock.dated(ns)] if stamps else []
    return (min(times), max(times)) if times and max(times) - min(times) <= LONGEST_NS else None


def _written(view: View) -> list[tuple[int, int]]:
    """The first and last times of the job's own files, where no process is known by name."""
    found = []
    for writer in view.identity.writers:
        zoned = bool(writer.reading.facts.get("zoned"))
        ends = [view.clock.resolve(m[0], writer.host, zoned) for m in (writer.info["first"], writer.info["last"]) if m]
        if len(ends) == 2 and None not in ends and view.clock.dated(ends[0]) and not writer.reading.of_host:
            found.append((ends[0], ends[1]))
    return found


def _outside(event: Event, window: tuple[int, int] | None) -> bool:
    """Whether a host's event happened long before or after the run: an earlier job's or boot's line in the same log.

    A log whose zone is not stated may be off by whole hours; an event that such a shift would move into the run is not judged.
    """
    if window is None or event.time_ns is None or event.time_ns < DATED_NS:
        return False
    start, end = window[0] - BEFORE_RUN_NS, window[1] + AFTER_RUN_NS
    if start <= event.time_ns <= end:
        return False
    shifts = range(-ZONES, ZONES + 1) if event.time_assumed else ()
    return not any(start <= event.time_ns + k * HOUR_NS <= end for k in shifts)


def _after_wait(crash: Event, view: View) -> bool:
    """Whether a process crashed because its communication was over: the watchdog takes it down, or the library trips over a lost peer."""
    if "c10::Dist" in str(crash.attrs.get("thrown")):
        return True
    others = [e for e in view.events if e.kind in WAITED_OR_LOST and (e.attempt is None or crash.attempt is None or e.attempt == crash.attempt)]
    if crash.attrs.get("only_exit"):  # nothing but its exit code is known, and watchdogs end all ranks alike
        return crash.attrs.get("signal") == SIGABRT and any("atchdog" in e.text for e in others)
    mine = [r for e in others if crash.rank is None or e.rank in (None, crash.rank) or crash.rank in e.ranks for r in e.records]
    return any(r.source == crash.source and abs(r.offset - crash.offset) <= NEAR_BYTES for r in mine)


def _after_exit(stop: Event, view: View) -> bool:
    """Whether a process had ended badly by itself before the scheduler stopped the rest: then that is how it cleans up."""
    for event in view.of(Kind.EXITED):
        if event.attrs.get("exitcode") in (0, None, *STOPPED) or event.attrs.get("by_agent"):
            continue
        if event.source == stop.source and event.offset < stop.offset and not WORD_OF_STOP.search(stop.text):
            return True
    return False


def _given_up(stop: Event, view: View) -> bool:
    """Whether the job's own clean-up had begun before a launcher was told to stop, because of an error: just before it, or a moment before where only a log's level says so.

    A scheduler that says why it stops the job is believed whatever the job was at.
    """
    times = [stop.time_ns] if stop.time_ns is not None else [e.time_ns for e in view.of(Kind.AGENT_SIGNALLED) if e.time_ns is not None]  # of one without a time, that of the others
    begun = view.course.cleaning_since(min(times)) if times else None
    if begun is None:
        return False
    terminal = [e for e in view.events if e.severity in ("error", "fatal") and e.time_ns is not None and e.time_ns <= begun and not e.attrs.get("recovered")]
    return any(begun - e.time_ns < (MOMENT_NS if e.kind == Kind.LOGGED_ERROR else progress.SURVIVED_NS) for e in terminal if e.kind == Kind.LOGGED_ERROR or e.kind not in progress.NOT_TERMINAL)


def _unmet(event: Event, view: View) -> bool:
    """Whether only a host's kernel says that a file system is read-only, and no process of the job met any trouble with a file: then it may be anybody's disk."""
    reading = _reading(event, view)
    if reading is None or not reading.of_host:
        return False
    return not any(e.kind in OF_FILES and ((r := _reading(e, view)) is None or not r.of_host) for e in view.events)


def _local_disk(event: Event, view: View) -> bool:
    """Whether the kernel of that host complains of a block device: otherwise an I/O error is what a network mount that is down returns."""
    disks = [e for e in view.of(Kind.IO_ERROR) if (r := _reading(e, view)) is not None and r.of_host]
    return any(e.event_id == event.event_id or None in (e.host, event.host) or e.host == event.host for e in disks)


def _reading(event: Event, view: View) -> Reading | None:
    return next((r for r in view.readings if r.source == event.source), None)


def _recovered(event: Event, view: View) -> bool:
    """Whether the same log later says that it works again, before anybody had waited in vain."""
    words = PAIRED[Kind(event.kind)]
    name = event.nic or event.attrs.get("server") or event.bus_id
    began = event.time_ns
    waits = [e.time_ns for e in view.events if e.kind in WAITED_OR_LOST and e.time_ns is not None and began is not None and e.time_ns > began]
    for other in view.events:
        if waits and other.time_ns is not None and other.time_ns > min(waits):
            continue
        if other.kind in words and other.source == event.source and _last_offset(other) > _last_offset(event):
            theirs = other.nic or other.attrs.get("server") or other.bus_id
            if (name and theirs and name == theirs) or (name and name in other.text) or not (name or theirs):
                # Who came back after minutes was missed: a save may have been given up, a request have timed out.
                return began is None or other.time_ns is None or other.time_ns - began <= BRIEF_NS
    return False


def _last_offset(event: Event) -> int:
    return max(event.offset, event.attrs.get("last_offset") or 0)


def _lonely_non_finite(view: View) -> set[int]:
    """Events of the ranks that printed a non-finite value while others of the same steps did not: there it began."""
    printed = [e for e in view.of(Kind.NON_FINITE) if not e.attrs.get("traceback") and e.rank is not None]
    ranks = {e.rank for e in printed}
    return {e.event_id for e in printed} if ranks and len(ranks) < len(view.ranked) else set()


def _timed(event: Event, proc: Proc | None) -> Event:
    """A traceback without a time of its own came between the line above it and the last sign of life of its process."""
    if not event.attrs.get("inherited") or event.time_ns is None or proc is None or proc.last_ns is None or proc.last_ns <= event.time_ns:
        return event
    gap = proc.last_ns - event.time_ns
    ended = proc.ended_by is not None and proc.ended_by.event_id == event.event_id and not event.attrs.get("thread")
    return event.but(time_ns=proc.last_ns if ended else event.time_ns + gap // 2, time_error_ns=event.time_error_ns + gap // 2)


def place(event: Event, view: View) -> Event:
    """A derived event with its stage and step."""
    return _placed(event, view.procs.get(progress.key_of(event) or ()), view)


def _placed(event: Event, proc: Proc | None, view: View) -> Event:
    """An event without stage or step has those of the run's course, or else those its process, or the run, was in at that time."""
    event = stage.settle(paths.named(event), view)
    if event.attrs.get("between"):
        return event  # several stages are possible, and which one nobody says
    stage_, step = event.stage, event.step
    if not event.attrs.get("said_stage") and event.role in ROLE_STAGE and stage_ in (None, "train"):
        stage_ = ROLE_STAGE[event.role]
    if stage_ is None and event.kind in START_UP:
        stage_ = "init"
    if event.time_ns is not None and (stage_ is None or step is None):
        slack = event.time_ns + event.time_error_ns
        procs = [proc] if proc is not None and proc.steps else view.ranked if proc is None else []
        before = [s for p in procs for s, ns in p.steps if ns <= slack]
        step = step if step is not None else max(before, default=None) if proc is not None else step
        stage_ = stage_ or ("train" if before else "init" if any(p.steps for p in procs) else proc.last_stage if proc else None)
    return event if (stage_, step) == (event.stage, event.step) else event.but(stage=stage_, step=step)
