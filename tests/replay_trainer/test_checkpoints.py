"""Checkpoints: the one that is found is what was written, wherever the writer was killed and whatever happened to the disk.

`RCA_TRAIN_KILLS` kills the writer more often.
"""

import errno
import json
import logging
import os
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from replay_trainer.scenes import need  # noqa: E402

from rca.replay_trainer import checkpoints, namespaces  # noqa: E402
from rca.replay_trainer.config import Config  # noqa: E402
from rca.replay_trainer.errors import RecoverError  # noqa: E402
from rca.replay_trainer.learner import Learner  # noqa: E402
from rca.replay_trainer.sync import disk  # noqa: E402
from rca.trace_inject.checkpoints import verify  # noqa: E402

CONFIG = Config(width=8, heads=2, layers=1)
KILLS = int(os.environ.get("RCA_TRAIN_KILLS", "30"))
#: Forks writers that go on from what is found, kills each at a random moment, and tells what the writer said last and what is found then.
KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from rca.replay_trainer import checkpoints
from rca.replay_trainer.config import Config
from rca.trace_inject.checkpoints import verify
torch.set_num_threads(1)
config, run, randomly = Config(), Path(sys.argv[1]), random.Random(int(sys.argv[3]))
began = time.monotonic()
for step in (1, 2, 1):
    checkpoints.write(config, run, "periodic", step, {"a": torch.ones(20_000)}, {"m": torch.ones(20_000)}, {})
takes = (time.monotonic() - began) / 3
last = 0
for _ in range(int(sys.argv[2])):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for step in range(max(last, 1), 10_000):  # the first of them a second time
            numbers = {"a": torch.full((20_000,), float(step)), "b": torch.full((3,), float(step))}
            checkpoints.write(config, run, "latest", step, numbers, {"m": numbers["a"] * 2}, {"of": step})
            os.write(write, b"%d\\n" % step)
    os.close(write)
    time.sleep(randomly.uniform(0.0, 4 * takes))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    said = [int(line) for line in os.fdopen(read).read().split()]
    before, last = last, (said or [last])[-1]
    path = checkpoints.find(config, run, "latest")
    found = state = None
    if path is not None:
        weights, optimizer, state = checkpoints.read(path)
        found = state["step"]
        assert verify(path) == [] and state["of"] == found and float(weights["a"].min()) == found == float(optimizer["m"].max()) / 2, path
    print(json.dumps([before, last, found, sorted(p.name for p in (run / "checkpoints" / "latest").glob("*"))]), flush=True)
    last = found or last
