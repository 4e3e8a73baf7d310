"""Lines of Slurm's commands and daemons in a job's output. The program's name stays in the text: it is how such lines are known.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.actor, line.level, line.stamp and iso(line.stamp)[:19])
slurmstepd error 2026-10-02T14:02:37
slurmstepd error None
srun error None
srun info None
None error 2026-03-25T10:34:07
>>> read("srun --label python train.py"), read("[2026-03-25T10:34:07.530] loss: 3")
(None, None)

Source: slurm `src/common/log.c`; formats/08-schedulers.md 8.2.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.words import level
from rca.ingest.times import iso, of  # noqa: F401  (iso is for the doctest)

SAMPLE = """\
slurmstepd: error: *** JOB 10763635 ON c0662 CANCELLED AT 2026-10-02T14:02:37 DUE TO TIME LIMIT ***
slurmstepd-io-cpu-09: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed.
srun: error: nid001277: tasks 1-3: Out Of Memory
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
[2026-03-25T10:34:07.530] error: Detected 3 oom_kill events in StepId=269582.0"""

SPEAKER = re.compile(r"(slurmstepd|srun|sbatch|salloc|scancel|slurmd|slurmctld)(?:-[\w.-]{1,80})?: (?:(error|fatal|warning|info|debug\d?): )?", re.ASCII)
DAEMON = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] (?:\[[\w.]{1,40}\] )?(error|fatal|warning|info|verbose|debug\d?): ", re.ASCII)
CANCELLED = re.compile(r"CANCELLED AT (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", re.ASCII)


def read(text: str) -> Line | None:
    """Read one such line."""
    if text[:1] != "[" and (match := SPEAKER.match(text, 0, HEAD)):
        at = CANCELLED.search(text, 0, HEAD)
        return Line(text, of(at[1]) if at else None, level(match[2]) or "info", actor=match[1], shape="slurm", prefixed=True)
    if text[11:12] == "T" and (match := DAEMON.match(text, 0, HEAD)):
        return Line(text[match.end() :], of(match[1]), level(match[2]), shape="slurm", prefixed=True)
    return None
