"""Collectives: which group, which number in it, which operation, so that a rank that is missing, or calls something else, is known by its number.

    with collective("dp", "all_reduce", seq): ...
    wrap_distributed()          # the same for every collective of torch.distributed from here on
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from rca.trace_inject import guard, spans

WRAPPED = ("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "reduce",
           "reduce_scatter", "reduce_scatter_tensor", "scatter", "send", "recv", "isend", "irecv", "monitored_barrier")  # fmt: skip
_numbers: dict[str, int] = {}


def collective(group: str, op: str, seq: int | None = None, **attributes: Any) -> spans.Span:
    """A span for one collective. Without a `seq` the calls of a group are counted in this process."""
    if seq is None:
        seq = _numbers[group] = _numbers.get(group, -1) + 1
    return spans.Span(op, {"rca.collective.group": group, "rca.collective.seq": seq, "rca.collective.op": op, **attributes})


def _group_name(torch: Any, group: Any) -> str:
    try:
        return str(torch.distributed.distributed_c10d._get_process_group_name(group or torch.distributed.group.WORLD))
    except Exception:  # a private name that another release may lack
        return "default" if group is None else str(id(group))


@guard.quiet(0)
def wrap_distributed() -> int:
    """Record every collective of `torch.distributed` called through its module; gives how many functions were wrapped. Idempotent.

    What a library took by `from torch.distributed import all_reduce` before this call is not seen.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return 0
    done = 0
    for name in WRAPPED:
        function = getattr(torch.distributed, name, None)
        if function is None or getattr(function, "__rca__", False):
            continue
        setattr(torch.distributed, name, _wrapped(torch, name, function))
        done += 1
    return done


def _wrapped(torch: Any, name: str, function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        span = _span(torch, name, args, kwargs)
        if span is None:
            return function(*args, **kwargs)
        with span:
            return function(*args, **kwargs)

    wrapped.__rca__ = True  # type: ignore[attr-defined]
    return wrapped


@guard.quiet()
def _span(torch: Any, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    tensor = next((a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)), None)
    said = {} if tensor is None else {"rca.shape": str(list(tensor.shape)), "rca.dtype": str(tensor.dtype).removeprefix("torch.")}
    return collective(_group_name(torch, kwargs.get("group")), name, **said, **({"asynchronous": True} if kwargs.get("async_op") else {}))
