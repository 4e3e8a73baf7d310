"""The kind of event that a chain of exceptions is, once `blocks/chain.py` has said which of them speaks."""

from __future__ import annotations

import re

from rca.ingest import generic
from rca.ingest.blocks.traceback import Raised
from rca.ingest.generic import Sense
from rca.ingest.signatures import Signature
from rca.ingest.whose import whose_code
from rca.taxonomy import VICTIM_KINDS, Kind

TRANSPORT_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError")  # torch's own names for "the connection to somebody else broke"
#: Frames that hand device memory to another process; the call itself is native and leaves no frame, so its callers in torch count.
SHARES = re.compile(r"_?share_cuda_?|rebuild_cuda_tensor|_new_shared_cuda|ipc_?handle|multiprocessing/reductions\.py (?:reduce|rebuild)_(?:tensor|storage|cuda)", re.I)
REFUSED = re.compile(r"CUDA error: (?:invalid (?:argument|device pointer|device context|resource handle)|operation not supported|OS call failed)")
LOADER_KINDS = (Kind.EXCEPTION, Kind.CORRUPT_DATA, Kind.SHAPE_MISMATCH, Kind.LOADER_WORKER_EXCEPTION)

Hit = tuple[Signature, re.Match]


def kind_of(chain: list[Raised], chosen: Raised, hit: Hit | None, thread: str | None) -> Kind:
    """The kind of the event that the chain is."""
    kind = Kind(hit[0].kind) if hit else Kind.EXCEPTION
    if kind in LOADER_KINDS and in_worker(chain):
        return Kind.LOADER_WORKER_EXCEPTION
    if thread and kind is Kind.EXCEPTION:
        return Kind.THREAD_EXCEPTION
    if kind is Kind.EXCEPTION and chosen.type.rsplit(".", 1)[-1] in TRANSPORT_ERRORS:
        return Kind.PEER_LOST
    if kind in (Kind.DEVICE_ERROR, Kind.EXCEPTION) and REFUSED.search(chosen.text) and any(SHARES.search(f"{f.file} {f.function}") for r in chain for f in r.frames):
        return Kind.DEVICE_IPC
    return kind


def sensed(chain: list[Raised]) -> tuple[Raised, Sense] | None:
    """The exception of the chain whose plain words say what happened, where no signature knows any; a victim's words count last."""
    said = [(raised, sense) for raised in sorted(chain, key=lambda r: not r.worker) if (sense := generic.meaning(raised.text, "error"))]
    # A task that its own event loop cancelled was told so by the program, not by a scheduler.
    said = [(raised, sense) for raised, sense in said if not (sense.kind == Kind.SCHEDULER_STOP and raised.type.endswith("CancelledError"))]
    return next(((raised, sense) for raised, sense in said if sense.kind not in VICTIM_KINDS), said[0] if said else None)


def in_worker(chain: list[Raised]) -> bool:
    """Whether a worker process of a DataLoader raised it."""
    return any(raised.worker for raised in chain) or "DataLoader worker process" in chain[-1].message


def cut_off(frames: list, lines: list[tuple], headed: bool, alone: bool) -> tuple[str, tuple, dict] | None:
    """What is known of a traceback whose last line, the exception's own, is missing: text, address and attributes of an event.

    Frames without a heading are as often a stack that somebody printed: they count only where the file ends with them and says nothing else (`alone`).

    >>> frames = [("main.py", 9, "main"), ("/opt/verl/verl/workers/actor/dp_actor.py", 333, "update_policy")]
    >>> cut_off(frames, [((7, 90, "  File x"), "  File x", [])], True, False)[0]
    'an exception in update_policy (dp_actor.py:333); its own line is missing'
    >>> cut_off(frames[:1], [((7, 90, "x"), "x", [])], False, True)
    """
    if len(frames) < 2 or not (headed or alone):
        return None
    file, line, function = tuple(frames[-1])
    address = next((at for at, text, _ in reversed(lines) if file in text and str(line) in text), lines[-1][0])
    attrs = {"cut": True, "folded": any(" [repeated " in at[2] for at, _, _ in lines), "traceback": True, "inherited": True, "frames": [tuple(f) for f in frames][-12:], **whose_code(frames, "AssertionError")}
    return f"an exception in {function or 'a function'} ({file.rpartition('/')[2]}:{line}); its own line is missing", address, attrs


def without_shreds(events: list[dict]) -> list[dict]:
    """The events of a file without what is left of tracebacks whose lines Ray folded one by one: the first such rest, and only where no exception is named.

    >>> shred, named = {"attrs": {"folded": True}}, {"attrs": {"exception": "KeyError"}}
    >>> len(without_shreds([shred, {**shred}])), without_shreds([shred, named]) == [named]
    (1, True)
    """
    shreds = [e for e in events if e["attrs"].get("folded")]
    kept = [] if any(e["attrs"].get("exception") for e in events) else shreds[:1]
    return [e for e in events if not e["attrs"].get("folded") or any(e is k for k in kept)] if shreds else events
