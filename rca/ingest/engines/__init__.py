"""Search bytes for many literals at once: one interface, two engines, the same answers.

A matcher is made by `matcher(literals)`. Literals match without regard to ASCII case, and overlapping matches are all
reported. It has:

* `literals`: the literals as given; a hit names one by its index.
* `longest`: the length of the longest literal, in bytes.
* `scan(view, on_hit)`: call `on_hit(index, 0, end, 0, None)` for every match in a bytes-like `view`, by ascending `end`
  (the offset just behind the match). The arguments are those of a Hyperscan callback, so that no layer lies between.
* `once`: indexes of literals for which the first match of each `scan` call is enough (step markers: thousands a chunk).
* `without(indexes)`: the same matcher, with the same numbering, deaf to some literals.

A matcher serves one thread of one process at a time; it may be made before a fork and used by both sides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Protocol

OnHit = Callable[[int, int, int, int, object], object]
ENGINES = ("hyperscan", "aho")  # fastest first; the second costs about four times the first
NEEDS = {"hyperscan": "hyperscan", "aho": "ahocorasick_rs"}


class Matcher(Protocol):
    """What both engines offer, see the module."""

    literals: tuple[bytes, ...]
    once: frozenset[int]
    longest: int

    def scan(self, view: bytes | bytearray | memoryview, on_hit: OnHit) -> None: ...
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
