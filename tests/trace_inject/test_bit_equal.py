"""A training computes the same, bit by bit, without the recorder, with it, and while the disk that it records to is full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from venvs import environment

pytestmark = pytest.mark.real
PROGRAM = Path(__file__).parent / "programs" / "training.py"


def digests(tmp_path: Path, *folders: Path) -> list[list[str]]:
    """What the two ranks print: a line without recording, and one for each folder."""
    ranks = [
        subprocess.Popen([sys.executable, str(PROGRAM), str(rank), str(tmp_path / "meet"), *map(str, folders)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        for rank in range(2)
    ]  # fmt: skip
    try:
        found = [rank.communicate(timeout=180) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], found
    return [out.split() for out, _ in found]


def test_bit_equal(tmp_path: Path) -> None:
    """Weights, losses and the state of every random generator."""
    trace, small = tmp_path / "trace", tmp_path / "small"
    small.mkdir()
    mounted = not os.getuid() and shutil.which("mount") is not None and not subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "rca-test", str(small)], capture_output=True).returncode
    try:
        for off, *on in digests(tmp_path, trace, *([small] if mounted else [])):
            assert on == [off] * (1 + mounted)
        assert not mounted or not os.statvfs(small).f_bavail
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(small)], check=True)
    assert len(list(trace.glob("train-[01]-*.rca.jsonl"))) == 6  # two ranks, with two workers each
    if not mounted:
        pytest.skip("equal with and without; a full disk needs a mount, which is not allowed here")
