"""A level letter, a time and a source in one bracket, as NeMo and tornado (Jupyter) print them.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.level, line.logger, line.text, line.stamp.has_year)
error nemo_logging:393 Checkpoint not found True
warning ServerApp 404 True
>>> read("[NeMo] started"), read("[E socket.cpp:401] x")
(None, None)

Source: nemo/utils/formatters/base.py; tornado/log.py; formats/04-frameworks.md 4.11.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.header import tag_rank
from rca.ingest.formats.progress import find
from rca.ingest.formats.words import LEVELS
from rca.ingest.times import of

SAMPLE = """\
[NeMo E 2026-04-11 14:46:18 nemo_logging:393] Checkpoint not found
[W 2026-11-20 11:32:06.123 ServerApp] 404"""

HEADER = re.compile(r"\[(?:NeMo )?([DIWEC]) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?) ([\w.]{1,80}(?::\d{1,6})?)\] ?(?:rank(\d{1,6})[: ]{1,3})?", re.ASCII)


def read(text: str) -> Line | None:
    """Read one such line."""
    match = HEADER.match(text, 0, HEAD) if text[2:3] == " " or text[1:6] == "NeMo " else None
    if match is None:
        return None
    letter, when, source, number = match.groups()
    rank, host, message = tag_rank(text[match.end() :], True)
    rank = int(number) if number else rank
    stage, step = find(message)
    return Line(message, of(when), LEVELS[letter], rank, host=host, stage=stage, step=step, shape="nemo", prefixed=True, logger=source)
