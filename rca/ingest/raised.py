"""The kind of event that a chain of exceptions is, once `blocks/chain.py` has said which of them speaks."""

from __future__ import annotations

import re

from rca.ingest import generic
from rca.ingest.blocks.traceback import Raised
from rca.ingest.generic import Sense
from rca.ingest.signatures import Signature
from rca.taxonomy import VICTIM_KINDS, Kind

TRANSPORT_ERRORS = ("DistBackendError", "DistNetworkError", "DistStoreError")  # torch's own names for "the connection to somebody else broke"
SHARES = re.compile(r"_share_cuda_|rebuild_cuda_tensor|_new_shared_cuda|ipc_?handle", re.I)
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
    if kind in (Kind.DEVICE_ERROR, Kind.EXCEPTION) and "CUDA error: invalid" in chosen.text and any(SHARES.search(f.function) for r in chain for f in r.frames):
        return Kind.DEVICE_IPC
    return kind


def sensed(chain: list[Raised]) -> tuple[Raised, Sense] | None:
    """The exception of the chain whose plain words say what happened, where no signature knows any; a victim's words count last."""
    said = [(raised, sense) for raised in sorted(chain, key=lambda r: not r.worker) if (sense := generic.meaning(raised.text, "error"))]
    return next(((raised, sense) for raised, sense in said if sense.kind not in VICTIM_KINDS), said[0] if said else None)


def in_worker(chain: list[Raised]) -> bool:
    """Whether a worker process of a DataLoader raised it."""
    return any(raised.worker for raised in chain) or "DataLoader worker process" in chain[-1].message
