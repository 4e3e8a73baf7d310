"""Chinese text to the plain words that the vocabulary knows, term by term.

>>> english("断点写入失败 /mnt/a.pt：磁盘空间不足").split()
['checkpoint', 'write', 'failed', '/mnt/a.pt', ';', 'disk', 'space', 'not', 'enough']
>>> english("plain text") == "plain text", foreign("内存"), foreign("memory")
(True, True, False)

A term is replaced by its words, full-width punctuation by its own; what no term covers is dropped, so that half a sentence says no more than it says.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

HAN = re.compile("[\u4e00-\u9fff]")
STOPS = str.maketrans({"，": ", ", "。": ". ", "；": " ; ", "：": " ; ", "（": " (", "）": ") ", "、": ", ", "！": ". ", "“": " ", "”": " ", "【": " [", "】": "] "})


def foreign(text: str) -> bool:
    """Whether there is a Chinese character in the text."""
    return not text.isascii() and HAN.search(text) is not None


def english(text: str) -> str:
    """The text with its known Chinese terms in English; text without Chinese is returned as it is."""
    if not foreign(text):
        return text
    pattern, words = _terms()
    return pattern.sub(lambda m: f" {words[m[0]]} " if m[0] in words else " ", text.translate(STOPS))


@cache
def _terms() -> tuple[re.Pattern[str], dict[str, str]]:
    words = tomllib.loads(Path(__file__).with_name("zh.toml").read_text("utf-8"))["terms"]
    longest = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) + "|[\u4e00-\u9fff]"), words
