r"""What a terminal, a pager, a web page or a word processor did to the characters of a line is undone; its words are left alone.

Colour codes come whole, with their ESC spelled out in many ways, or without it; web pages leave `&gt;` and typographic blanks and
quotes, rsyslog writes control characters as `#015`, files begin with a byte order mark.

>>> [clean(text) for text in SAMPLE.splitlines()]
['ERROR x', 'ERROR x', 'ERROR x', 'ERROR x', '(pid=77) x', 'File "a.py", line 3', 'a <b> "c"', '[rank0]: x']
>>> [clean(text) for text in ("rate[5m]", "a[0m]b", "x & y", "C:\\x1b", "&lt", "[32m left", "issue #033")]
['rate[5m]', 'a[0m]b', 'x & y', 'C:\\x1b', '&lt', '[32m left', 'issue #033']

Source: ECMA-48 (CSI, SGR, OSC); rsyslog `$EscapeControlCharactersOnReceive`; HTML named character references.
"""

from __future__ import annotations

import re

SAMPLE = """\
\x1b[1;31mERROR\x1b[0m x
^[[31mERROR^[[0m x
\\x1b[31mERROR\\x1b[0m x
\u241b[31mERROR\u241b[0m x
[36m(pid=77)[0m x
File “a.py”, line 3
a &lt;b&gt; &quot;c&quot;
\ufeff[rank0]:\u00a0x"""

ANSI = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
#: ESC as editors, printers of byte strings and collectors spell it; only before the bracket of a colour code.
SPELLED = re.compile(r"(?:\\{1,4}(?:x1b|u001b|033|e)|#033|\^\[|\u241b|<ESC>)\[(?:\d{0,3}(?:;\d{1,3}){0,5})?[mKGJHA]", re.I | re.ASCII)
#: A colour code that lost its ESC; believed where a reset stands in the line too, or where it opens the line and a word follows at once.
ORPHAN = re.compile(r"\[(?:0?\d|[2-4]\d|9\d|10[0-7])(?:;\d{1,3}){0,5}m(?!\])", re.ASCII)
OPENING = re.compile(r"\[(?:0?[1-9]|[349]\d)(?:;\d{1,3}){0,5}m(?=[\w\[(])", re.ASCII)
ENTITY = re.compile(r"&(?:gt|lt|amp|quot|apos|nbsp|#39|#34|#x27|#x2F|#47);")
ENTITIES = {"gt": ">", "lt": "<", "amp": "&", "quot": '"', "apos": "'", "nbsp": " ", "#39": "'", "#34": '"', "#x27": "'", "#x2F": "/", "#47": "/"}
#: Blanks of typography, marks of byte order and direction, and soft hyphens.
BLANKS = str.maketrans({0xA0: " ", 0x202F: " ", 0x2007: " ", 0x2009: " ", 0x3000: " ", 0xFEFF: "", 0x200B: "", 0x200E: "", 0x200F: "", 0xAD: "", 0x2028: " "})
TYPOGRAPHY = "\xa0\u202f\u2007\u2009\u3000\ufeff\u200b\u200e\u200f\xad\u2028"
STRANGE = re.compile(f"[{TYPOGRAPHY}\u2018-\u201f\u241b]")
APOSTROPHE = re.compile(r"(?<=\w)\u2019(?=\w)")
FRAME_QUOTES = re.compile(r"\bFile [\u201c\u201d\u201e\u201f]([^\u201c\u201d\"]{1,400})[\u201c\u201d]")
#: Bytes of which at least one is in whatever `clean` would change, but for an orphan that opens a line: of any text; of one that has an
#: ampersand, a backslash, or letters beyond ASCII.
ALWAYS = (b"\x1b", b"[0m", b"[39m", b"#033[", b"#015", b"^[[", b"<ESC>[")
ENTITIES_RAW = (b"&gt;", b"&lt;", b"&amp;", b"&quot;", b"&#39;", b"&nbsp;", b"&#x27;")
BACKSLASHES = (b"\\x1b[", b"\\u001b[", b"\\033[", b"\\e[")
BEYOND = (b"\xc2\xa0", b"\xe2\x80", b"\xef\xbb\xbf", b"\xe2\x90\x9b", b"\xe3\x80\x80", b"\xc2\xad")


def clean(text: str) -> str:
    """The line as its program wrote it, as far as that can be told."""
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if not text.isascii() and STRANGE.search(text):
        text = APOSTROPHE.sub("'", FRAME_QUOTES.sub(r'File "\1"', text.translate(BLANKS)))
        if "\u241b[" in text:
            text = SPELLED.sub("", text)
    if "[0m" in text or "[39m" in text:
        text = ORPHAN.sub("", SPELLED.sub("", text))
    elif text[:1] == "[" and text[1:2].isdecimal() and (match := OPENING.match(text)):
        text = text[match.end() :]
    if ("\\" in text or "^[[" in text or "#0" in text or "<ESC>" in text) and "[" in text:
        text = SPELLED.sub("", text)
    if "#0" in text and "#015" in text:
        text = text.replace("#015", "\r")
    if "&" in text and ";" in text:
        text = ENTITY.sub(lambda match: ENTITIES[match[0][1:-1]], text)
    return text


def dirty(data: bytes) -> bool:
    """Whether `clean` may change any line of `data`: one look for a whole excerpt spares it a look per line."""
    return (
        any(mark in data for mark in ALWAYS)
        or (b"&" in data and any(mark in data for mark in ENTITIES_RAW))
        or (b"\\" in data and any(mark in data for mark in BACKSLASHES))
        or (not data.isascii() and any(mark in data for mark in BEYOND))
    )
