"""A tied process goes with the one that it belongs to."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rca.replay_trainer.tied import LAUNCHER

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "rca.replay_trainer.tied", "sleeps"], start_new_session=True, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


def environment(tmp_path, **more):
    (tmp_path / "sleeps.py").write_text("import sys, time\nassert __name__ == '__main__'\nprint('up', *sys.argv[1:], flush=True)\ntime.sleep(60)\n")
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"} | more


def gone(pid, limit_s=10.0):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_it_ends_when_its_parent_is_killed(tmp_path):
    """Though it has a session of its own, and nobody could tell it."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    assert not gone(child, 0.2)
    parent.kill()
    parent.communicate()
    assert gone(child)


def test_it_does_not_begin_when_the_launcher_is_gone_already(tmp_path):
    lost = subprocess.Popen([sys.executable, "-c", ""])
    lost.wait()
    command = [sys.executable, "-m", "rca.replay_trainer.tied", "sleeps", "now"]
    done = subprocess.run(command, env=environment(tmp_path, **{LAUNCHER: str(lost.pid)}), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    with subprocess.Popen(command, env=environment(tmp_path, **{LAUNCHER: str(os.getpid())}), stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout.readline() == "up now\n"
        up.kill()
