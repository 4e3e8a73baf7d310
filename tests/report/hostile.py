"""Strings that try to act instead of being shown, and the check that none does."""

from __future__ import annotations

import itertools
import re
from typing import Any

from hypothesis import strategies as st

ATTACKS = (
    "\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\r::error file=a::b", "::add-mask::x", "  ::stop-commands::x", "##vso[task.setvariable variable=x]y", "##[error]x",
    "##teamcity[buildStatus]", "##VSO[task.x]", "section_start:1:a\r\x1b[0K", "[/nope]", "[bold red]x[/]", "[link=http://evil]x[/link]", "a\u202eb", "\u2066x\u2069",
    "line\nbreak", "line\u2028break", "\x7f", "\x00", "\ud800", "\udc80", "```\n# owned\n```", "``````", "`", "<script>alert(1)</script>", "![x](http://evil)",
    "[x](javascript:1)", "<http://evil>", "- x", "1. x", "# x", "> x", "=1+1", "@someone", "| a | b |", "\\", "\\\\", "表" * 60, "a" * 700, "\t\t", "", " ", ":smile:",
    "$x$", "\U000e0041", "\ufeff", "&lt;b&gt;", "~~~", "***", "|---|",
)  # fmt: skip
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CI_COMMAND = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE | re.IGNORECASE)
#: What a renderer decides by; everything else in a document may be hostile.
CHOICES = frozenset({"verdict", "link", "retryable", "line", "confidence", "unknown_probability"})

strings = st.lists(st.one_of(st.sampled_from(ATTACKS), st.text(max_size=12)), min_size=1, max_size=5).map("".join)


#: A few strings at a time: they are dealt out over the document in turn.
pools = st.lists(strings, min_size=1, max_size=7)


def poisoned(document: dict[str, Any], pool: list[str]) -> dict[str, Any]:
    """The document with every free string replaced by a hostile one; `document()` itself never lets a lone surrogate through."""
    turn = itertools.cycle(re.sub("[\ud800-\udfff]", "\ufffd", text) for text in pool)

    def walk(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(item, key) for item in value]
        return next(turn) if isinstance(value, str) and key not in CHOICES else value

    return walk(document, "")


def assert_harmless(text: str) -> None:
    """Nothing in the text moves a cursor, hides a word, or speaks to a CI runner."""
    assert not FORBIDDEN.search(text)
    assert not CI_COMMAND.search(text)
    text.encode("utf-8")
