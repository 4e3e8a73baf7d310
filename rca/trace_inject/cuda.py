"""Two questions that CUDA's errors leave open: is this error a late report of an earlier one, and can this memory be shared with another process?"""

from __future__ import annotations

import sys
from typing import Any

from rca.trace_inject import guard, spans


def sync_point(name: str = "cuda_sync", **attributes: Any) -> bool:
    """Wait for the GPU within a span, so that an error of what was queued before is reported here and not in a later stage; False where it failed.

    The error itself is recorded, not raised: the trainer's next call on the device raises it. Without a GPU nothing happens.
    """
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return True
        with spans.span(name, **attributes):
            torch.cuda.synchronize()
        return True
    except Exception:  # recorded by the span
        return False


@guard.quiet()
def ipc_probe(tensor: Any) -> str | None:
    """Why a tensor's memory cannot be shared by CUDA IPC, or None where it can (or nobody can tell); recorded either way.

    Memory of expandable segments has no handle before torch 2.6 and on kernels without `pidfd_getfd`; a context that an earlier error broke shares nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor) or tensor.device.type != "cuda":
        return None
    reason = None
    try:
        tensor.untyped_storage()._share_cuda_()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:400]
    settings = str(torch.cuda.memory._snapshot().get("allocator_settings", {}).get("expandable_segments", "")) if hasattr(torch.cuda.memory, "_snapshot") else ""
    spans.record("event", "cuda.ipc_probe", {"ok": reason is None, "error": reason, "expandable_segments": settings or None, "device": tensor.device.index})
    return reason
