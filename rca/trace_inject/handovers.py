"""Hand-overs: what was sent and what arrived, told by both sides, so that rows lost on the way or a flipped byte are seen.

    handoff("batch", batch, to="train/0", key=f"batch-{step}")          # the sender
    handoff("batch", batch, key=f"batch-{step}", received=True)       # the receiver

Both records bear the same key; `rca analyze` compares them.
"""

from __future__ import annotations

import zlib
from typing import Any

from rca.trace_inject import context, guard, payload, recorder, spans

_waiting: list[tuple[str, dict[str, Any], str, payload.Checksum]] = []  # checksums of what lies on a GPU
WAITING_MAX = 256


@guard.quiet()
def handoff(name: str, value: Any = None, *, key: str | None = None, received: bool = False, to: str | None = None, sample: float = 1.0, checksum: bool = True, **attributes: Any) -> str | None:
    """Record a payload at its sender, or with `received` at its receiver; gives the key by which the two are matched.

    `value` may be a tensor, an array, bytes, or dictionaries and sequences of them. Without a `key`, name, step and request id of this place
    make one, the same on both sides if they travelled with the call. `sample` is the share of payloads that is looked at; the choice follows the key, so that
    both sides look at the same ones. `to` names the receiver, as in `train/3`.
    """
    if recorder.current() is None:
        return None
    settle()
    at = context.here()
    key = key if key is not None else "/".join(str(part) for part in (name, at.step, at.request) if part is not None)
    if sample < 1.0 and zlib.crc32(key.encode("utf-8", "replace")) / (1 << 32) >= sample:
        return key
    said = {
        "rca.handoff": key, "rca.side": "receiver" if received else "sender", "rca.count": payload.count_of(value), "rca.shape": payload.shape_of(value),
        "rca.dtype": payload.dtype_of(value), "rca.peer": to, **attributes,
    }  # fmt: skip
    if value is None or not checksum:
        spans.record("handoff", name, said, key)
        return key
    found = payload.Checksum(value)
    if found.done():
        spans.record("handoff", name, said | {"rca.checksum": found.text()}, key)
    elif len(_waiting) < WAITING_MAX:
        _waiting.append((name, said, key, found))
    else:
        spans.record("handoff", name, said, key)
    return key


@guard.quiet()
def settle(wait: bool = False) -> None:
    """Record the checksums that have arrived from a GPU; with `wait`, all of them. Called by every `handoff`."""
    while _waiting and (wait or _waiting[0][3].done()):
        name, said, key, found = _waiting.pop(0)
        spans.record("handoff", name, said | {"rca.checksum": found.text()}, key)
