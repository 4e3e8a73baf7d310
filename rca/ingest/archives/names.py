"""Names of members as they are shown: they are only ever words, and lead nowhere even if somebody takes them for paths."""

from __future__ import annotations

import re

NAME_MAX = 1000  # characters
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
SEPARATOR = "!/"


def text(name: bytes) -> str:
    """A name that is bytes, as text.

    >>> text(b"rank\\xff.log")
    'rank\\\\xff.log'
    """
    return name.decode("utf-8", "backslashreplace")


def safe(name: str) -> str:
    r"""A member's name without what acts: an absolute path, steps upwards, control characters, tricks with the direction of writing.

    >>> safe("./logs//rank0.log"), safe("../../etc/passwd"), safe("/var/log/a\x1b[2J")
    ('logs/rank0.log', '%2E%2E/%2E%2E/etc/passwd', '%2Fvar/log/a\\x1b[2J')
    >>> safe("C:\\logs\\a.log"), safe("logs\\a.log")
    ('C%3A/logs/a.log', 'logs/a.log')
    """
    name = CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", name.replace("\\", "/"))
    root, drive = name.startswith("/"), re.match(r"[A-Za-z]:", name)
    parts = ["%2E%2E" if part == ".." else part for part in name.split("/") if part not in ("", ".")]
    if drive:
        parts[0] = parts[0].replace(":", "%3A", 1)
    shown = ("%2F" if root else "") + "/".join(parts)
    return shown if len(shown) <= NAME_MAX else shown[: NAME_MAX // 2] + "…" + shown[-NAME_MAX // 2 :]
