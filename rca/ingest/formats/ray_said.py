"""What Ray writes into a worker's output file for its own log monitor: whose output follows.

>>> line = read(":actor_name:WorkerDict")
>>> line.text, line.actor, read(":job_id:01000000").actor
('', 'WorkerDict', None)
>>> [read(text) for text in (":smile:", "::", ":")]
[None, None, None]

Source: ray python/ray/_private/ray_constants.py (LOG_PREFIX_*).
"""

from __future__ import annotations

import re

from rca.ingest.formats import Line

SAID = re.compile(r":(job_id|actor_name|task_name|task_attempt_start|task_attempt_end|pid):([^\s:][^\n]{0,200})?$", re.ASCII)


def read(text: str) -> Line | None:
    """Read one such line; nothing in it is a message."""
    match = SAID.match(text)
    if match is None:
        return None
    name = (match[2] or "").strip() if match[1] == "actor_name" else ""
    return Line("", actor=name.partition("(")[0] or None, shape="ray_said")
