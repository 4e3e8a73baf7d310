r"""Lines of torch's C++ logger, three generations: without time, with `[rank0]:` before, with nanoseconds.

Month and day are not padded: `E929` is 29 September. `[Rank 3]` in the message is the rank within the group; it is taken only where
no `[rank3]:` stands before the line (that prefix is peeled earlier and wins).

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.level, line.rank, line.stamp and iso(line.stamp), repr(line.text[:34]))
error 1 1972-09-29T06:42:58.922410870 '[Rank 1] Watchdog caught collectiv'
warning None 1972-11-20T11:32:04.637501799 '[c10d] The hostname of the client '
error 1 None '[Rank 1] Watchdog caught collectiv'
error 7 None '[PG 0 Rank 7] Timeout at NCCL work'
>>> read("[E1] x"), read("[INFO] x"), read("[W 3")
(None, None, None)
>>> read("[W1016 08:52:32.551] Failed to check the \"should dump\" flag").text[:15]
'Failed to check'

Source: c10/util/Logging.cpp; torch/csrc/distributed/c10d/logger.cpp; formats/02-c10d-nccl.md 2.1.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.words import LEVELS
from rca.ingest.times import iso, klog  # noqa: F401  (iso is for the doctest)

SAMPLE = """\
[E929 06:42:58.922410870 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout
[W1120 11:32:04.637501799 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3
[E ProcessGroupNCCL.cpp:821] [Rank 1] Watchdog caught collective operation timeout
[E ProcessGroupNCCL.cpp:1543] [PG 0 Rank 7] Timeout at NCCL work: 1, last enqueued NCCL work: 1"""

HEADER = re.compile(r"\[([FEWIDV])(?:(\d{3,4}) (\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?=[\] ]))?(?:(?: ([\w./+-]{1,200}:\d{1,6}))|(?<=\d))\] ?", re.ASCII)
GROUP_RANK = re.compile(r"\[(?:PG [^\]]{1,80} )?Rank (\d{1,6})\]", re.ASCII)


def read(text: str) -> Line | None:
    """Read one such line."""
    match = HEADER.match(text, 0, HEAD)
    if match is None:
        return None
    letter, monthday, clock, source = match.groups()
    message = text[match.end() :]
    group = GROUP_RANK.match(message)
    stamp = klog(monthday, clock) if monthday else None
    rank = int(group[1]) if group else None
    return Line(message, stamp, LEVELS[letter.lower()], rank, shape="c10d", prefixed=True, logger=source and source.rpartition(":")[0])
