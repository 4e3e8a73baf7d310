"""Hostile surroundings: nothing comes out of the recorder but records, the exit code is the program's own, and what is dropped is counted.

A case that this machine does not allow is skipped with the reason, never passed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from venvs import environment

pytestmark = pytest.mark.real
PROGRAM = Path(__file__).parent / "programs" / "hostile.py"
ROOT = hasattr(os, "getuid") and os.getuid() == 0


class Case(NamedTuple):
    """What is known of one case."""

    name: str
    needs: str = ""  # "mount:OPTIONS", "strace", "root"
    counted: bool = True  # every record is in the file or in a count of dropped ones
    dropped: bool = False  # some are dropped and told
    last: str | None = "work"  # a span that is recorded after the trouble


CASES = [
    Case("full", "mount:size=256k", dropped=True),
    Case("read_only", "mount:size=1m,ro", dropped=True),
    Case("not_allowed", "root", counted=False, last=None),
    Case("error", "strace", dropped=True),
    Case("closed"),
    Case("handed_on"),
    Case("size_limit", counted=False, dropped=True),  # segments are overwritten
    Case("deleted", counted=False),  # what stood in the deleted file is gone
    Case("no_descriptors", dropped=True),
    Case("limit_lowered", counted=False),
    Case("in_the_way", dropped=True),
    Case("pipe", counted=False, last=None),
    Case("shutdown", counted=False, last="del"),
    Case("left", counted=False),
    Case("replaced", counted=False, last="after"),
    Case("raised", counted=False, last="open"),
]


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small file system in memory."""
    if not ROOT or shutil.which("mount") is None:
        pytest.skip("a mount needs root")
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "rca-test", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounts are not allowed here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def read(folder: Path) -> list[dict[str, Any]]:
    """All records that can be read."""
    found = []
    for path in sorted(folder.glob("*.rca.jsonl")) if folder.is_dir() else ():
        for line in path.read_bytes().split(b"\n") if path.is_file() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hostile_surroundings(tmp_path: Path, case: Case) -> None:
    """The program ends as it would without us, says nothing on our behalf, and what we could not write we count."""
    what, _, options = case.needs.partition(":")
    mine = tmp_path / "mine"
    if what == "mount":
        with mounted(mine, options):
            check(case, mine / "trace", mine)
    else:
        mine.mkdir()
        check(case, tmp_path / "trace", mine)


def check(case: Case, folder: Path, mine: Path) -> None:
    """Run it, and look at what it left."""
    command = [sys.executable, str(PROGRAM), str(folder), case.name, str(mine)]
    if case.needs == "strace":
        if shutil.which("strace") is None or subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode:
            pytest.skip("strace is not installed, or not allowed")
        command = ["strace", "-f", "-o", os.devnull, "-e", "trace=write", "-e", "inject=write:error=EIO:when=60..90", *command]
    if case.needs == "root" and not ROOT:
        pytest.skip("only root can become nobody")
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (7, ""), done
    records = read(folder)
    dropped = sum(r["a"]["count"] for r in records if r.get("n") == "rca.dropped")
    told = [r for r in records if "schema" not in r and r.get("n") not in ("rca.dropped", "rca.exit", "rca.complete") and "again" not in r]
    assert (dropped > 0) == case.dropped
    if case.counted:
        assert len(told) + dropped == int(done.stdout)
    if case.last:
        starts = [r for r in records if r.get("e") == "start" and "again" not in r]
        assert case.last in {r["n"] for r in (starts if case.name == "shutdown" else (starts[0], starts[-1]))}  # threads write on until the very end
    for path in mine.glob("[0-9]*"):
        assert path.read_text() == "mine\n"  # nothing of ours in files of theirs
    if case.name == "deleted":
        (head,) = [r for r in records if "schema" in r]
        assert "around" in [r["n"] for r in records if r.get("again")] and head["rank"] == 0
    if case.name == "size_limit":
        assert max(f.stat().st_size for f in folder.glob("*.rca.jsonl")) <= 64 << 10
    if case.name == "replaced":
        assert len({r["start"] for r in records if "schema" in r}) == 2
