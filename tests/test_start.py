"""How the command line starts: its help, what it imports, the plain line it reads itself, and how it meets readers that leave and disks that are full."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rca import cli
from rca.commands import analyze

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


def test_help_names_every_command_and_is_the_same_everywhere(capsys):
    """The text that is printed without typer is the one that typer prints."""
    import typer

    for args in ([], ["--help"], ["-h"]):
        assert cli.main(args) == 0
        assert capsys.readouterr() == (cli.HELP, "")
    root = typer.main.get_command(cli.app())
    assert root.main(["--help"], prog_name="rca", standalone_mode=False) == 0
    assert capsys.readouterr().out.strip() == cli.HELP.strip()
    names = [f"{name} {sub}" if sub else name for name, command in root.commands.items() for sub in getattr(command, "commands", {"": None})]
    assert [n for n in names if f"\n  {n} " not in cli.HELP] == []


@pytest.mark.parametrize("command", [["analyze"], ["gate"], ["rules"], ["rules", "list"], ["rules", "show"], ["rules", "test"]])
def test_every_command_has_help(capsys, command):
    """With `-h` too; those that take paths have examples and exit codes."""
    assert cli.main([*command, "-h"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: rca {' '.join(command)} ")
    assert "\\b" not in out and "\b" not in out
    if command[0] != "rules":
        assert "\n  Examples:\n    rca " in out
        assert "Exit codes: 0 " in out


WORDS = ("run.log", "a b", "", "-", "--", "--format", "--format=json", "--format=", "json", "-o", "-oreport.md", "--output", "--output=x.json", "--rules", "--baseline", "--topology=f", "-x", "--form", "-h")


def test_an_ordinary_command_line_is_read_as_typer_reads_it(monkeypatch, capsys):
    """`analyze` is read without typer where that is plain; whatever is said then, typer says the same."""
    calls = []
    monkeypatch.setattr(analyze, "run", lambda *given: calls.append(given) or 0)
    lines = [["analyze", *words] for count in (0, 1, 2, 3) for words in itertools.product(WORDS, repeat=count)]
    plain = [(line, found) for line in lines if (found := analyze.plain(line))]
    assert len(plain) > 100 and analyze.plain(["gate", "run.log"]) is None
    for line, found in plain[::7]:
        assert cli._run(line) == 0
        assert calls.pop() == found, line
