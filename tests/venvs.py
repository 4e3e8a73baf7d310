"""Interpreters with real third-party libraries: a virtual environment for each set of requirements, made once and kept below `.cache/venvs`.

    python = python_with("fastapi", "uvicorn", "requests")
    subprocess.run([python, "main.py"], env=environment(RCA_TRACE_DIR=folder))

Nothing is skipped: where an install fails the test fails. This package is not installed into them; it is found through PYTHONPATH.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".cache" / "venvs"
TIMEOUT_S = 900


def python_with(*requirements: str) -> Path:
    """The interpreter of an environment that has these requirements (pip's notation); the first call installs, later ones take what is there.

    torch is installed in a call of its own before all else, so that nothing chooses another build of it. Raises RuntimeError with what pip said.
    """
    wanted = sorted(set(requirements))
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:16]
    home, made = FOLDER / key, FOLDER / key / "complete"
    python = home / "bin" / "python"
    if made.exists():
        return python
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other test processes wait here for the one that installs
        if not made.exists():
            shutil.rmtree(home, ignore_errors=True)  # what an interrupted install left
            _run("-m", "venv", "--without-pip", str(home))
            torch = [r for r in wanted if r.partition("=")[0].strip() == "torch"]
            for group in (torch, [r for r in wanted if r not in torch]):
                if group:
                    pinned = [*group, *torch] if group is not torch else group
                    _run("-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check", *pinned)
            made.write_text("\n".join(wanted))
    return python


def environment(**more: str) -> dict[str, str]:
    """The environment for such an interpreter: this package on its path, nothing that another test or launcher set for tracing or ranks."""
    dropped = ("RCA_", "TORCHELASTIC_", "TRACEPARENT", "BAGGAGE", "PYTHONPATH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
