"""`rca checkpoint verify`: what is as it was written, what is not, and which file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rca import cli
from rca.trace_inject import checkpoint_saved
from tests.venvs import environment

FILES = ("model-00001.safetensors", "optim/rank0.pt")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of two files with its manifest."""
    folder = tmp_path / "step-100"
    (folder / "optim").mkdir(parents=True)
    for name in FILES:
        (folder / name).write_bytes(os.urandom(100_000))
    assert checkpoint_saved(folder, step=100)
    return folder


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[50_000] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], None], bool]] = {  # and whether sizes alone show it
    "truncated": (lambda p: os.truncate(p, 99_999), True),
    "one bit flipped": (flip, False),
    "missing": (lambda p: p.unlink(), True),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_found_and_named(saved: Path, how: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and the file's name; `--fast` finds what sizes show."""
    assert cli.main(["checkpoint", "verify", str(saved)]) == 0
    damage, by_size = DAMAGE[how]
    damage(saved / name)
    capsys.readouterr()
    assert cli.main(["checkpoint", "verify", str(saved)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("DAMAGED") and name in out and not any(other in out for other in FILES if other != name)
    assert cli.main(["checkpoint", "verify", "--fast", str(saved)]) == int(by_size)


def test_manifests_that_are_missing_torn_or_hostile(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a manifest nothing says that it was ever complete; a torn one is damage, and one that points outside is not followed."""
    manifest = saved / "rca.manifest.json"
    text = manifest.read_text()
    for bad in (text[: len(text) // 2], text.replace(FILES[0], "../../etc/passwd"), text.replace('"complete": true', '"complete": false'), "[" * 5000):
        manifest.write_text(bad)
        assert cli.main(["checkpoint", "verify", str(saved)]) == 1
    manifest.unlink()
    assert cli.main(["checkpoint", "verify", str(saved)]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert cli.main(["checkpoint", "verify", str(tmp_path / "none")]) == 2
    assert cli.main(["checkpoint", "verify"]) == 2


def test_several_at_once(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each; one damaged is enough for exit code 1."""
    (tmp_path / "step-200").mkdir()
    assert cli.main(["checkpoint", "verify", str(saved), str(tmp_path / "step-200")]) == 1
    assert [line[:7].strip() for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")] == ["ok", "DAMAGED"]


@pytest.mark.parametrize("command", [["sample", "--once", "-o", "{}/trace"], ["checkpoint", "verify", "{}/step-100"], ["trace", "export", "--otlp", "{}/trace"]])
def test_nothing_heavy_is_imported(command: list[str], saved: Path) -> None:
    """They run beside a trainer, in its environment: no frame, no graph, no torch."""
    (saved.parent / "trace").mkdir()
    (saved.parent / "trace" / "a-0-b-1.rca.jsonl").write_text('{"schema":"rca.trace/1","host":"b","pid":1}\n')
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "rca", *(w.format(saved.parent) for w in command)], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]
    assert not set(re.findall(r"\| +(\w+)(?:\.\w+)*$", done.stderr, re.MULTILINE)) & {"polars", "networkx", "hyperscan", "torch", "numpy", "msgspec"}
