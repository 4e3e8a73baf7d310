"""torchrun's ChildFailedError summary: one entry per failed worker of one node.

The "root cause" of the summary is only the entry with the smallest whole second on that agent, so it is kept as a
field and never trusted. Source: `torch/distributed/elastic/multiprocessing/errors/__init__.py`.

>>> block = ChildFailed()
>>> entries = [e for text in SAMPLE.splitlines() if (e := block.feed(text))]
>>> last = block.finish()
>>> (last["rank"], last["local_rank"], last["exitcode"], last["pid"], last["host"], last["first"])
(1, 1, -9, 14690, 'node-a', True)
"""

from __future__ import annotations

import re

SAMPLE = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-09-07_13:02:58
  host      : node-a
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 14690)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 14690"""

ENTRY = re.compile(r"^\s*\[(\d+)\]:\s*$")
KEY = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)$")
RANK = re.compile(r"(\d+) \(local_rank: (\d+)\)")
EXIT = re.compile(r"(-?\d+) \(pid: (\d+)\)")
ATTEMPT = re.compile(r"attempt_(\d+)/(\d+)/")


def is_start(text: str) -> bool:
    """Whether this line opens a summary."""
    return "ChildFailedError" in text or text.startswith(("Root Cause (first observed", "Failures:"))


class ChildFailed:
    """Collects the entries; `feed` returns an entry once the next one begins."""

    def __init__(self) -> None:
        self.entry: dict | None = None
        self.first = False

    def feed(self, text: str) -> dict | None:
        if "Root Cause (first observed failure)" in text:
            done, self.entry, self.first = self.finish(), None, True
            return done
        if ENTRY.match(text):
            done = self.finish()
            self.entry = {"first": self.first}
            return done
        match = KEY.match(text)
        if match and self.entry is not None and match[1] not in self.entry:
            self._take(match[1], match[2].strip())
        return None

    def _take(self, key: str, value: str) -> None:
        entry = self.entry
        assert entry is not None
        entry[key] = value
        if key == "rank" and (m := RANK.match(value)):
            entry["rank"], entry["local_rank"] = int(m[1]), int(m[2])
        elif key == "exitcode" and (m := EXIT.match(value)):
            entry["exitcode"], entry["pid"] = int(m[1]), int(m[2])
        elif key == "error_file" and (m := ATTEMPT.search(value)):
            entry["attempt"] = int(m[1])

    def finish(self) -> dict | None:
        """The entry in progress, or None."""
        entry, self.entry = self.entry, None
        return entry if entry and isinstance(entry.get("exitcode"), int) else None
