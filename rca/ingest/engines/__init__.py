"""Search bytes for many literals at once: one interface, two engines, the same answers.

A matcher is made by `matcher(literals)`. Literals match without regard to ASCII case, and overlapping matches are all
found. It has:

* `scan(buffer, low, high)`: `{index: ends}` of all matches within `buffer[low:high]`. `index` numbers the literal; `ends`
  ascend and count from `low`, each just behind its match. The dictionary is the caller's.
* `literals`, and `longest`: the length of the longest one.
* `once`: indexes of literals for which the first match of each `scan` is enough (step markers: thousands a chunk).
* `without(indexes)`: the same matcher with the same numbering, deaf to some literals; made once per set and kept in `narrower`.
* `spent`: how many hits of a literal were dear so far, by index; kept by whoever scans.

A matcher serves one thread of one process at a time; it may be made before a fork and used on both sides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Protocol

ENGINES = ("hyperscan", "aho")  # fastest first
NEEDS = {"hyperscan": "hyperscan", "aho": "ahocorasick_rs"}


class Matcher(Protocol):
    """What both engines offer, see the module."""

    literals: tuple[bytes, ...]
    once: frozenset[int]
    longest: int
    narrower: dict[frozenset[int], Any]
    spent: dict[int, int]

    def scan(self, buffer: bytes | bytearray, low: int, high: int) -> dict[int, list[int]]: ...
    def without(self, muted: frozenset[int]) -> Matcher: ...


def matcher(literals: Iterable[bytes], once: Iterable[int] = ()) -> Matcher:
    """Compile `literals` with Hyperscan, or with Aho-Corasick where that is missing (`RCA_ENGINE=aho` forces it)."""
    literals, once = tuple(literals), frozenset(once)
    for literal in literals:
        if not literal or b"\0" in literal:  # Hyperscan's binding takes C strings
            raise ValueError(f"a literal must hold at least one byte and no NUL: {literal!r}")
    forced = os.environ.get("RCA_ENGINE")
    for name in (forced,) if forced in ENGINES else ENGINES:
        try:
            module = import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != NEEDS[name]:
                raise
            continue
        return module.Matcher(literals, once)
    from rca.errors import RcaError

    raise RcaError("no search engine is installed", hint="install one: `pip install hyperscan` or `pip install ahocorasick_rs`")
