"""What a detector or an edge builder looks at: everything correlate knows so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rca.correlate import settings
from rca.correlate.clock import Clock
from rca.correlate.course import NOTHING, Course
from rca.correlate.identity import Identity
from rca.correlate.progress import Proc
from rca.correlate.spans import Spans
from rca.model import Event, Reading


@dataclass(frozen=True)
class View:
    """The folded events, the processes and the clock of one run."""

    readings: list[Reading]
    identity: Identity
    clock: Clock
    events: list[Event]
    procs: dict[tuple, Proc]
    course: Course = NOTHING
    spans: Spans = field(default_factory=Spans)  # empty where no file holds traces

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the run was configured to do: weight sync, colocation, time-outs, sizes; empty where no file says."""
        return settings.merged(self.identity)

    def of(self, *kinds: str) -> list[Event]:
        """The events of some kinds, in time order."""
        return [e for e in self.events if e.kind in kinds]

    def attempt(self, number: int) -> list[Proc]:
        """The processes of one attempt."""
        return [p for p in self.procs.values() if p.attempt == number]

    @property
    def ranked(self) -> list[Proc]:
        """Processes that have a rank."""
        return [p for p in self.procs.values() if p.rank is not None and not p.lent]
