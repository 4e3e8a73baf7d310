"""Headers of glog, klog, absl and torch's Python logger: `E0325 20:57:27.620000 2606 file.py:869] message`.

torch repeats the header on every line of a traceback; such a line continues a message and has no header of its own.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.level, line.rank, line.pid, line.step, line.prefixed, iso(line.stamp), repr(line.text[:22]))
error None 30106 None True 1972-11-20T11:32:21.985000000 'failed (exitcode: 1) l'
warning 0 4100 None True 1972-11-20T11:42:01.224054000 'could not import flash'
info 1 21706 7 True 1972-11-20T11:54:23.884019000 'stage=train step=7'
error None 71260 None False 1972-08-04T14:05:48.436000000 '  File "/venv/bin/torc'
warning None None None True 1972-08-06T14:32:41.002000000 'Sending process 5122'
>>> read("E1120"), read("I1120 11:54:23.884019 x"), read("W20 11:00:00.000000 1 f.py:3] x")
(None, None, None)

Source: torch/_logging/_internal.py (TorchLogsFormatter); glog `src/logging.cc`; klog; formats/01-torchrun.md 1.4.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line, make
from rca.ingest.formats.continued import is_continued
from rca.ingest.formats.header import tag_rank
from rca.ingest.formats.progress import find
from rca.ingest.formats.words import LEVELS
from rca.ingest.times import iso, klog  # noqa: F401  (iso is for the doctest)

SAMPLE = """\
E1120 11:32:21.985000 30106 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 2
W1120 11:42:01.224054  4100 train.py:75] [r0] could not import flash_attn
I1120 11:54:23.884019 21706 train.py:120] [r1] stage=train step=7
E0804 14:05:48.436000 71260 torch/distributed/run.py:774]   File "/venv/bin/torchrun", line 8
W0806 14:32:41.002000 135101488252736 torch/distributed/elastic/multiprocessing/api.py:851] Sending process 5122"""

PID_DIGITS = 9  # a longer number there is a thread's address: torch up to 2.4
HEADER = re.compile(
    r"([VDIWEFC])(?:20\d\d)?(\d{4}) (\d\d:\d\d:\d\d\.\d{3,9}) {1,9}(?:(\d{1,20}) {1,9})?(?:\[?rank(\d{1,6})\]?:? ?)?([\w./<>-]{1,200}:\d{1,6})\]"
    r"(?: \[\d[\d/_]{0,12}\])?(?: \[__\w{1,40}\])? ?",
    re.ASCII,
)


def read(text: str) -> Line | None:
    """Read one such line."""
    match = HEADER.match(text, 0, HEAD) if text[1:2].isdecimal() else None
    if match is None:
        return None
    letter, monthday, clock, pid, rank, source = match.groups()
    message = text[match.end() :]
    stamp, level, pid = klog(monthday, clock), LEVELS[letter.lower()], int(pid) if pid and len(pid) <= PID_DIGITS else None
    if is_continued(message):
        return Line(message, stamp, level, int(rank) if rank else None, pid=pid, shape="klog", logger=source.rpartition(":")[0])
    number, host, message = tag_rank(message, True)
    stage, step = find(message)
    rank = int(rank) if rank else number
    return make((message, stamp, level, rank, None, host, pid, None, stage, step, "", "klog", True, source.rpartition(":")[0], None))
