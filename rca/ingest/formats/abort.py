"""Headings of native crash reports, which state an epoch time or the pid that died. The text stays whole.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.pid, line.stamp and iso(line.stamp)[:19])
None 2025-08-26T12:34:05
123 None
None 2025-07-03T20:42:03
>>> read("*** stack smashing detected ***: terminated"), read("**** step 3 ****")
(None, None)

Source: glog src/signalhandler.cc; abseil absl/debugging/failure_signal_handler.cc; formats/07-stacks.md 7.4.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.times import epoch, iso  # noqa: F401  (iso is for the doctest)

SAMPLE = """\
*** Aborted at 1756211645 (unix time) try "date -d @1756211645" if you are using GNU date ***
*** SIGSEGV (@0x0) received by PID 123 (TID 0x7f3c) from PID 0; stack trace: ***
*** SIGSEGV received at time=1751575323 on cpu 12 ***"""

HEADING = re.compile(r"\*\*\* (?:Aborted at (\d{10})|SIG[A-Z]{2,6} (?:received at time=(\d{10})|\([^)]{0,60}\) received by PID (\d{1,9})))", re.ASCII)


def read(text: str) -> Line | None:
    """Read one such heading."""
    match = HEADING.match(text, 0, HEAD)
    if match is None:
        return None
    when, pid = match[1] or match[2], match[3]
    stamp = epoch(when) if when else None
    return Line(text, stamp, "critical", pid=int(pid) if pid else None, shape="abort", prefixed=stamp is not None)