"""


def save(run, step, kind="latest", config=CONFIG, optimizer=True):
    numbers = {"a": torch.full((50,), float(step))}
    return checkpoints.write(config, run, kind, step, numbers, {"m": numbers["a"]} if optimizer else {}, {"digest": "x"})


@pytest.mark.real
def test_a_writer_that_is_killed_leaves_the_previous_or_the_new_one(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(KILLS), "3"], capture_output=True, text=True, timeout=60 + KILLS)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == KILLS
    for before, last, found, names in told:
        assert found in ({last, last + 1} if last else {None, 1}), (before, last, found, names)
        assert len([name for name in names if name.endswith(".partial")]) <= 2
    assert told[-1][2] > KILLS / 5, "nobody got on"


def test_what_is_saved_is_found_and_read(tmp_path):
    path = save(tmp_path, 12)
    assert (path.name, checkpoints.find(CONFIG, tmp_path, "latest")) == ("step-000012", path)
    assert verify(path) == []
    weights, optimizer, state = checkpoints.read(path)
    assert float(weights["a"][0]) == 12 == state["step"] and optimizer.keys() == {"m"}
    assert checkpoints.find(CONFIG, tmp_path, "periodic") is None
    assert checkpoints.find_any(CONFIG, tmp_path / "none") is None


def test_old_ones_go_and_nothing_else(tmp_path):
    (tmp_path / "checkpoints" / "latest" / "step-mine").mkdir(parents=True)
    for step in (1, 2, 10, 9, 11):
        assert save(tmp_path, step).exists()
    assert sorted(path.name for path in (tmp_path / "checkpoints" / "latest").iterdir()) == ["step-000010", "step-000011", "step-mine"]


def test_those_of_an_attempt_before_a_recovery_do_not_drive_out_what_is_saved_now(tmp_path):
    for step in (11, 12, 13, 5, 6, 7):
        assert save(tmp_path, step).exists()
    assert [path.name[-2:] for path in sorted((tmp_path / "checkpoints" / "latest").iterdir())] == ["06", "07", "12", "13"]


def test_a_second_save_of_a_step_takes_the_place_of_the_first(tmp_path):
    (save(tmp_path, 3) / "extra").touch()
    (tmp_path / "checkpoints" / "latest" / "step-000003.partial").mkdir()
    path = save(tmp_path, 3)
    assert verify(path) == [] and not (path / "extra").exists()
    assert [p.name for p in path.parent.iterdir()] == ["step-000003"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-3]),
        lambda path: (path / "optimizer.safetensors").write_bytes(bytes(reversed((path / "optimizer.safetensors").read_bytes()))),
        lambda path: (path / "optimizer.safetensors").unlink(),
        lambda path: (path / "rca.manifest.json").unlink(),
        lambda path: (path / "rca.manifest.json").write_text("{"),
        lambda path: (path / "state.json").write_text("{}"),
        lambda path: [p.unlink() for p in path.iterdir()],
    ],
)
def test_a_damaged_newest_one_is_passed_over_with_a_warning(tmp_path, caplog, harm):
    older, newer = save(tmp_path, 4), save(tmp_path, 5)
    harm(newer)
    with caplog.at_level(logging.INFO):
        assert checkpoints.find_any(CONFIG, tmp_path) == older
    assert "step-000005" in caplog.text


def test_where_one_kind_has_nothing_the_other_is_taken(tmp_path):
    path = save(tmp_path, 10, "periodic")
    assert checkpoints.find_any(CONFIG, tmp_path) == path
    newer = save(tmp_path, 12)
    assert checkpoints.find_any(CONFIG, tmp_path) == newer
    assert checkpoints.find_any(Config(recover_from="periodic"), tmp_path) == path


def test_a_careless_system_takes_what_has_the_newest_name(tmp_path):
    config = Config(whole_checkpoints=False)
    save(tmp_path, 4, config=config)
    newer = save(tmp_path, 5, config=config)
    (newer / "optimizer.safetensors").write_bytes(b"half")
    assert checkpoints.find(config, tmp_path, "latest") == newer
    with pytest.raises(RecoverError, match=r"Corrupted file: optimizer\.safetensors: "):
        checkpoints.read(newer)


def test_weights_for_the_sync_neither_recover_a_run_nor_drive_out_what_does(tmp_path):
    """`disk` leaves weights of every step in the path of the latest saves, of which there may be fewer."""
    config = Config(width=8, heads=2, layers=1, weight_sync="disk", latest_every=10)
    learner, sender, receiver = Learner(config), disk.Sender(config, tmp_path, ""), disk.Receiver(config, tmp_path, 0)
    sender.upload(0, learner.weights())
    assert checkpoints.find_any(config, tmp_path) is None
    complete = save(tmp_path, 10, config=config)
    for version in range(11, 19):
        sender.upload(version, learner.weights())
        assert receiver.receive(version, {}).keys() == learner.weights().keys()
    assert checkpoints.find_any(config, tmp_path) == complete
    assert len(list(complete.parent.iterdir())) == 2 + 1


def test_weights_of_an_attempt_before_a_recovery_are_written_again(tmp_path):
    config = Config(width=8, heads=2, layers=1, weight_sync="disk", latest_every=10)
    learner, sender = Learner(config), disk.Sender(config, tmp_path, "")
    old = {name: value + 1 for name, value in learner.weights().items()}
    for version in (11, 12, 13):
        sender.upload(version, old)
    sender.upload(11, learner.weights())
    found = disk.Receiver(config, tmp_path, 0).receive(11, {})
    assert all(torch.equal(found[name], value) for name, value in learner.weights().items())


def test_a_disk_that_is_full_is_named_with_the_file(tmp_path, monkeypatch):
    before = save(tmp_path, 1)

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*step-000002\.partial/model\.safetensors"):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert checkpoints.find(CONFIG, tmp_path, "latest") == before
    save(tmp_path, 2)


def test_a_manifest_that_cannot_be_written_fails_the_save(tmp_path, monkeypatch):
    """Without it nothing could tell later whether the checkpoint is whole."""
    before = save(tmp_path, 1)
    monkeypatch.setattr("rca.trace_inject.checkpoints._write_whole", lambda target, value: "No space left on device")
    with pytest.raises(OSError, match="no complete manifest"):
        save(tmp_path, 2)
    assert checkpoints.find(CONFIG, tmp_path, "latest") == before


@pytest.mark.parametrize("pages", [1, 7, 10, 11])
def test_a_small_file_system_that_runs_full(tmp_path, pages):
    """A real one: whatever file the space ends in, the save fails and the one before is found. Then there is room, and the next save is whole."""
    need("mount namespaces")
    code = f"""
import os, sys, torch
from pathlib import Path
from rca.replay_trainer import checkpoints
from rca.replay_trainer.config import Config
run, config = Path(sys.argv[1]), Config()
def save(step): return checkpoints.write(config, run, "latest", step, {{"a": torch.full((5000,), float(step))}}, {{"m": torch.ones(5000)}}, {{}})
before = save(1)
fill = os.open(run / "fill", os.O_CREAT | os.O_WRONLY)
try:
    while os.write(fill, b"x" * 4096) == 4096: pass
except OSError: pass
os.ftruncate(fill, os.fstat(fill).st_size // 4096 * 4096 - {pages * 4096})
try:
    save(2)
    print("saved")
except OSError as error:
    print(error)
assert checkpoints.find(config, run, "latest") == before
os.unlink(run / "fill")
os.close(fill)
assert checkpoints.find(config, run, "latest") == before
assert checkpoints.find(config, run, "latest") != save(2) == checkpoints.find(config, run, "latest")
"""
    script = f'mount -t tmpfs -o size=400k none "$0" && exec {sys.executable} -c "$1" "$0"'
    done = subprocess.run([shutil.which("unshare"), *namespaces.USER, "--mount", "sh", "-ec", script, str(tmp_path), code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "No space left on device" in done.stdout
