"""The rank that hangs prints nothing: find who was still alive when the others had waited in vain.

Ranks that time out are victims. Of the rest, those that nothing ended on their own - the launcher stopped them, or their log just ends -
were waited for. When every rank timed out, nobody is missing, and the fault lies between them.
"""

from __future__ import annotations

from rca.correlate.progress import WAITED, Proc
from rca.correlate.roles import world_of
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

MOST = 64  # silent ranks that are looked at one by one; where more are silent, silence names nobody
TOGETHER_NS = 30 * 10**9  # members of one collective give up within this time of each other
LOGGING_NS = 2_500_000_000  # a rank that wrote within this time of the others' end was busy, not stuck


def detect(view: View) -> list[Event]:
    """`rank.silent` for each rank that was waited for, or one `collective.all_waited`."""
    found: list[Event] = []
    for number in range(view.identity.attempts):
        procs = [p for p in view.attempt(number) if p.rank is not None and not p.lent]
        waiting = [p for p in procs if _waited(p)]
        if not waiting or _in_another_group(waiting, view):
            continue
        # Ray folds lines that several workers print alike: on the driver's console the silence of one says nothing.
        alive = [p for p in procs if p.alive and not _waited(p) and not (p.writers and all(w.forwarded for w in p.writers))]
        known = {p.rank for p in procs}
        whole = view.identity.world is None or len(known) >= view.identity.world
        if alive:
            end = min((t for p in waiting if (t := _gave_up(p)) is not None), default=None)
            most = max((p.last_step for p in procs if p.last_step is not None), default=None)
            silent = [_silent(p, end, most, waiting=len(waiting), alone=len(alive) == 1) for p in alive]
            found += sorted(sorted(silent, key=_likely)[:MOST], key=lambda e: e.rank or 0)
        elif whole and len(waiting) == len(procs) and len(procs) > 1:
            found.append(_everyone(waiting))
    return found


def _in_another_group(waiting: list[Proc], view: View) -> bool:
    """Whether all that was waited for was the collective of the weights, with workers of another role: not every rank of this world takes part in it."""
    waits = view.of(*WAITED)
    ranks = {p.rank for p in waiting}
    own = [e for e in waits if e.rank in ranks]
    others = [e for e in waits if e.rank is None and world_of(e.role) and e.time_ns is not None]
    if not own or any(e.stage != "weights_update" for e in own):
        return False
    return any(abs(e.time_ns - t) <= TOGETHER_NS for e in others for p in waiting if (t := _gave_up(p)) is not None)


def _waited(proc: Proc) -> bool:
    return proc.waits or (proc.ended_by is None and any(e.kind in WAITED for e in proc.events))


def _gave_up(proc: Proc) -> int | None:
    """When it stopped waiting: by its own clock, else when the launcher saw it end; the line above an undated traceback is too early."""
    times = [e for e in proc.events if e.kind in WAITED and e.time_ns is not None]
    own = [e.time_ns for e in times if not e.attrs.get("inherited")]
    seen = [proc.exit.time_ns] if proc.exit is not None and proc.exit.time_ns is not None and not proc.exit.attrs.get("inherited") else []
    return min(own or seen or [e.time_ns for e in times], default=None)


def _likely(event: Event) -> tuple:
    """Sorts first what hung most likely: a rank that did not write on, that is furthest behind, that was quiet longest."""
    return (bool(event.attrs["busy"]), -event.attrs["behind"], -(event.attrs["quiet_s"] or 0.0), event.rank)


def _silent(proc: Proc, end: int | None, most: int | None, *, waiting: int, alone: bool) -> Event:
    """`rank.silent` of one process; the others gave up at `end`, and the furthest was at step `most`."""
    busy = end is not None and proc.last_ns is not None and end - proc.last_ns <= LOGGING_NS and _spread(proc)
    behind = most - proc.last_step if most is not None and proc.last_step is not None else 0
    last = proc.last
    quiet_s = round((end - proc.last_ns) / 1e9, 1) if end is not None and proc.last_ns is not None else None
    text = f"rank {proc.rank} ended nothing and reported nothing while {waiting} rank(s) waited for it"
    return Event(
        Kind.RANK_SILENT, text, time_ns=proc.last_ns, host=proc.host, role=proc.role, actor=proc.actor, rank=proc.rank,
        local_rank=proc.local_rank, pid=next(iter(sorted(proc.pids)), None), stage=proc.last_stage, step=proc.last_step, attempt=proc.attempt,
        attrs={"busy": busy, "behind": behind, "alone": alone, "quiet_s": quiet_s, "waiting": waiting},
        also=(last,) if last else (),
    )  # fmt: skip


def _spread(proc: Proc) -> bool:
    """Whether the rank kept writing all along, and not only when it was torn down."""
    return proc.last_ns is not None and proc.first_ns is not None and proc.last_ns > proc.first_ns


def _everyone(waiting: list[Proc]) -> Event:
    first = min((e for p in waiting for e in p.events if e.kind in WAITED), key=lambda e: (e.time_ns or 2**62, e.rank or 0))
    hosts = sorted({p.host for p in waiting if p.host})
    steps = {p.last_step for p in waiting}
    attrs = {"hosts": len(hosts), "same_step": len(steps) == 1, "ranks": len(waiting)}
    return first.but(
        kind=Kind.ALL_WAITED, text=f"all {len(waiting)} ranks on {len(hosts) or 1} host(s) waited for each other", severity="error",
        attrs=attrs, source=None, also=first.records, event_id=-1, ranks=tuple(p.rank for p in waiting if p.rank is not None),
    )  # fmt: skip
