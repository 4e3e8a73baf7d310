"""The file that an event is about, where its text names one and no signature looked for it."""

from __future__ import annotations

import re

from rca.model import Event
from rca.taxonomy import Kind

ABOUT_FILES = frozenset({Kind.NO_SPACE, Kind.READ_ONLY, Kind.IO_ERROR, Kind.WRITE_FAILED, Kind.SAVE_FAILED, Kind.SAVE_OPEN, Kind.CHECKPOINT_INVALID, Kind.MISSING_FILE})
#: An absolute path of two names or more, but not the part of a URL or of what an NFS server exports.
PATH = re.compile(r"(?<![\w.:/~-])/(?:[\w.@+=,-]{1,120}/){1,30}[\w.@+=,-]{0,119}[\w@+=]")
CODE = (".py", ".so", ".c", ".cc", ".cpp", ".cu", ".h", ".rs", ".cuh", ".pyc")
LOOKED_AT = 600


def named(event: Event) -> Event:
    """The event with the path that its text names, if it names just one that is not a source file."""
    if event.path is not None or event.kind not in ABOUT_FILES:
        return event
    found = {path for path in PATH.findall(event.text[:LOOKED_AT]) if not path.endswith(CODE) and not path.startswith(("/proc/", "/sys/", "/dev/"))}
    roots = [path for path in found if all(other == path or other.startswith(path + "/") for other in found)]
    if len(found) == 1:
        return event.but(path=found.pop())
    return event.but(path=roots[0]) if roots else event
