"""What a line that no signature knows speaks of, from its plain words.

A signature knows a phrase; here only the vocabulary is known: what a line is about (a disk, a GPU, a peer) and what state that is in
(full, gone, refused). A kind found so is worth less than a signature's, and lines that a signature takes never come here.

>>> meaning("ckpt-writer: volume /mnt/exp is at 100 %, refusing to open new shard").kind
'storage.no_space'
>>> meaning("fsck: checking for corrupt files: 0 found") is meaning("save failed once, second attempt succeeded") is None
True
>>> meaning("acme.engine.DeviceMemoryExhausted: activation buffer does not fit on gpu 0", level="error").kind
'device.out_of_memory'

`words.toml` holds the words, `meanings.toml` what they mean together, `numbers.toml` the numbers that stand for words.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from rca.ingest.formats import Line
from rca.ingest.formats.words import level as words_of_level
from rca.ingest.generic import lexicon
from rca.ingest.generic.text import alike
from rca.ingest.generic.text import words as split
from rca.ingest.generic.zh import english
from rca.taxonomy import Kind

scanned = lexicon.scanned

#: What `warnings.warn` shows: whoever calls it goes on.
WARNED = re.compile(r"\S{1,400}\.py:\d{1,7}: (?:\w{1,60}\.){0,8}\w{0,60}Warning: ")
MOST = 200  # events of one file that rest on plain words
NEAR = 24  # words between the first and the last of a conjunction, at most
NEGATED = 2  # words before a state in which a negation counts
NEEDED = {"debug": 3, "info": 3, None: 2, "warning": 2, "error": 1, "critical": 1}
#: No sentences of their own: bodies of messages, metrics, tables, code, settings of other programs, stack frames.
TABLE = re.compile(r"^(?:  |\t)|\S {2,}: |^\s*(?:(?:raise|return|assert|def|class|except|import|from|elif|if|for|while|self\.\w+) |#|frame #|\{|\[<|@ |[\w.]+(?:\{|, ?[\w.]+, ?[\w.]+,))|\+0x[0-9a-f]+|(?:\b\w+_\w+_\w+ \d+ ){2}|(?:\b[a-z]+(?:_[a-z]+)+[ ,|]+){2}")
LEVEL = re.compile(r"(?<![\w-])(DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)(?![\w-])")
STOPS = frozenset(";,.|")
AT = frozenset({"on", "at", "in", "gpu", "rank", "step", "node", "device", "card", "port", "worker", "link", "to", "from", "of", "code", "cuda"})
NO = frozenset({"no", "0", "zero", "without", "none", "never", "neither", "nor", "non"})
COUNTS = frozenset({("number", "of"), ("count", "of"), ("num",), ("total",), ("counter",), ("max",), ("min",)})  # "number of nan iterations" names a count
VERBS = frozenset({"could", "can", "did", "does", "do", "would", "will", "was", "may", "must"})


class Sense(NamedTuple):
    """A kind and how plainly the line says it, from 1 (only an error line would mean that) to 3."""

    kind: str
    tier: int
    score: float


class Guesses:
    """Counts the guesses of one file; past `MOST` of them more tell nothing new."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, found: Sense | None, otherwise: Kind) -> tuple[Kind, dict[str, int]]:
        """The kind that plain words give to what no signature knows, and the mark that it is no more than that."""
        if found is None or self.count >= MOST:
            return otherwise, {}
        self.count += 1
        return Kind(found.kind), {"generic": found.tier}


#: A frame of a stack that the kernel prints: the names of its functions are no statement.
KERNEL_FRAME = re.compile(r"\s*(?:\? )?[\w.]{2,80}\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}")


def sense(line: Line, raw: str) -> Sense | None:
    """What a parsed line states, whoever wrote it; None for nearly all lines, at the price of one search."""
    kernel = line.shape == "kernel"  # its own phrases are known; what is left is noise, and its levels mean little
    needed = 3 if kernel else NEEDED[line.level]
    if needed > 1 and ((line.step is not None and needed > 2) or not lexicon.alarm((raw if raw.isascii() else english(raw)).lower())):
        return None
    if KERNEL_FRAME.match(line.text):
        return None
    text = alike(line.text)
    if needed > 1 and (_is_table(text) or WARNED.match(text)):
        return None
    if kernel:
        return _meaning(text, "info")
    if line.shape == "json":
        return meaning(raw, line.level)  # the fields beside the message say what it is about
    named = line.logger and line.logger not in line.text
    return _meaning(f"{line.logger}: {text}" if named else text, line.level)


