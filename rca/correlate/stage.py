"""Stage and step of an event: what its own process announces, then what was called, then the course of the run at that time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rca.correlate.course import ROLE_STAGES, Course
from rca.model import Event
from rca.taxonomy import Kind

if TYPE_CHECKING:
    from rca.correlate.view import View

SAVES = ("latest_recover_save", "periodic_recover_save")
#: What a looser word may stand for in the course.
FINER = {"save": SAVES, "load": ("recover", "init"), "train": SAVES, "recover": ("load",)}


#: How others say that a process ended. Where it was then, its own trace knows.
DEATHS = frozenset({Kind.KILLED, Kind.KILLED_BY_KERNEL, Kind.EXITED})


def settle(event: Event, view: View) -> Event:
    """The event with the stage and the step that it belongs to; in a run whose stages nobody tells only the failing call can name one."""
    if event.kind == Kind.STOP_FAILED:
        return event.but(stage="cleanup")  # whatever was announced last
    if event.kind in DEATHS and (inside := _died_in(event, view)) is not None:
        return event.but(stage=inside.stage or event.stage, step=event.step if inside.step is None else inside.step)
    course = view.course
    if not course.staged:
        called = event.attrs.get("called")
        return event.but(stage=called) if called is not None and not event.attrs.get("said_stage") else event
    if event.attrs.get("inherited") and event.time_ns is not None and _last_words(event, view):
        return _late(event, course)
    phase = course.at(event.time_ns, event.time_error_ns, event.role)
    stage = _stage(event, course, phase.stage if phase else None)
    step = event.step
    if (phase is not None and phase.step is not None and not event.attrs.get("said_step") and not _announced(event, course)) or (phase is not None and step is None):
        step = phase.step
    return event if (stage, step) == (event.stage, event.step) else event.but(stage=stage, step=step)


def _died_in(event: Event, view: View) -> Event | None:
    """The span that the process which ended had open at the end of its trace."""
    for inside in reversed(view.of(Kind.ENDS_INSIDE, Kind.REQUEST_OPEN)):  # of several threads the one that began last
        same = inside.pid == event.pid if None not in (inside.pid, event.pid) else inside.rank == event.rank is not None
        if same and inside.host == event.host and (inside.attempt or 0) == (event.attempt or 0) and (None in (inside.time_ns, event.time_ns) or inside.time_ns <= event.time_ns + event.time_error_ns):
            return inside
    return None


def _late(event: Event, course: Course) -> Event:
    """What a process wrote last of all, without a time of its own: it came between the line above it and the moment when the run broke off.

    It has a stage or a step only where that whole time has one: a worker may have died in a stage before the one that failed.
    """
    ahead = course.until_broken(event.time_ns)
    if not ahead or event.time_ns is None:
        return event
    end = max(p.end_ns or p.start_ns for p in ahead)
    half = max(0, end - event.time_ns) // 2
    stages, steps = {p.stage for p in ahead}, {p.step for p in ahead}
    stage = event.attrs.get("called") or (ahead[0].stage if len(stages) == 1 else None)
    step = event.step if event.attrs.get("said_step") else ahead[0].step if len(steps) == 1 else None
    return event.but(stage=stage, step=step, time_ns=event.time_ns + half, time_error_ns=event.time_error_ns + half, attrs={**event.attrs, "between": True})


def _last_words(event: Event, view: View) -> bool:
    writer = view.identity.writer(event.source, str(event.attrs.get("stream") or ""))
    seq = event.attrs.get("last_seq") or event.attrs.get("seq")
    return writer is not None and seq is not None and writer.info["lines"] <= seq


def _announced(event: Event, course: Course) -> bool:
    return (event.source or "", str(event.attrs.get("stream") or "")) in course.announced


def _stage(event: Event, course: Course, now: str | None) -> str | None:
    said = event.stage if event.attrs.get("said_stage") else None
    called = event.attrs.get("called")
    if said is not None and (_announced(event, course) or event.attrs.get("stage_key")):
        return said
    if called is not None:
        if now is not None and now in FINER.get(called, ()):
            return now
        return called
    if now is not None:
        return now
    if event.role in ROLE_STAGES and event.stage in (None, "train"):
        return ROLE_STAGES[event.role][0]
    return event.stage
