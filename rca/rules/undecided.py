"""What to say, and what to collect next, when the evidence does not reach."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from rca.model import Hypothesis, Missing, Run
from rca.taxonomy import Kind

GUESS_FROM = 0.25  # a guess below this is noise
INSIDE = (Kind.ENDS_INSIDE, Kind.REQUEST_OPEN)
LET_GO = "not written: "  # by the program itself; its file was read to the end
INSIDE_MAX = 3  # processes that are told
NOTHING = Missing("the end of every process's output", "torchrun --log-dir logs --redirects 3 --tee 3; srun -o %x-%j-%t.out; kubectl logs; for Ray: session_latest/logs")


@lru_cache
def speakers() -> tuple[dict[str, Any], ...]:
    """The entries of `undecided.toml`."""
    return tuple(tomllib.loads((Path(__file__).parent / "undecided.toml").read_text("utf-8"))["speaker"])


def undecided(run: Run, shown: tuple[Hypothesis, ...]) -> tuple[str, tuple[Missing, ...]]:
    """A sentence or two, and what would decide it."""
    if not run.readings:
        return "There are no files to read.", ()
    unread = [r for r in run.readings if r.format != "archive"] or list(run.readings)
    if all(r.reason and not r.reason.startswith(LET_GO) for r in unread):
        names = ", ".join(f"{r.source} ({r.reason})" for r in unread[:3]) + (f" and {len(unread) - 3} more" if len(unread) > 3 else "")
        packed = any("!/" in r.source for r in unread)
        return f"None of these files could be read: {names}.", (Missing("what is in the archive", "unpack it, and give the folder"),) if packed else ()
    if run.outcome == "unknown":
        inside, lack = ended_inside(run)
        return f"Nothing in these files says that the run failed, and nothing says that it finished.{inside}", (*lack, NOTHING)
    if run.outcome == "cut":
        return "Every log ends in the middle at the same moment and no line says why; collect the host's and the scheduler's record of that time.", ()
    kinds = {e.kind for e in run.events if not e.attrs.get("lived_on")}
    speaker = next((s for s in speakers() if not kinds.isdisjoint(s["kind"])), None)
    said = speaker["says"] if speaker else "" if shown else "No line here tells what broke first."
    guess = f" The best guess is {shown[0].cause} ({shown[0].confidence * 100:.0f} %)." if shown and shown[0].confidence >= GUESS_FROM else ""
    lack = tuple(Missing(c["what"], c["how"]) for c in speaker["collect"]) if speaker else (NOTHING,)
    inside, more = ended_inside(run)
    return f"The run failed, but these files do not decide the cause. {said}{guess}{inside}".strip().replace(".  ", ". "), (*more, *lack)


def ended_inside(run: Run) -> tuple[str, tuple[Missing, ...]]:
    """Where the traces of processes end that wrote the start of a span and no end: each died there or is there still. A sentence with a space before it, and what would tell."""
    found = sorted((e for e in run.events if e.kind in INSIDE), key=lambda e: (e.time_ns is None, -(e.time_ns or 0), e.rank or 0))
    if not found:
        return "", ()
    told = []
    for event in found[:INSIDE_MAX]:
        who = f"rank {event.rank}" if event.rank is not None else event.actor or "a process"
        who += (f" (pid {event.pid}" + (f" on {event.host})" if event.host else ")")) if event.pid is not None else f" on {event.host}" if event.host else ""
        where = ", ".join(str(w) for w in (event.stage, f"step {event.step}" if event.step is not None else None) if w)
        told.append(f"`{event.attrs.get('op') or event.text}`" + (f" ({where})" if where else "") + f" of {who}")
    more = f", and {len(found) - INSIDE_MAX} more" if len(found) > INSIDE_MAX else ""
    pids = sorted({e.pid for e in found[:INSIDE_MAX] if e.pid is not None})
    how = f"ps -p {','.join(map(str, pids)) or 'PID'}; if it is gone, the exit code or signal that its launcher saw, and dmesg -T | grep -iE 'killed|oom' of its host; if not, py-spy dump --pid PID"
    return f" Open where the trace ends, so that the process died there or still is: {'; '.join(told)}{more}.", (Missing("whether the process with the open span still runs, or how it ended", how),)
