"""The whole system, for real: what it learns does not depend on how weights travel, nor on who was killed on the way; nothing outlives a run.

`RCA_TRAIN_SOAK` kills that many more at random: `RCA_TRAIN_SOAK=50 pytest tests/replay_trainer/test_system.py -k soak -s`.
"""

import json
import os
import random
import re
import shutil
import signal
import time

import pytest

pytest.importorskip("torch")

from replay_trainer.running import SMALL, Training, digest, learned, left_behind, processes, rows, tail
from replay_trainer.scenes import need

from rca import cli
from rca.replay_trainer import checkpoints, namespaces
from rca.replay_trainer.config import Config

pytestmark = pytest.mark.real
STEPS = 16
SOAK = int(os.environ.get("RCA_TRAIN_SOAK", "0"))
#: Who is killed, how the launcher ends then, and what it says.
KILLS = {
    "controller": (1, "the run failed: the controller is gone"),
    "train-1": (1, r"the run failed in \w+, step \d+: \w+Error: "),
    "rollout-0": (1, r"the run failed in \w+, step \d+: \w+Error: "),
    "reference-0": (1, r"the run failed in \w+, step \d+: \w+Error: "),
    "torchrun": (1, r"the run failed in \w+, step \d+: \w+Error: "),
    "launcher": (-signal.SIGKILL, ""),
    "everything": (-signal.SIGKILL, ""),
}
IN_TURN = [who for who in KILLS if who not in ("reference-0", "torchrun")]
WAYS = ({"weight_sync": "astate"}, {"weight_sync": "collective"}, {"weight_sync": "disk", "latest_every": 4}, {"weight_sync": "collective", "colocated": "true"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed: the folder."""
    run = tmp_path_factory.mktemp("whole") / "run"
    with Training(run, "--steps", str(STEPS), **SMALL) as training:
        assert training.wait() == 0, training.said + tail(run)
        assert re.search(r"step 16/16  reward 0\.\d+ .*\nfinished; the run is in ", training.said)
        assert left_behind(run) == {}
    assert [row["step"] for row in rows(run)] == list(range(1, STEPS + 1))
    return run


def found(run, settings):
    """The checkpoint that a resumed run will load, which must verify, or None."""
    path = checkpoints.find_any(Config.of(SMALL | settings), run)
    assert path is None or cli.main(["checkpoint", "verify", str(path)]) == 0
    return path


def kill(training, who, limit_s=40.0):
    """Kill one, or all; the launcher ends by itself, in words, and nothing is left."""
    code, says = KILLS[who]
    training.kill(who)
    began = time.monotonic()
    assert training.wait(limit_s) == code, training.said
    assert re.search(says, training.said), training.said
    assert time.monotonic() - began < limit_s
    assert left_behind(training.run) == {}


def resumed_from(run):
    """The checkpoints that the attempts of a run have loaded."""
    return re.findall(r"recovering from (\S+)", (run / "logs" / "controller.log").read_text())


def same_as(whole, run, killed):
    """To the last bit. The row of a step may be lost that was saved when the controller was killed, before it could be written down."""
    assert digest(run, STEPS) == digest(whole, STEPS)
    told, wanted = learned(run), {row["step"]: row for row in learned(whole)}
    steps = [row["step"] for row in told]
    assert steps == sorted(set(steps)) and len(steps) >= STEPS - killed
    assert all(row == wanted[row["step"]] for row in told)


def test_weights_travel_three_ways_and_two_runs_at_once_learn_the_same(whole, tmp_path):
    """Two at the same time, which do not disturb each other."""
    with Training(tmp_path / "a", "--steps", str(STEPS), **SMALL | WAYS[1]) as one, Training(tmp_path / "b", "--steps", str(STEPS), **SMALL | WAYS[2]) as other:
        assert (one.wait(), other.wait()) == (0, 0), one.said + other.said + tail(one.run) + tail(other.run)
        assert left_behind(one.run) == left_behind(other.run) == {}
    for run in (one.run, other.run):
        same_as(whole, run, 0)


def test_colocated_roles_learn_the_same(whole, tmp_path):
    with Training(tmp_path / "a", "--steps", str(STEPS), **SMALL | WAYS[3]) as training:
        assert training.wait() == 0, training.said + tail(training.run)
    same_as(whole, training.run, 0)
    assert "device released for rollout" in "".join(path.read_text() for path in (training.run / "logs" / "train").rglob("*.log"))


def test_killed_again_and_again_it_ends_as_if_nothing_had_happened(whole, tmp_path):
    """One run, in which each kind of process is killed in turn, then the launcher, then all at once."""
    settings = {"weight_sync": "disk", "latest_every": 2}
    run, loaded, randomly = tmp_path / "run", [], random.Random(5)
    for number, who in enumerate(IN_TURN):
        with Training(run, *(["--resume"] if number else ["--steps", str(STEPS)]), **({} if number else SMALL | settings)) as training:
            training.until_step(2 * number + 1)
            time.sleep(randomly.uniform(0, 0.2))
            kill(training, who)
        loaded.append(found(run, settings))
    with Training(run, "--resume") as training:
        assert training.wait() == 0, training.said + tail(run)
        assert left_behind(run) == {}
    same_as(whole, run, len(IN_TURN))
    assert resumed_from(run) == [str(path) for path in loaded if path]


@pytest.mark.skipif(not SOAK, reason="RCA_TRAIN_SOAK says how many")
def test_soak(whole, tmp_path):
    """Any process, at any moment from the start on, in every way of the weights; each time the run is resumed and ends as if nothing had happened."""
    randomly = random.Random(SOAK)
    for number in range(SOAK):
        run, who, settings = tmp_path / str(number), randomly.choice(list(KILLS)), randomly.choice(WAYS)
        with Training(run, "--steps", str(STEPS), **SMALL | settings) as training:
            step, later = randomly.randint(1, 6), randomly.uniform(0, 0.3)
            training.until_step(step)
            time.sleep(later)
            kill(training, who)
        path = found(run, settings)
        with Training(run, "--resume") as training:
            assert training.wait() == 0, training.said + tail(run)
        same_as(whole, run, 1)
        assert resumed_from(run) == ([str(path)] if path else [])
        print(f"{number}: {who} killed {later:.2f} s after step {step}, {settings}: resumed from {path and path.name}", flush=True)
        shutil.rmtree(run)


def test_ctrl_c_and_a_second_launcher(tmp_path):
    """A run that goes on is not given to a second launcher; Ctrl-C ends it in seconds, says so, and leaves nothing."""
    run = tmp_path / "run"
    with Training(run, "--steps", "1000", **SMALL) as training:
        training.until(lambda: (run / "addresses" / "rollout-0.json").exists())
        second = Training(run, "--resume")
        assert second.wait() == 2
        assert "error: the run is going on: another process has it" in second.said
        training.until_step(2)
        training.kill("launcher", signal.SIGINT)
        began = time.monotonic()
        assert training.wait(20) == 130
        assert time.monotonic() - began < 10
    assert f"interrupted; all processes of the run are ended\nhint: go on with: rca train {run} --resume" in training.said
    assert left_behind(run, 1) == {}


def test_a_launcher_that_is_killed_while_it_starts_leaves_nothing(tmp_path):
    """Before the workers have come so far that they could be told."""
    for number, wait_s in enumerate((0.0, 1.0)):
        with Training(tmp_path / f"run{number}", **SMALL) as training:
            training.until(lambda run=training.run: len(processes(run)) >= 4)
            time.sleep(wait_s)
            training.kill("launcher")
            training.wait()
            assert left_behind(training.run) == {}


@pytest.mark.parametrize("where", ["run", "checkpoints"])
def test_a_disk_that_runs_full_is_named(tmp_path, where):
    """Also where it is the disk that the run's own folder is on: whoever looks at the terminal is told."""
    need("mount namespaces")
    disk = tmp_path / "disk"
    disk.mkdir()
    run = disk / "run" if where == "run" else tmp_path / "run"
    begin = [shutil.which("unshare"), *namespaces.USER, "--mount", "sh", "-ec", 'mount -t tmpfs -o size=2500k none "$0" && exec "$@"', str(disk)]
    settings = SMALL | {"width": 64, "heads": 4, "latest_every": 1} | ({"checkpoints": str(disk)} if where == "checkpoints" else {})
    with Training(run, "--steps", "1000", begin=begin, **settings) as training:
        assert training.wait() == 1, training.said
    assert re.search(r"the run failed in \w+_recover_save, step \d+: TrainEngineError: SaveError: .*No space left on device: '.*safetensors", training.said), training.said
    assert left_behind(run) == {}


def test_forty_steps_learn_the_task(tmp_path):
    """The job as it is by default reaches the bar."""
    with Training(tmp_path / "run", "--steps", "40") as training:
        assert training.wait() == 0, training.said + tail(training.run)
    rewards = [row["reward"] for row in rows(training.run)]
    assert sum(rewards[:5]) / 5 < 0.2 and sum(rewards[-5:]) / 5 >= 0.8
    assert json.loads((training.run / "config.json").read_text())["steps"] == 40
