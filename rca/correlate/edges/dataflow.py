"""Hand-over of data: what a stage received too little of fails in the stage that uses it, often with a number that shows how much was missing."""

from __future__ import annotations

from rca.correlate.concern import follows, lasting, numbers, role_of
from rca.correlate.edges.callee_host import NET
from rca.correlate.view import View
from rca.model import Edge, Event
from rca.taxonomy import Kind

#: A worker's share did not arrive, or not whole.
SHORT = frozenset({
    Kind.PARTIAL_RESULT, Kind.PAYLOAD_DIFFERS, Kind.RPC_TIMEOUT, Kind.RPC_REFUSED, Kind.RPC_FAILED, Kind.ACTOR_SILENT, Kind.ACTOR_DIED, Kind.REQUEST_OPEN,
    Kind.KILLED_BY_KERNEL, Kind.KILLED, Kind.HOST_OOM,
})  # fmt: skip
MISFIT = frozenset({Kind.SHAPE_MISMATCH, Kind.BATCH_MISMATCH, Kind.PARTIAL_RESULT})
GIVERS = ("rollout", "reference", "reward", "critic")
ECHO = 40  # characters of a message by which it is known again where a report cuts it
ORDER = {stage: place for place, stage in enumerate(("weights_update", "rollout", "reference", "train"))}


def build(view: View) -> list[Edge]:
    """Edges from a share that did not arrive to the misfit of the same step."""
    misfits = [e for e in view.events if e.kind in MISFIT]
    givers: dict[str, set[str]] = {}
    for proc in view.procs.values():
        if proc.host and proc.role in GIVERS:
            givers.setdefault(proc.host, set()).add(proc.role)
    wire = [
        Edge(fault.event_id, misfit.event_id, "dataflow")
        for fault in view.events if fault.kind in NET and fault.host in givers and lasting(fault)
        for misfit in misfits if misfit.kind != Kind.PARTIAL_RESULT and misfit.attrs.get("short_rows") and _same_step(fault, misfit) and follows(fault, misfit)
    ]  # fmt: skip
    return wire + [
        Edge(short.event_id, misfit.event_id, "dataflow")
        for short in view.events if short.kind in SHORT and short.severity != "info" and not short.attrs.get("foreign")
        for misfit in misfits if misfit.event_id != short.event_id and _hands_over(short, misfit)
    ]  # fmt: skip


def _hands_over(short: Event, misfit: Event) -> bool:
    if echoes(short, misfit):
        return False
    if misfit.kind == Kind.PARTIAL_RESULT and (short.kind == Kind.PARTIAL_RESULT or short.kind == Kind.PAYLOAD_DIFFERS):
        return False
    if short.stage in ORDER and misfit.stage in ORDER and ORDER[short.stage] > ORDER[misfit.stage]:
        return False
    if short.stage not in GIVERS and role_of(short) not in GIVERS and short.kind not in (Kind.PARTIAL_RESULT, Kind.PAYLOAD_DIFFERS):
        return False
    if short.step is not None and misfit.step is not None and not -1 <= misfit.step - short.step <= 1:
        return False
    return follows(short, misfit)


def _same_step(fault: Event, misfit: Event) -> bool:
    return fault.step is None or misfit.step is None or 0 <= misfit.step - fault.step <= 1


def accounts(short: Event, misfit: Event) -> bool:
    """Whether the numbers of a misfit show what did not arrive: the same counts, the same difference, or the same part.

    >>> from rca.model import Event
    >>> accounts(Event("batch.partial", "70/128 rows decoded"), Event("data.shape_mismatch", "tensor a (256) must match tensor b (198)"))
    True
    """
    if echoes(short, misfit):
        return False
    given, met = numbers(short.text), numbers(misfit.text)
    if len(given & met - {0, 1}) >= 2:
        return True
    if any((a * d == b * c) for a in given for b in given for c in met for d in met if 1 < a < b and 1 < c < d and b < 100 * a):
        return True  # each of the ranks that share the batch got the same part of it
    gaps = {abs(a - b) for a in given for b in given} - {0}
    return bool({abs(a - b) for a in met for b in met} & gaps - {1} and max(met, default=0) > 2)


def echoes(report: Event, misfit: Event) -> bool:
    """Whether a caller's report only repeats what the misfit says: its numbers are the misfit's own and show nothing that did not arrive.

    >>> from rca.model import Event
    >>> error = Event("data.shape_mismatch", "RuntimeError: The expanded size of the tensor (8192) must match the existing size (8448)")
    >>> echoes(Event("rpc.failed", "forward at 10.0.0.3:25000 failed: RuntimeError: The expanded size of the tensor (8192) must match"), error)
    True
    >>> echoes(Event("rpc.failed", "forward at 10.0.0.3:25000 failed: 8192 of 8448 rows came"), error)
    False
    """
    said = misfit.text.partition("\n")[0].rpartition("Error: ")[2].strip()[:ECHO]
    return len(said) >= ECHO // 2 and said in report.text
