"""What came of a request that was played."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIMED_OUT = re.compile(r"time[d-]?[ -]?out", re.IGNORECASE)
HUNG, DIED, GIVEN_UP = "hung", "died", "given up"


@dataclass(frozen=True)
class Answer:
    """What came of it: `ok` with what the worker gave and its state after, `error` with its text, or `unfinished`: `how` says whether it hung, its process ended,
    or it was not waited for any longer since another of its gang had failed; None where it could not be asked at all.
    """

    outcome: str
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    after: Mapping[str, Any] = field(default_factory=dict)
    how: str | None = None


def timed_out(text: str | None) -> bool:
    """Whether an error says that somebody waited in vain.

    >>> timed_out("Request timeout after 20 s"), timed_out("Timed out waiting 8000ms for send"), timed_out("Server disconnected")
    (True, True, False)
    """
    return TIMED_OUT.search(text or "") is not None
