"""What one print of an exception shows, its other prints mean too.

One process prints a traceback whole, the others (and the driver) only its last line: whose code raised it, and which call a device refused, is
known of all of them.
"""

from __future__ import annotations

import re

from rca.model import Event
from rca.taxonomy import Kind

EXCEPTIONS = frozenset({Kind.EXCEPTION, Kind.ASSERTION})
REFUSAL = re.compile(r"CUDA error: [a-z][a-z ]{2,60}")


def share(events: list[Event]) -> list[Event]:
    """The same events in the same order.

    `library` and `defect` (see `rca.ingest.whose`) of a traceback are those of all exceptions with its words; a device error whose call only the
    worker's own traceback shows is of that traceback's kind wherever a caller repeats it.
    """
    shown = {_words(e): (e.attrs["library"], e.attrs.get("defect")) for e in events if e.kind in EXCEPTIONS and e.attrs.get("library") and e.attrs.get("frames")}
    shared = {_refusal(e) for e in events if e.kind == Kind.DEVICE_IPC and e.attrs.get("frames")} - {None}
    if shared:
        events = [e.but(kind=str(Kind.DEVICE_IPC)) if e.kind == Kind.DEVICE_ERROR and not e.attrs.get("frames") and _refusal(e) in shared else e for e in events]
    return [_told(e, shown.get(_words(e))) if e.kind in EXCEPTIONS and not e.attrs.get("frames") else e for e in events] if shown else events


def _refusal(event: Event) -> str | None:
    found = REFUSAL.search(event.text)
    return found[0].strip() if found else None


def _told(event: Event, whose: tuple[bool, bool] | None) -> Event:
    return event if whose is None else event.but(attrs={**event.attrs, "library": whose[0], "defect": whose[1]})


def _words(event: Event) -> str:
    """The first line of the message, without the packages before the name of the exception."""
    head, colon, rest = event.text.partition("\n")[0].partition(":")
    return head.rpartition(".")[2] + colon + rest
