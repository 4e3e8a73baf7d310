"""A checkpoint's writing: what is on disk before, after and instead of its end, and what the analysis makes of one that never ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from journals import records

import rca
from rca import trace_inject as rt
from tests.venvs import environment


def of_checkpoints(folder: Path) -> list[dict[str, Any]]:
    return [r for r in records(folder) if r["e"] == "checkpoint"]


def test_begun_before_its_first_byte_and_complete_after(folder: Path, tmp_path: Path) -> None:
    """Two records of one id; the manifest is the same as that of `checkpoint_saved`."""
    target = tmp_path / "ckpt" / "step-7"
    with rt.step(7), rt.stage("periodic_recover_save"), rt.saving(target, kind="periodic") as save:
        (begun,) = of_checkpoints(folder)
        assert not target.exists()
        target.mkdir(parents=True)
        (target / "model.pt").write_bytes(b"x" * 100)
    assert (begun["st"], begun["s"], begun["a"]) == ("periodic_recover_save", 7, {"rca.path": str(target), "rca.complete": False, "op": "save", "kind": "periodic"})
    _, ended = of_checkpoints(folder)
    assert ended["id"] == begun["id"] and ended["a"]["rca.complete"] is True and ended["a"]["kind"] == "periodic" and save.complete
    assert [f["file"] for f in json.loads((target / "rca.manifest.json").read_text())["files"]] == ["model.pt"]
    (event,) = rca.analyze(folder).run.events
    assert (event.kind, event.path, event.step) == ("checkpoint.saved", str(target), 7)


def test_a_shard_with_its_own_files_and_step(folder: Path, tmp_path: Path) -> None:
    """One writer among several: what the others write there is not its own; a step that nothing around it tells."""
    for name in ("rank-0.pt", "rank-1.pt"):
        (tmp_path / name).write_bytes(b"x")
    with rt.saving(tmp_path, step=30, shard=1, files=["rank-1.pt"]):
        pass
    begun, ended = of_checkpoints(folder)
    assert begun["a"]["rca.step"] == ended["a"]["rca.step"] == 30 and begun["a"]["rca.shard"] == ended["a"]["rca.shard"] == 1
    assert [f["file"] for f in json.loads((tmp_path / "rca.manifest-1.json").read_text())["files"]] == ["rank-1.pt"]


def test_an_error_is_recorded_and_passes(folder: Path, tmp_path: Path) -> None:
    """The save failed with it, and no manifest says otherwise."""
    with pytest.raises(OSError, match="No space"), rt.saving(tmp_path / "c", step=3) as save:
        raise OSError(28, "No space left on device")
    begun, failed = of_checkpoints(folder)
    assert failed["id"] == begun["id"] and failed["a"]["error"] == "OSError: [Errno 28] No space left on device" and not save.complete
    (event,) = rca.analyze(folder).run.events
    assert (event.kind, event.path, event.step) == ("checkpoint.save_failed", str(tmp_path / "c"), 3)


def test_it_never_raises_by_itself(tmp_path: Path) -> None:
    """Neither while nothing is recorded, nor for a path that is not there in the end."""
    with rt.saving(tmp_path / "not" / "there") as save:
        pass
    assert save.complete is False
    (tmp_path / "model.pt").write_bytes(b"x")
    with rt.saving(tmp_path / "model.pt") as save:
        pass
    assert save.complete is True


def test_a_child_that_is_forked_inside_ends_nothing(folder: Path, tmp_path: Path) -> None:
    """Its parent does."""
    (tmp_path / "c").mkdir()
    with rt.saving(tmp_path / "c") as save:
        pid = os.fork()
        if pid == 0:
            save.__exit__()
            os._exit(0)
        os.waitpid(pid, 0)
    assert [r["a"]["rca.complete"] for r in of_checkpoints(folder)] == [False, True]


SAVES = """
import os, signal, sys
from rca import trace_inject as rt
rt.install(sys.argv[1], role="train", rank=3)
for step in (1, 2):
    path = f"{sys.argv[2]}/step-{step}"
    with rt.step(step), rt.stage("periodic_recover_save"), rt.saving(path):
        os.makedirs(path)
        if step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        open(path + "/model.pt", "w").write("x")
"""


def test_a_process_that_is_killed_in_a_save(tmp_path: Path) -> None:
    """The save before is complete; of this one path, step, stage, process and the time of its begin are known."""
    done = subprocess.run([sys.executable, "-c", SAVES, str(tmp_path / "trace"), str(tmp_path)], env=environment(RCA_TRACE_DIR=""), timeout=60)
    assert done.returncode == -signal.SIGKILL
    (journal,) = (tmp_path / "trace").glob("*.rca.jsonl")
    head, *rest = map(json.loads, journal.read_text().splitlines())
    begun = next(r for r in rest if r["e"] == "checkpoint" and r["s"] == 2)
    saved, left, *_ = sorted((e for e in rca.analyze(tmp_path / "trace").run.events if e.kind.startswith("checkpoint.")), key=lambda e: e.step)
    assert (saved.kind, left.kind) == ("checkpoint.saved", "checkpoint.save_open")
    assert (left.path, left.step, left.stage, left.rank, left.role, left.pid) == (f"{tmp_path}/step-2", 2, "periodic_recover_save", 3, "train", head["pid"])
    assert left.host == head["host"] and left.time_ns == begun["t"]
    assert left.attrs["open_s"] < 1 and left.attrs["usual_s"] is not None
