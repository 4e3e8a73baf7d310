"""One group test as a command of the user's: its exit code says whether the group passed.

The command is a line for the shell, in which {hosts} stands for the names with commas, {hostlist} for the short form, {group} for the group's number and {count} for how
many hosts it has. What it prints goes to standard error. Each runs in a session of its own, so that it can be ended with all that it started.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading

from rca.bisect.names import compact
from rca.errors import RcaError

NOT_RUN = {126: "cannot be executed", 127: "was not found"}  # POSIX, Shell Command Language 2.8.2
FIELDS = re.compile(r"\{(\w+)\}")
KNOWN = ("hosts", "hostlist", "group", "count")


class Commands:
    """Runs a command for groups, several at once if need be; `end` ends those that run."""

    def __init__(self, template: str, limit_s: float | None = None) -> None:
        if not any(name in ("hosts", "hostlist") for name in FIELDS.findall(template)):
            raise RcaError(f"the command does not say where the hosts go: `{template[:80]}`", hint="{hosts} stands for a,b,c and {hostlist} for node[01-03]")
        self.template, self.limit_s = template, limit_s
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock, self.ended = threading.Lock(), False

    def ask(self, group: int, hosts: list[str]) -> tuple[bool, str]:
        """Whether it failed, and how. Raises RcaError where it could not be run at all: that is no result."""
        values = {"hosts": ",".join(hosts), "hostlist": compact(hosts), "group": str(group), "count": str(len(hosts))}
        line = FIELDS.sub(lambda match: shlex.quote(values[match[1]]) if match[1] in KNOWN else match[0], self.template)
        with self.lock:
            if self.ended:
                raise RcaError("ended before this group was run")
            process = subprocess.Popen(["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
            self.running.add(process)
        try:
            code = process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            return True, f"did not end within {self.limit_s:g} s"
        finally:
            self.running.discard(process)
        if self.ended:
            raise RcaError("ended before this group had a result")
        if code in NOT_RUN:
            raise RcaError(f"the command {NOT_RUN[code]}, which is no result of a group: `{line[:200]}`")
        if code < 0:
            return True, f"ended by {signal.Signals(-code).name}"
        return code != 0, f"exit code {code}"

    def end(self) -> None:
        """End what runs."""
        with self.lock:
            self.ended = True
            running = list(self.running)
        for process in running:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
