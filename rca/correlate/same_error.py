"""What one print of an exception shows, its other prints mean too.

One process prints a traceback whole, the others (and the driver) only its last line: whose code raised it is known of all of them.
"""

from __future__ import annotations

from rca.model import Event
from rca.taxonomy import Kind

EXCEPTIONS = frozenset({Kind.EXCEPTION, Kind.ASSERTION})


def share(events: list[Event]) -> list[Event]:
    """The same events in the same order; `library` and `defect` (see `rca.ingest.whose`) of a traceback are those of all exceptions with its words."""
    shown = {_words(e): (e.attrs["library"], e.attrs.get("defect")) for e in events if e.kind in EXCEPTIONS and e.attrs.get("library") and e.attrs.get("frames")}
    return [_told(e, shown.get(_words(e))) if e.kind in EXCEPTIONS and not e.attrs.get("frames") else e for e in events] if shown else events


def _told(event: Event, whose: tuple[bool, bool] | None) -> Event:
    return event if whose is None else event.but(attrs={**event.attrs, "library": whose[0], "defect": whose[1]})


def _words(event: Event) -> str:
    """The first line of the message, without the packages before the name of the exception."""
    head, colon, rest = event.text.partition("\n")[0].partition(":")
    return head.rpartition(".")[2] + colon + rest