def meaning(text: str, level: str | None = None) -> Sense | None:
    """The kind of event that a line states in words of its own, or None. `level` is that of `Line`; an exception is an `error`."""
    return _meaning(alike(text), level)


@lru_cache(maxsize=512)
def _is_table(text: str) -> bool:
    return TABLE.search(text) is not None


@lru_cache(maxsize=512)
def _meaning(text: str, level: str | None) -> Sense | None:
    if level is None and (said := LEVEL.search(text, 0, 60)):
        level = words_of_level(said[1])
    pairs = _without_advice(split(text))
    found, spoken = _concepts(pairs)
    if "calm" in found and "final" not in found:
        return None
    if NEEDED[level] > 1 and "prepared" in found and "final" not in found and "failing" not in found:
        return None
    needed = NEEDED[level]
    if level is None and not found.keys().isdisjoint(("failing", "final")):
        needed = 1  # it says itself that something failed
    best = None
    for known in lexicon.meanings():
        if known.tier < needed or not known.unless.isdisjoint(spoken):
            continue
        spots = [sorted({spot for concept in group for spot in found.get(concept, ())}) for group in known.groups]
        if not all(spots) or (span := _span(spots)) > NEAR:
            continue
        score = known.tier + 0.5 * (len(spots) - 1) - 0.03 * span - 0.01 * min(s[0] for s in spots)
        if best is None or score > best.score:
            best = Sense(known.kind, known.tier, round(score, 3))
    return best


def _span(spots: list[list[int]]) -> int:
    """The narrowest width that holds one spot of each group."""
    return min(max(picked) - min(picked) for first in spots[0] for picked in [[first, *(min(other, key=lambda s: abs(s - first)) for other in spots[1:])]])


def _concepts(pairs: list[tuple[str, bool]]) -> tuple[dict[str, list[int]], set[str]]:
    """Where each concept stands, and those that a sentence speaks of, not only the name of a setting.

    A state that is negated, of no amount, or only the name of a setting does not count at all.
    """
    _, subjects, states = lexicon.vocabulary()
    words = tuple(word for word, _ in pairs)
    found: dict[str, list[int]] = {}
    spoken: set[str] = set()
    for index, (_, setting) in enumerate(pairs):
        for length, concept in lexicon.at(words, index):
            if concept not in subjects and (setting or (concept in states and _denied(pairs, words, index, length))):
                continue
            found.setdefault(concept, []).append(index)
            if not setting:
                spoken.add(concept)
    return found, spoken


def _denied(pairs: list[tuple[str, bool]], words: tuple[str, ...], index: int, length: int) -> bool:
    """Whether a state is said not to be: "no errors", "0 corrupt", "is not full", "errors 0", "number of nan"."""
    after = words[index + length : index + length + 2]
    if after[:1] == ("0",) and after[1:] != ("->",):
        return True
    if after[1:] == ("0",) and after[0] not in STOPS and after[0] not in AT and not pairs[index + length][1]:
        return True
    if words[max(0, index - 2) : index] in COUNTS or words[max(0, index - 1) : index] in COUNTS:
        return True
    for back in range(1, NEGATED + 1):
        if index < back or words[index - back] in STOPS:
            return False
        word = words[index - back]
        if word in NO:
            return True
        if word == "not" and back == 1:
            return not (index > 1 and words[index - 2] in VERBS)
    return False


def _without_advice(pairs: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """The line without its clauses that only say what one could do or what might happen."""
    kept: list[tuple[str, bool]] = []
    fresh, advice = False, False
    words = tuple(word for word, _ in pairs)
    for index, pair in enumerate(pairs):
        if pair[0] in STOPS:
            fresh, advice = True, advice and pair[0] == ","
            kept.append(pair)
            continue
        if (fresh and not pair[1] and any(c == "advice" for _, c in lexicon.at(words, index))) or pair[0] in ("if", "unless", "until", "when"):
            advice = True
        fresh = False
        if not advice:
            kept.append(pair)
    return kept
