"""House rules that a reader relies on: the rooms stay apart, hostile input is never executed, files stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rca"
ROOMS = {"ingest", "correlate", "rules", "report", "trace_inject", "replay_trainer", "replay", "bisect"}
#: What a room may build on: the trainer leaves evidence, a replay runs the trainer, a bisection runs replays.
BELOW = {"replay_trainer": {"trace_inject"}, "replay": {"trace_inject", "replay_trainer"}, "bisect": {"trace_inject", "replay_trainer", "replay"}}
COMPUTING = set(BELOW)  # the rooms that need torch
FILES = sorted(PACKAGE.rglob("*.py"))
BANNED = {"pickle", "cPickle", "shelve", "dill", "joblib", "yaml"}
#: In the trainer, never in the analyzer: it maps only a file that it has just made itself.
MAPS_ITS_OUTPUT = ("trace_inject/ring.py",)
LONGEST = 400


def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_rooms_do_not_import_each_other(path: Path) -> None:
    """A room imports itself and the shared nouns; only the pipeline knows the order."""
    room = path.relative_to(PACKAGE).parts[0]
    if room not in ROOMS:
        return
    others = {f"rca.{r}" for r in ROOMS - {room} - BELOW.get(room, set())}
    wrong = {name for name in imports(path) if any(name == o or name.startswith(o + ".") for o in others)}
    assert not wrong


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_input_is_never_executed(path: Path) -> None:
    """No module can unpickle, evaluate or memory-map what a user points at, and the analyzer needs no torch."""
    names = {name.split(".")[0] for name in imports(path)}
    assert not names & BANNED
    if path.relative_to(PACKAGE).parts[0] not in COMPUTING:
        assert "torch" not in names
    source = path.read_text("utf-8")
    if path.relative_to(PACKAGE).as_posix() not in MAPS_ITS_OUTPUT:
        assert source.count("mmap.mmap(") == source.count("mmap.mmap(-1,"), "only anonymous memory may be mapped: an input that shrinks would kill us"
    calls = {node.func.id for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not calls & {"eval", "exec"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_files_hold_one_idea(path: Path) -> None:
    """Every module says in its first line what may live there, and none has grown past the house limit."""
    text = path.read_text("utf-8")
    assert ast.get_docstring(ast.parse(text)), "a module without a docstring"
    assert text.count("\n") <= LONGEST


def test_repository_speaks_of_the_project_alone() -> None:
    """No path of a developer's machine stands in any file that ships."""
    for path in [*FILES, *PACKAGE.rglob("*.toml"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = path.read_text("utf-8")
        assert "/work/" not in text and "/root/" not in text, path
