"""A clock that is wrong: wall time is shifted in the module that is run, what counts intervals is not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = "import logging, sys, time; print(time.time(), time.time_ns(), time.monotonic(), logging.LogRecord('', 0, '', 0, '', (), None).created, *sys.argv[1:])"


@pytest.mark.parametrize("skew_s", [0.0, 3600.0, -7.5])
def test_the_clock_of_the_module_is_shifted(tmp_path, skew_s):
    (tmp_path / "tells.py").write_text(MODULE)
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "RCA_TRAIN_SKEW_S": str(skew_s)}
    before = time.time(), time.monotonic()
    done = subprocess.run([sys.executable, "-m", "rca.replay_trainer.skewed", "tells", "--a", "b"], env=env, capture_output=True, text=True, check=True, timeout=30)
    after = time.time(), time.monotonic()
    wall, wall_ns, monotonic, logged, *arguments = done.stdout.split()
    for told in (float(wall), int(wall_ns) / 1e9, float(logged)):
        assert before[0] + skew_s <= told <= after[0] + skew_s
    assert before[1] <= float(monotonic) <= after[1]
    assert arguments == ["--a", "b"]
