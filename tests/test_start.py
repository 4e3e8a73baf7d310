"""The command line as a process of its own: what it imports, and how it meets readers that leave and disks that are full."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def shell(line: str, **options):
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, cwd=ROOT, env={**os.environ, "PY": sys.executable}, **options)


@pytest.mark.parametrize("args", ["--help", "--version"])
def test_nothing_heavy_is_imported_for_help_and_version(args):
    """Neither typer nor rich nor polars nor typing machinery of theirs."""
    done = shell(f'"$PY" -X importtime cli.py {args}')
    assert done.returncode == 0
    loaded = set(re.findall(r"\| +(\w+)(?:\.\w+)*$", done.stderr, re.MULTILINE))
    assert not loaded & {"typer", "rich", "polars", "networkx", "pydantic", "hyperscan", "rapidfuzz"}


def test_an_ordinary_analysis_imports_only_what_it_needs():
    """The frame, the graph of networkx and the parser of options are for who asks."""
    done = shell('"$PY" -X importtime cli.py analyze rca/bundles/disk_full_at_save/logs')
    assert done.returncode == 0 and "fs.full" in done.stdout
    loaded = set(re.findall(r"\| +(\w+)(?:\.\w+)*$", done.stderr, re.MULTILINE))
    assert not loaded & {"typer", "polars", "networkx", "pydantic"}


@pytest.mark.parametrize(
    "line", ['"$PY" cli.py --help | true', '"$PY" cli.py rules list | head -n 1', '"$PY" cli.py --help > /dev/full', '"$PY" cli.py --help >&-']
)
def test_a_reader_that_leaves_and_a_full_disk_bring_no_traceback(line):
    """`| head` is quiet and 0; a full disk says so once and is 4."""
    done = shell(f"set -o pipefail; {line}")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == (4 if ">" in line else 0)
    assert bool(done.stderr) == (">" in line)
