"""What came of a request that was played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What came of it: `ok` with what the worker gave and its state after, `error` with its text, or `unfinished`: it hung, or its process ended."""

    outcome: str
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    after: Mapping[str, Any] = field(default_factory=dict)
