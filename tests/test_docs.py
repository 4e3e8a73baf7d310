"""Documentation that runs: every command shown with its output prints that output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```console\n\$ (rca [^\n]*)\n(.*?)```", re.S)
SHOWN = [(path.relative_to(ROOT).as_posix(), *match.groups()) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] for match in BLOCK.finditer(path.read_text("utf-8"))]


@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=[f"{p}: {c}" for p, c, _ in SHOWN])
def test_shown_output_is_what_is_printed(page: str, command: str, output: str) -> None:
    """A reader who types the command sees what the page shows."""
    code = "import sys; from rca.cli import main; sys.exit(main(sys.argv[1:]))"
    env = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS", "FORCE_COLOR")} | {"COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", code, *shlex.split(command)[1:]], capture_output=True, text=True, cwd=ROOT, env=env, check=True)
    assert done.stdout.rstrip() == output.rstrip()


PROGRAMS = [(f"{path.relative_to(ROOT).as_posix()} {number}", text) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] for number, text in enumerate(re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.S), 1)]


@pytest.mark.parametrize("text", [t for _, t in PROGRAMS], ids=[n for n, _ in PROGRAMS])
def test_shown_programs_run(text: str, tmp_path: Path) -> None:
    """A reader who copies a program can run it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RCA_")} | {"RCA_TRACE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    (tmp_path / "logs").symlink_to(ROOT / "rca" / "bundles" / "disk_full_at_save" / "logs")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=120, check=True)
    assert not done.stderr


def test_every_page_shows_something() -> None:
    """The pages that a newcomer reads first show real output."""
    assert {page for page, _, _ in SHOWN} >= {"README.md", "docs/flow.md"}


def test_generated_pages_are_current() -> None:
    """What `make docs` would write stands in the checkout."""
    from rca.report.rulebook import page
    from rca.rules import load_rules

    assert (ROOT / "docs" / "rules.md").read_text("utf-8") == page(sorted(load_rules(None), key=lambda rule: rule.id)), "run `make docs`"
