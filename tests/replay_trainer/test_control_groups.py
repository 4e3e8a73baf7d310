"""Control groups hold what they are told to hold, from the first page of a program on, and are gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from replay_trainer.scenes import GROWS, PATH, need, python, until

from rca.errors import RcaError
from rca.replay_trainer.control_groups import ControlGroup, parents
from rca.replay_trainer.hosts import Cluster, Here


def test_a_program_starts_inside_and_is_killed_at_the_limit(tmp_path: Path) -> None:
    """The program is in the group before its first instruction; growth beyond the limit ends it."""
    need("memory control groups")
    want = tmp_path / "want"
    want.write_text("4")
    with ControlGroup("test-limit") as group:
        group.limit(memory_bytes=64 << 20)
        program = python(Here(), GROWS, str(want), within=group)
        assert until(lambda: group.memory_bytes > 4 << 20)
        assert group.pids == [program.pid]
        assert group.name == f"rca-{os.getpid()}-test-limit"
        want.write_text("100")
        assert program.wait(15) == -9
        assert group.counters("memory").get("oom_kill") == 1
    assert not any(folder.exists() for folder in group.folders.values())


def test_a_limit_can_be_lifted(tmp_path: Path) -> None:
    """-1 lifts the limit of memory."""
    need("memory control groups")
    want = tmp_path / "want"
    want.write_text("60")
    with ControlGroup("test-lift") as group:
        group.limit(memory_bytes=32 << 20)
        group.limit(memory_bytes=-1)
        program = python(Here(), GROWS, str(want), within=group)
        assert until(lambda: group.memory_bytes > 60 << 20)
        assert program.poll() is None
        program.kill()
        program.wait()


def test_cpu_time_is_rationed() -> None:
    """A program with 10 % of a core gets about that, and the kernel counts how often it had to wait."""
    need("cpu control groups")
    with ControlGroup("test-cpu") as group:
        group.limit(cpus=0.1)
        program = python(Here(), "while True: pass", within=group)
        time.sleep(1.5)
        ticks = sum(map(int, Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        assert ticks / os.sysconf("SC_CLK_TCK") < 0.5
        assert group.counters("cpu")["nr_throttled"] > 3
        program.kill()
        program.wait()


def test_a_running_process_can_be_moved_in() -> None:
    """`add` takes a process by pid, and says so when there is none."""
    need("memory control groups")
    with ControlGroup("test-add") as group:
        program = subprocess.Popen(["sleep", "60"])
        group.add(program.pid)
        assert program.pid in group.pids
        program.kill()
        program.wait()
        with pytest.raises(RcaError, match="cannot enter"):
            group.add(program.pid)


@pytest.mark.real
def test_a_program_on_a_host_of_a_cluster_is_limited() -> None:
    """Group and namespaces go together; the pid is the program's."""
    need("memory control groups", "network namespaces", "mount namespaces")
    with Cluster(["a"]) as cluster, ControlGroup("test-host") as group:
        program = cluster["a"].start(["sleep", "60"], env=PATH, within=group)
        assert until(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n")
        assert group.pids == [program.pid]
        assert b"PWD" not in Path(f"/proc/{program.pid}/environ").read_bytes(), "the folder of who started it is none of its business"
        program.kill()
        program.wait()


def test_groups_of_a_killed_run_are_swept() -> None:
    """A run that was killed could not remove its groups: the next one does."""
    need("memory control groups")
    code = "import os; from rca.replay_trainer.control_groups import ControlGroup; print(ControlGroup('left').name, flush=True); os.kill(os.getpid(), 9)"
    root = Path(__file__).resolve().parents[2]
    left = subprocess.run([sys.executable, "-c", code], env={**PATH, "PYTHONPATH": str(root)}, capture_output=True, text=True).stdout.strip()
    folders = [parent / left for parent in parents().values()]
    assert all(folder.is_dir() for folder in folders)
    ControlGroup("test-sweep").remove()
    assert not any(folder.exists() for folder in folders)


def test_a_machine_without_groups_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """No right to make groups is an error that says what it takes; a bad label is one too."""
    with pytest.raises(RcaError, match="label"):
        ControlGroup("a/b")
    monkeypatch.setattr("rca.replay_trainer.control_groups.parents", dict)
    with pytest.raises(RcaError, match="does not let us"):
        ControlGroup("a")


def test_groups_of_version_two_are_written_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one tree holds both controllers there is one folder, with the files and words of version 2."""
    monkeypatch.setattr("rca.replay_trainer.control_groups.parents", lambda: {"memory": tmp_path, "cpu": tmp_path})
    group = ControlGroup("two")
    folder = tmp_path / group.name
    for file in ("memory.max", "memory.current", "cpu.max", "cgroup.procs"):
        (folder / file).write_text("7\n")
    group.limit(memory_bytes=4096, cpus=0.02)
    assert ((folder / "memory.max").read_text(), (folder / "cpu.max").read_text()) == ("4096", "2000 100000")
    group.limit(memory_bytes=-1, cpus=0)
    assert ((folder / "memory.max").read_text(), (folder / "cpu.max").read_text()) == ("max", "max 100000")
    assert (group.memory_bytes, group.pids, group.entrances) == (7, [7], [folder / "cgroup.procs"])
