"""Environments with third-party libraries are made once, hold what was asked for, and say why where they cannot be made."""

import subprocess

import pytest
import venvs

pytestmark = pytest.mark.real


def test_an_environment_is_made_once_and_kept(tmp_path, monkeypatch):
    """The library and this package can be imported; a second call only looks; what was left half made is made anew."""
    monkeypatch.setattr(venvs, "FOLDER", tmp_path)
    python = venvs.python_with("idna")
    done = subprocess.run([python, "-c", "import idna, rca.trace_inject; print(idna.__file__)"], env=venvs.environment(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))
    was = python.parents[1].stat().st_ino
    assert venvs.python_with("idna", "idna") == python
    assert python.parents[1].stat().st_ino == was
    (python.parents[1] / "complete").unlink()
    venvs.python_with("idna")
    assert (python.parents[1] / "complete").read_text() == "idna"


def test_a_failed_install_fails(tmp_path, monkeypatch):
    """Never skipped: the caller sees what pip said, and nothing is marked complete."""
    monkeypatch.setattr(venvs, "FOLDER", tmp_path)
    with pytest.raises(RuntimeError, match="ended with"):
        venvs.python_with(f"{tmp_path}/no-such-wheel.whl")
    assert not list(tmp_path.glob("*/complete"))
