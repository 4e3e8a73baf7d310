"""Memory of control groups: `memory.current`, `memory.max`, `memory.events`, as `grep .` and `head` print them, or the lines of one file.

Source: Documentation/admin-guide/cgroup-v2.rst.

>>> from rca.ingest.samples._collect import Samples
>>> found = Samples("h1/memory.events")
>>> table = Table("low 0", (1, 0, ""), found)
>>> table.feed("oom_kill 3", (2, 0, "")), Table("/sys/fs/cgroup/job/memory.current:123456", (1, 0, ""), found) and None
(True, None)
>>> [(dict(r[2]).get("group"), r[3], r[4]) for r in found.rows()]
[(None, 'mem.oom_kills', 3.0), ('/sys/fs/cgroup/job', 'mem.group_used', 123456.0)]
"""

from __future__ import annotations

import re

from rca.ingest.samples._collect import At, Samples

START = re.compile(r"(?:==> )?(?P<group>\S{0,200}?)/?memory\.(?P<file>current|max|events|usage_in_bytes|limit_in_bytes|oom_control)(?: <==|:\s?(?P<rest>\S.{0,60}))$|low \d{1,20}$|oom_kill_disable \d$")
EVENT = re.compile(r"(?P<name>low|high|max|oom|oom_kill|oom_group_kill|oom_kill_disable|under_oom) (?P<value>\d{1,20})$")


class Table:
    """One group."""

    def __init__(self, text: str, at: At, found: Samples) -> None:
        self.found, self.group, self.file = found, "", ""
        match = START.match(text)
        if match and match["file"]:
            self.group, self.file = match["group"], match["file"]
            if match["rest"]:
                self._take(match["rest"], at)
        else:
            self._take(text, at)

    def _take(self, text: str, at: At) -> bool:
        about = (("group", self.group),) if self.group else ()
        if match := EVENT.match(text):
            if match["name"] == "oom_kill":
                self.found.add("oom_kill", match["value"], at, (*about, ("own", True)))
            return True
        if text.isdecimal() and self.file:
            self.found.add(f"memory.{self.file}", text, at, about)
            return True
        return text == "max"

    def feed(self, text: str, at: At) -> bool:
        """Take a further line of the same group."""
        return bool(text) and START.match(text) is None and self._take(text, at)
