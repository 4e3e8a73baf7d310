"""py-spy dumps: one block per process, of which the main thread tells where it stands.

Frames are innermost first. The text has no time, no host and no rank; a rank may stand in the command line. Somebody who pasted a
dump may have kept the main threads only, or grouped several threads in front of one stack.

Source: py-spy `src/dump.rs`; threads are printed oldest first, so the main thread is searched by name.

>>> block = PySpy(SAMPLE.splitlines()[0])
>>> all(block.feed(text) for text in SAMPLE.splitlines()[1:])
True
>>> block.main()[-1], block.who, block.feed('Process 4188: python train.py')
(('train.py', 90, '<module>'), {'pid': 4187, 'local_rank': 3}, False)
"""

from __future__ import annotations

import re

from rca.ingest.blocks.stacks import Frames, Stacks

SAMPLE = """\
Process 4187: /usr/bin/python3 -u train.py --local_rank 3
Python v3.10.12 (/usr/bin/python3.10)

Thread 4187 (idle): "MainThread"
    wait (threading.py:320)
    barrier (torch/distributed/distributed_c10d.py:3672)
    <module> (train.py:90)
Thread 0x7F3A2B7FE640 (active+gil): "pt_autograd_0"
    0x7fab925f9d71 (libc.so.6)"""

PROCESS = re.compile(r"^Process (\d{1,10}): (\S.{0,4000})$")
THREAD = re.compile(r'^Thread (\d{1,20}|0x[0-9A-Fa-f]{1,16}) \((?:active\+gil|active|idle)\)(?:: "([^"]{0,200})")?$')
FRAME = re.compile(r"^\s{2,}(\S.{0,400}?) \(([^()]{1,400}?)(?::(\d{1,9}))?\)$")
BETWEEN = re.compile(r"^(?:Python v\d|Parent Process \d|\s{4,}(?:Arguments|Locals):$|\s{8,}\S{1,200}: |-{3,}|\.\.\.)")
RANKS = (("local_rank", re.compile(r"--local[-_]rank[= ](\d{1,6})\b")), ("rank", re.compile(r"--(?:global[-_])?rank[= ](\d{1,6})\b")))
MAIN = "MainThread"


def is_start(text: str) -> bool:
    """Whether a line opens a dump: `Process 12: python ...` alone may be anything, and only a main thread counts without it."""
    if thread := THREAD.match(text):
        return thread[2] == MAIN
    return PROCESS.match(text) is not None and "python" in text


class PySpy(Stacks):
    """Collects the dump of one process."""

    def __init__(self, heading: str) -> None:
        super().__init__("")
        self.scheduled = True  # a look from outside: no failure by itself
        self.asked = True
        self._mains: list[Frames] = []
        process, thread = PROCESS.match(heading), THREAD.match(heading)
        if process:
            self.who = {"pid": int(process[1])} | {name: int(found[1]) for name, pattern in RANKS if (found := pattern.search(process[2]))}
        elif thread:
            self.who = {"pid": int(thread[1])} if thread[1].isdecimal() else {}
            self._thread(thread[2])

    def feed(self, text: str) -> bool:
        """Take one line; False means that it is not part of this process's dump."""
        if thread := THREAD.match(text):
            if thread[2] == MAIN and self._mains and self._mains[-1]:
                return False  # the next process, its heading left out
            self.count += thread[2] == MAIN and bool(self._mains)
            if thread[2] == MAIN and thread[1].isdecimal() and self._mains:
                self.who["pid"] = int(thread[1])  # of several in front of one stack the last: it stands beside it
            self._thread(thread[2])
            return True
        if self.threads and (frame := FRAME.match(text)):
            self.threads[-1][1].append((frame[2], int(frame[3] or 0), frame[1]))
            return True
        return not text.strip() or BETWEEN.match(text) is not None

    def _thread(self, name: str | None) -> None:
        frames: Frames = []
        self.threads.append((False, frames))
        if name == MAIN:
            self._mains.append(frames)

    def main(self) -> Frames:
        """Frames of the main thread; of the first thread where none is named so."""
        return next((f for f in reversed(self._mains) if f), self.threads[0][1] if self.threads else [])
