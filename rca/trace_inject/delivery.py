"""Events that must arrive: numbered by their sender, acknowledged by each receiver, sent again until they are.

    event = emit_event("switch_to_train", receivers=["train/0", "train/1"])
    deliver(event, lambda name: post(url_of[name], {"event": event}))        # until each has taken it
    ack_event(event)                                                         # in each receiver, once it has acted
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from rca.trace_inject import guard, identity, recorder, spans

_numbers = count(1)


def me() -> str:
    """This process as a receiver is called: `train/3`."""
    journal = recorder.current()
    about = journal.about if journal is not None else identity.describe()
    rank = about.get("rank")
    return f"{about.get('role', 'process')}{'' if rank is None else f'/{rank}'}"


def emit_event(name: str, receivers: Iterable[str] | int | None = None, **attributes: Any) -> str:
    """Record that an event is sent, and to whom (their names, or how many); gives its number, which goes with it and into `ack_event`."""
    number = f"{name}-{os.getpid()}-{next(_numbers)}"
    _emit(name, number, receivers, attributes)
    return number


@guard.quiet()
def _emit(name: str, number: str, receivers: Iterable[str] | int | None, attributes: dict[str, Any]) -> None:
    said = receivers if isinstance(receivers, int) or receivers is None else [str(r) for r in receivers]
    spans.record("event", name, {"rca.event": number, "rca.receivers": said, **attributes}, number)


@guard.quiet()
def ack_event(number: str, receiver: str | None = None, **attributes: Any) -> None:
    """Record that an event arrived here and was acted on."""
    name = number.rsplit("-", 2)[0]
    spans.record("ack", name, {"rca.event": number, "worker": receiver or me(), **attributes}, number)


def deliver(number: str, send: Callable[[str], Any], receivers: Iterable[str], *, tries: int = 3, pause_s: float = 0.5) -> list[str]:
    """Call `send(receiver)` for each, again for those that raise; gives those that never took it. Each try is a span; nothing is raised."""
    left = [str(r) for r in receivers]
    for attempt in range(tries):
        failed = []
        for receiver in left:
            try:
                with spans.span("deliver", **{"rca.event": number, "rca.peer": receiver, "rca.retry": attempt}):
                    send(receiver)
            except Exception:
                failed.append(receiver)
        left = failed
        if not left:
            break
        if attempt + 1 < tries:
            time.sleep(pause_s)
    return left
