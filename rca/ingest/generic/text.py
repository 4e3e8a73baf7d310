"""A line to plain words: names split, numbers that have a meaning named, paths and settings set apart.

>>> [w for w, _ in words("acme.DeviceMemoryExhausted: can't fit 2 GiB in /dev/shm/x, [Errno 28] (max_errors=3)")]
['acme', 'device', 'memory', 'exhausted', 'cannot', 'fit', '2', 'gi', 'b', 'in', 'devshm', 'path', ',', 'enospc', 'max', 'errors', '3']

The second value of a word is true where it is the name of a setting (`max_errors=3`): that something could fail is no failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tomllib import loads

from rca.ingest.generic.zh import english

LONGEST = 700  # characters of a line that are read: the first sentences say what happened
HEX = re.compile(r"\b(?=[0-9a-fA-F-]*\d)[0-9a-fA-F]{6,}(?:-[0-9a-fA-F]{4,}){0,5}\b(?<!\D\d{6})")
OVERRIDE = re.compile(r"\+\+[\w.]{1,80}=\S{0,200}")
CODE = re.compile(r"(?<![\w./-])[\w./-]{1,120}\.(?:py|cu|cuh|cc|cpp|hpp|go|rs|java|js|sh|c|h)\b(?::\d+)?")
FILE = re.compile(r"(?<![\w-])[\w-]{1,80}(?:\.[\w-]{1,40}){0,3}\.(?:bin|pth?|zst|jsonl?|parquet|safetensors|arrow|tar|t?gz|zip|npy|npz|ckpt|distcp|idx|tfrecord|st|h5|hdf5|lmdb|txt|csv|part|tmp|pkl|ya?ml|model)\b")
LIBRARY = re.compile(r"(?<![\w+-])[\w+-]{1,60}\.so(?:\.[\d.]{1,12})?\b")
PATH = re.compile(r"(?<![\w/])(?:[a-z][a-z0-9+]{1,6}://|~?/)[\w.@%+=:-]{1,80}(?:/[\w.@%+=:*-]{0,120}){0,20}")
BUS_ID = re.compile(r"\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d|:[0-9a-fA-F]{2}\.\d)?\b(?!:\d)")
SIZES = re.compile(r"\(?\b\d{1,9}(?:(?:, ?| ?[x×] ?)\d{1,9}){1,6}\b,?\)?|\b\d{1,9} (?:rows|columns|cols|elements|entries|features|channels|dims|dimensions|tokens)\b")
URL = re.compile(r"https?://\S{1,200}")
NOT = (
    (re.compile(r"\bcan(?:no|['’])t\b|\bcan not\b", re.I), "cannot"),
    (re.compile(r"\bR/O\b", re.I), "read only"),
    (re.compile(r"\bwon['’]t\b", re.I), "will not"),
    (re.compile(r"(?<=\w)n['’]t\b", re.I), " not"),
    (re.compile(r"\b(?:no longer|not any more|no more) (?=\w+s\b)", re.I), "not "),
)
ALL_ONES = re.compile(r"\b0xf{8}\b", re.I)
BRIM = re.compile(r"(?<![\d.])(?:100(?:\.0+)?|99\.\d+) ?(?:%|percent\b)", re.I)
NONE_LEFT = re.compile(r"\b(?:0|no|zero)\b ?(?:[kKMGT]?i?[bB]|bytes|pages|inodes|blocks|free blocks)? (?:left|free|available|remaining)\b", re.I)
LITTLE = re.compile(r"\b(?:only|just|merely) [\d.]+ ?[kKMG]?i?B? (?:left|free|available|remaining|remain)\b", re.I)
SOME_OF = re.compile(r"\b(?:only )?(\d{1,6}) ?(?:of|/|out of) ?(?:the )?(\d{1,6})\b", re.I)
EXPECTED = re.compile(r"\bexpect(?:ed|s|ing)? (\d{1,4}) [\w -]{2,30}?[,;:(]? ?(?:but |only )?(?:enumerated|found|got|see[sn]?|saw|detected|counted|have|visible)\D{0,12}?(\d{1,4})\b", re.I)
FREE_OF = re.compile(r"\b[\d.]+ ?[KMGT]?i?B (?:free|left|available) (?:of|out of) [\d.]+ ?[KMGT]?i?B", re.I)
VERSION = re.compile(r"(?<![\w.])(?:v\d+(?:\.\d+)*|\d+\.\d+\.\d+[\w.+-]*|[<>=~!]=\s?\d+(?:\.\d+)*)(?![\w])")
WORD = re.compile(
    r"0x[0-9a-fA-F]+|(?P<word>NaNs?|(?i:b?float|bf|fp|u?int|sha|md|mat|http|[habv](?=[1-3]00))\d+(?![a-zA-Z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[A-Z]+(?=[A-Z][a-z]))|(?P<number>\d+(?:\.\d+)*)|(?P<stop>->|[;,|]|\.(?=\s|$))"
)
#: A number on its own, perhaps with a unit, that is no percentage: one that may be made of threes. No table of `numbers.toml` names 3, 33 or 333.
VALUE = re.compile(r"(?<![\w.:])(\d+)(\.\d+)?(?=(?:[mun]?s|[KMGT]i?B?|W)?(?![\w.:%]))(?! ?%| percent)", re.ASCII)
KEY = re.compile(r"""(?<![\w.-])(?:[\w.:-]{1,60}\{|[\w.-]{1,60}["']?\s?(?:=(?!=)|:(?=\s?(?:-?\d|true\b|false\b|null\b|none\b|off\b|on\b)))|[A-Za-z]+(?:_[A-Za-z0-9]+)+["']?\s?:(?=\s?\w)|--[\w-]{2,60})""", re.I)


@cache
def numbers() -> tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]:
    """What `numbers.toml` names: each pattern with the function that puts the name beside the number."""
    tables = loads((Path(__file__).parent / "numbers.toml").read_text("utf-8"))

    def name(table: dict[str, str]) -> Callable[[re.Match[str]], str]:
        return lambda m: f" {m[0] if m[0][:1].isalpha() else ''} {table[m[1]]} " if m[1] in table else m[0]

    return tuple((re.compile(table.pop("pattern"), re.I), name({str(k): v for k, v in table["name"].items()})) for table in tables.values())


@cache
def _named_values() -> frozenset[str]:
    """The numbers that have a meaning somewhere."""
    tables = loads((Path(__file__).parent / "numbers.toml").read_text("utf-8"))
    return frozenset({"0"} | {str(value).lstrip("-") for table in tables.values() for value in table["name"]})


def alike(text: str) -> str:
    """The line with every number that means nothing made of threes, so that lines that differ in nothing else are read once.

    >>> alike("worker 7 fetched shard-781597 in 1.714s (errors=0, 12 retries)"), alike("only 3 of 8 nodes"), alike("exit code 137")
    ('worker 7 fetched shard-333333 in 3.333s (errors=0, 12 retries)', 'only 3 of 8 nodes', 'exit code 137')
    """
    if "xpect" in text or (("of" in text or "/" in text) and SOME_OF.search(text, 0, LONGEST)):
        return text  # two numbers are compared
    return VALUE.sub(_threes, text[:LONGEST])


def _threes(match: re.Match[str]) -> str:
    whole, part = match.groups()
    if part is None:
        return whole if whole in _named_values() else "3" * len(whole)
    return "3" * len(whole) + (part if part == ".0" else "." + "3" * (len(part) - 1))


def words(text: str) -> list[tuple[str, bool]]:
    """The words of a line in lower case with whether each belongs to a setting's name; `;` `,` `.` and `->` stand for themselves."""
    text = english(text[:LONGEST])
    for pattern, to in NOT:
        text = pattern.sub(to, text)
    if "/" in text or "." in text:
        text = OVERRIDE.sub(" ", text)
        text = URL.sub(" url ", text)
        text = CODE.sub(" ", text)
        text = LIBRARY.sub(" sharedlib ", text)
        text = PATH.sub(lambda m: " devshm path " if m[0].startswith("/dev/shm") else " path ", text)
        text = FILE.sub(" datafile ", text)
    text = HEX.sub(lambda m: m[0] if m[0].isdigit() else " hex ", text)
    text = BUS_ID.sub(" busid ", text)
    for number, name in numbers():
        text = number.sub(name, text)
    text = EXPECTED.sub(lambda m: m[0] + (" mismatchcount " if int(m[1]) > int(m[2]) else " "), text)
    text = SOME_OF.sub(lambda m: m[0] + (" onlysome " if int(m[1]) < int(m[2]) else " "), text)
    text = NONE_LEFT.sub(lambda m: m[0] + " noneleft ", BRIM.sub(" hundredpercent ", ALL_ONES.sub(" allones ", text)))
    text = LITTLE.sub(lambda m: m[0] + " littleleft ", text)
    text = SIZES.sub(lambda m: m[0] + " sizes ", text)
    text = FREE_OF.sub(lambda m: m[0] + " freeof ", VERSION.sub(" vnumber ", text))
    keys = [m.span() for m in KEY.finditer(text)]
    found: list[tuple[str, bool]] = []
    at = 0
    for match in WORD.finditer(text):
        word = match["word"] or match["number"] or match["stop"]
        if not word:
            continue
        while at < len(keys) and keys[at][1] <= match.start():
            at += 1
        found.append((word.lower(), at < len(keys) and keys[at][0] <= match.start()))
    return found
