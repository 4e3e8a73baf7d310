"""A process of the job that the kernel did not let go: threads of it in uninterruptible sleep (state D) for seconds, without having run in between.

One sample is an ordinary disk access. What it was doing meanwhile, an open save tells: then the event has the save's path, stage and step.

Source: proc(5) (state D), rca/trace_inject/sampler/processes.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from rca.correlate.detectors import open_save
from rca.correlate.identity import Writer
from rca.correlate.tracks import Point, Track, derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

SECONDS = 3.0  # a busy disk answers sooner
LIVED_NS = 5 * 10**9  # after it was let go: before, nobody can tell it from one that was let go to be killed
BEGAN_NS = 2 * 10**9  # a save may be announced so much later than its thread was seen asleep: samples are taken now and then


def detect(view: View) -> list[Event]:
    """One event for each time that a process was stuck."""
    known = tracks(view)
    found = []
    for track in known.of("proc.stuck_threads"):
        for before, run, after in _runs(track):
            if known.inside(track, run[0]):
                found.append(saving(_event(track, before, run, after, view), view))
    return found


def saving(event: Event, view: View) -> Event:
    """The event with the path, stage and step of the save that its process had open; as it is where there is none."""
    save = _save(event, [*view.of(Kind.SAVE_OPEN), *open_save.detect(view)])
    if save is None:
        return event
    attrs = {**event.attrs, "saving": True, "stage_key": True, "said_stage": True, "said_step": save.step is not None}
    return event.but(path=save.path, stage=save.stage, step=save.step, role=event.role or save.role, also=(*event.also, *save.records), attrs=attrs)


def _runs(track: Track) -> Iterator[tuple[Point | None, list[Point], Point | None]]:
    """Samples in a row in which a thread was stuck, for as many seconds as count, with the calm ones around them."""
    run: list[Point] = []
    before: Point | None = None
    for point in (*track.points, None):
        if point is not None and point.value >= 1:
            run.append(point)
            continue
        if len(run) > 1 and _seconds(run) >= SECONDS:
            yield before, run, point
        run, before = [], point


def _seconds(run: list[Point]) -> float:
    first, last = run[0].time_ns, run[-1].time_ns
    return (last - first) / 1e9 if first is not None and last is not None else 0.0


def _event(track: Track, before: Point | None, run: list[Point], after: Point | None, view: View) -> Event:
    pid = _number(track.about.get("pid"))
    writer = next((w for w in view.identity.writers if w.pid == pid is not None and track.host in (None, w.host)), None)
    rank = view.identity.of_pid(view.identity.rank_of_pid, track.host, pid)
    count, waits = int(max(p.value for p in run)), _waits(track, run, view)
    what = f"{count} thread(s) of process {pid} on {track.host or 'a host'} stuck in the kernel (state D) for {_seconds(run):.0f} s" + (f", in {', '.join(waits)}" if waits else "")
    place = {} if writer is None else {"rank": writer.rank, "role": writer.role, "actor": writer.actor, "attempt": writer.attempt}
    return derived(Kind.UNINTERRUPTIBLE, what, track, run[0], before, run[-1], pid=pid, **({"rank": rank} | place), attrs={
        "threads": count, "seconds": round(_seconds(run), 1), "wchan": waits[0] if waits else None, "recovered": after is not None and _lived(after, track, writer, view),
    })  # fmt: skip


def _save(event: Event, saves: list[Event]) -> Event | None:
    """The open save of the same process that began last before it was stuck."""
    mine = [s for s in saves if s.time_ns is not None and event.time_ns is not None and s.time_ns <= event.time_ns + event.time_error_ns + BEGAN_NS and _same(s, event)]
    return max(mine, key=lambda s: s.time_ns or 0, default=None)


def _same(save: Event, event: Event) -> bool:
    if save.host is not None and event.host is not None and save.host != event.host:
        return False
    if save.pid is not None and event.pid is not None:
        return save.pid == event.pid
    return save.rank is not None and save.rank == event.rank


def _waits(track: Track, run: list[Point], view: View) -> list[str]:
    """The functions of the kernel in which its threads waited meanwhile, the most usual first."""
    first, last = run[0].time_ns or 0, run[-1].time_ns or 0
    seen: dict[str, float] = {}
    for other in tracks(view).of("proc.stuck_in"):
        if other.host == track.host and other.about.get("pid") == track.about.get("pid") and other.about.get("wchan"):
            count = max((p.value for p in other.points if p.time_ns is not None and first <= p.time_ns <= last), default=0)
            if count:
                seen[str(other.about["wchan"])] = count
    return sorted(seen, key=lambda name: (-seen[name], name))[:3]


def _lived(after: Point, track: Track, writer: Writer | None, view: View) -> bool:
    """Whether the process was heard of long after it had been let go."""
    if after.time_ns is None:
        return False
    own = [t.points[-1].time_ns for t in tracks(view) if t.host == track.host and t.about.get("pid") == track.about.get("pid")]
    last = writer.info.get("last") if writer is not None else None
    own.append(view.clock.resolve(last[0], writer.host, bool(writer.reading.facts.get("zoned"))) if writer is not None and last else None)
    return max((ns for ns in own if ns is not None), default=0) > after.time_ns + LIVED_NS


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else None
