"""Call the programs of the operating system (`ip`, `mount`, `nsenter`, …) and say plainly what they said when they fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from rca.errors import RcaError

#: Where `ip`, `tc` and `fsfreeze` lie is often not in the PATH of a user.
SEARCH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
ENVIRONMENT = {"PATH": SEARCH, "LC_ALL": "C"}
PATIENCE_S = 20.0  # all of them answer within milliseconds; a frozen file system must not hold us for ever


def find(name: str) -> str:
    """The path of a program, or its name where there is none: calling it then fails with that name."""
    return shutil.which(name, path=SEARCH) or name


def call(argv: Sequence[str], text: str = "", timeout_s: float = PATIENCE_S) -> str:
    """Run a program with `text` as its input; its output. Raises RcaError with what it said when it failed."""
    shown = " ".join(argv[:6])
    try:
        done = subprocess.run([find(argv[0]), *argv[1:]], input=text, capture_output=True, text=True, timeout=timeout_s, env=ENVIRONMENT)
    except FileNotFoundError:
        raise RcaError(f"there is no program `{argv[0]}`") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RcaError(f"`{shown}` did not run: {error}") from error
    if done.returncode:
        raise RcaError(f"`{shown}` failed: {' '.join(done.stderr.split()) or f'exit {done.returncode}'}")
    return done.stdout
