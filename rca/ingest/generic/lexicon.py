"""The vocabulary: words to concepts, and conjunctions of concepts to event kinds, as `words.toml` and `meanings.toml` hold them.

>>> (1, "storage") in at(("disk", "quota", "exceeded"), 0)
True
>>> (2, "no_space") in at(("disk", "quota", "exceeded"), 0), (2, "no_space") in at(("disk", "quota", "exceeded"), 1)
(True, True)
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ahocorasick_rs import AhoCorasick

from rca.errors import RcaError, did_you_mean
from rca.taxonomy import Kind

HERE = Path(__file__).parent
TIERS = ("maybe", "likely", "sure")
SPECIAL = ("negation", "calm", "prepared", "failing", "final", "advice")
PREFIX_MIN = 2
#: States that are said of healthy things as often: where they matter another word of trouble stands beside them.
VAGUE = frozenset({"against", "old", "cannot", "limit", "fault", "final", "failing"})
COMMON = frozenset({"not", "no", "does", "will", "that", "time", "times", "with", "from", "into", "been", "was", "were", "still", "ran", "run", "out", "but", "too", "use", "used", "more", "date", "async", "waiting", "period", "system", "now", "off", "most", "come", "came", "could", "cannot", "did", "state", "longer", "active", "push", "error", "two", "all", "one", "its", "the", "has", "have", "for", "reached", "access", "operation", "size", "visible", "complete", "event", "multi", "bytes", "least", "going", "over", "hundred", "sync", "decode", "pushed", "mounted", "signal", "ready", "syndrome", "named", "than", "none", "available", "counter", "hand", "scheduler", "stack", "took", "only", "usage", "score", "long", "back"})
ALONE = 5  # letters; a shorter word is found inside too many others
NUMBERED = {"errno", "os error", "exit code", "exitcode", "signal 9", "100 %", "100%", "xid", "0xffffffff", "http 40", "status 40", "-> 40"}


@dataclass(frozen=True)
class Meaning:
    """One conjunction: every group needs one of its concepts; `tier` counts up from `maybe` (1)."""

    kind: str
    tier: int
    groups: tuple[tuple[str, ...], ...]
    unless: frozenset[str]


@cache
def vocabulary() -> tuple[dict[str, list[tuple[tuple[str, ...], str]]], frozenset[str], frozenset[str]]:
    """First words with what may follow and the concept that makes; the names of subjects; those of states."""
    path = HERE / "words.toml"
    tables = tomllib.loads(path.read_text("utf-8"))
    named = {**tables["subject"], **tables["state"], **{name: tables[name]["words"] for name in SPECIAL}}
    starts: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for concept, entries in named.items():
        for entry in entries:
            first, *rest = entry.split()
            if entry != entry.lower():
                raise RcaError(f"not in lower case: `{entry}`", str(path))
            starts.setdefault(first, []).append((tuple(rest), concept))
    return starts, frozenset(tables["subject"]), frozenset(tables["state"])


@cache
def scanned() -> tuple[str, ...]:
    """What the scanner looks for in a file that is not decoded whole."""
    return tuple(tomllib.loads((HERE / "words.toml").read_text("utf-8"))["scan"]["words"])


@cache
def meanings() -> tuple[Meaning, ...]:
    """All conjunctions. Raises RcaError for a kind or concept that does not exist."""
    path = HERE / "meanings.toml"
    _, subjects, states = vocabulary()
    known = subjects | states | set(SPECIAL)
    found = []
    for kind, entry in tomllib.loads(path.read_text("utf-8")).items():
        if kind not in {k.value for k in Kind}:
            raise RcaError(f"unknown event kind: `{kind}`", str(path), did_you_mean(kind, [k.value for k in Kind]))
        unless = frozenset(entry.get("unless", ()))
        for tier, name in enumerate(TIERS, 1):
            for phrase in entry.get(name, ()):
                groups = tuple(tuple(group.split("|")) for group in phrase.split())
                for concept in {c for group in groups for c in group} | unless:
                    if concept not in known:
                        raise RcaError(f"unknown concept: `{concept}` of {kind}", str(path), did_you_mean(concept, known))
                found.append(Meaning(kind, tier, groups, unless - {c for group in groups for c in group}))
    return tuple(found)


@cache
def _alarms() -> tuple[AhoCorasick, tuple[tuple[bool, bool], ...]]:
    """A search for the states that a line without an error's level may be about, and which of its words must stand alone.

    Of a phrase the longest word is looked for that is no subject and not on the list of `common` words; else all of it.
    """
    starts, subjects, states = vocabulary()
    common = {w.rstrip("*") for first, ends in starts.items() for rest, concept in ends if concept in subjects for w in (first, *rest)} | COMMON
    wanted = {c for known in meanings() if known.tier > 1 for group in known.groups for c in group} & states - VAGUE
    entries = [(first, *rest) for first, ends in starts.items() for rest, concept in ends if concept in wanted]
    entries += [(first, *rest) for first, ends in starts.items() for rest, concept in ends if concept in ("failing", "final")]
    words = {max((w for w in entry if len(w) > 3 and w.rstrip("*") not in common), key=len, default=" ".join(entry)) for entry in entries if len(entry) > 1 or entry[0] not in COMMON} | NUMBERED
    ordered = sorted(w for w in words if f"{w}*" not in words)
    return AhoCorasick([w.rstrip("*") for w in ordered]), tuple((len(w) <= ALONE and w[0].isalpha(), len(w) <= ALONE and w[-1].isalpha()) for w in ordered)


def alarm(text: str) -> bool:
    """Whether a line in lower case holds a word of trouble."""
    search, alone = _alarms()
    for number, start, end in search.find_matches_as_indexes(text, overlapping=True):
        before, behind = alone[number]
        if not ((before and text[start - 1 : start].isalpha()) or (behind and text[end : end + 1].isalpha())):
            return True
    return False


@cache
def _starting(word: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Every entry whose first word this may be."""
    starts, _, _ = vocabulary()
    found = list(starts.get(word, ()))
    for length in range(PREFIX_MIN, len(word) + 1):
        found += starts.get(word[:length] + "*", ())
    return tuple(found)


def _is(word: str, wanted: str) -> bool:
    return word == wanted or (wanted.endswith("*") and word.startswith(wanted[:-1]))


def at(words: tuple[str, ...], index: int) -> list[tuple[int, str]]:
    """The concepts that begin at a word, with how many words each takes."""
    found = []
    for rest, concept in _starting(words[index]):
        end = index + 1 + len(rest)
        if end <= len(words) and all(_is(word, wanted) for word, wanted in zip(words[index + 1 : end], rest, strict=True)):
            found.append((1 + len(rest), concept))
    return found
