"""NeMo's header: `[NeMo E 2026-04-11 14:46:18 nemo_logging:393] message`.

>>> line = read(SAMPLE)
>>> line.level, line.text, line.stamp.has_year
('error', 'Checkpoint not found', True)
>>> read("[NeMo] started")

Source: nemo/utils/formatters/base.py; formats/04-frameworks.md 4.11.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.header import tag_rank
from rca.ingest.formats.progress import find
from rca.ingest.formats.words import LEVELS
from rca.ingest.times import of

SAMPLE = "[NeMo E 2026-04-11 14:46:18 nemo_logging:393] Checkpoint not found"

HEADER = re.compile(r"\[NeMo ([DIWEC]) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([\w.]{1,80}:\d{1,6})\] ?(?:rank(\d{1,6})[: ]+)?", re.ASCII)


def read(text: str) -> Line | None:
    """Read one such line."""
    match = HEADER.match(text, 0, HEAD) if text.startswith("[NeMo ") else None
    if match is None:
        return None
    letter, when, source, number = match.groups()
    rank, host, message = tag_rank(text[match.end() :])
    rank = int(number) if number else rank
    stage, step = find(message)
    return Line(message, of(when), LEVELS[letter], rank, host=host, stage=stage, step=step, shape="nemo", prefixed=True, logger=source)
