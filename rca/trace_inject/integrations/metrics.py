"""Numbers of training: what a trainer logs, as one event; and the step at which a loss first was no number, which logs that average or filter do not show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rca.trace_inject import guard, spans

MOST = 40  # numbers of one event
NAMES_MAX = 80


@guard.quiet()
def record(logs: Mapping[str, Any], **more: Any) -> None:
    """An event `metrics` with the numbers of a trainer's log line; texts and structures are left out."""
    numbers = {str(name)[:NAMES_MAX]: found for name, value in logs.items() if (found := number(value)) is not None}
    if numbers:
        spans.record("event", "metrics", dict([*numbers.items()][:MOST]) | more)


def number(value: Any) -> float | str | None:
    """A number as a record has it: `nan` and `inf` as words, because JSON has none. None for what is no number, or lies on a GPU where asking would wait."""
    if hasattr(value, "detach"):
        if getattr(value, "numel", lambda: 0)() != 1 or value.device.type != "cpu":
            return None
        value = value.detach().item()
    if isinstance(value, str):  # some trainers round numbers to texts before they log them
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else str(float(value))


class Onset:
    """Watches the loss of each batch for the first that is no number; later ones are told again only after a good one.

    On a GPU the answer is fetched without waiting, and told when a later batch asks.
    """

    def __init__(self) -> None:
        self.bad = False
        self._waiting: list[tuple[Any, Any, int | None]] = []

    @guard.quiet()
    def take(self, loss: Any, step: int | None) -> None:
        """Look at one loss: a number, or a tensor on any device."""
        if isinstance(loss, dict):
            loss = loss.get("loss")
        if loss is None:
            return
        if hasattr(loss, "detach") and loss.device.type == "cuda":
            self._fetch(loss.detach(), step)
        elif hasattr(loss, "detach"):
            self._seen(float(loss.detach().float().mean()), step)
        elif isinstance(loss, int | float):
            self._seen(float(loss), step)

    def _fetch(self, loss: Any, step: int | None) -> None:
        import sys

        cuda = sys.modules["torch"].cuda
        while self._waiting and self._waiting[0][1].query():
            host, _, of = self._waiting.pop(0)
            self._seen(float(host), of)
        if len(self._waiting) < 64:
            host = loss.float().mean().to("cpu", non_blocking=True)
            event = cuda.Event()
            event.record()
            self._waiting.append((host, event, step))

    def _seen(self, value: float, step: int | None) -> None:
        bad = not math.isfinite(value)
        if bad and not self.bad:
            spans.record("event", "metrics", {"loss": str(value), "rca.step": step, "rca.onset": True})
        self.bad = bad
