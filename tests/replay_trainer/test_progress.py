"""How far a run is: whole lines only, nothing twice, and never silent for long."""

import json

import pytest

from rca.replay_trainer import progress
from rca.replay_trainer.config import METRICS, Config
from rca.replay_trainer.progress import Bar, Lines, Metrics, curve, starting


def row(step, reward=0.5):
    return json.dumps({"step": step, "reward": reward, "seconds": 0.25}) + "\n"


def write(folder, text):
    with (folder / METRICS).open("a") as file:
        file.write(text)


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_metrics_are_read_once_and_whole(tmp_path):
    metrics = Metrics(tmp_path)
    assert metrics.read() == []
    write(tmp_path, row(1) + row(2)[:10])
    assert [r["step"] for r in metrics.read()] == [1]
    write(tmp_path, row(2)[10:] + "junk\n[1]\n{}\n" + row(3))
    assert [r["step"] for r in metrics.read()] == [2, 3]
    assert metrics.read() == [] and [r["step"] for r in metrics.rows] == [1, 2, 3]


def test_a_recovery_takes_rows_back(tmp_path):
    """The controller puts a file without the steps that are done again in the place of the old one."""
    metrics = Metrics(tmp_path)
    write(tmp_path, row(1) + row(2) + row(3))
    metrics.read()
    (tmp_path / "aside").write_text(row(1) + row(2, 0.25))
    (tmp_path / "aside").replace(tmp_path / METRICS)
    metrics.read()
    assert [(r["step"], r["reward"]) for r in metrics.rows] == [(1, 0.5), (2, 0.25)]


def test_lines_tell_of_the_start_the_first_step_and_then_now_and_then(tmp_path, clock):
    said = []
    lines = Lines(Metrics(tmp_path), 30, said.append, lambda: "waiting for train/0")
    lines()
    assert said == []
    clock[0] += 10
    lines()
    assert said.pop() == "waiting for train/0, 10 s since the start"
    write(tmp_path, row(1))
    lines()
    assert said.pop() == "step 1/30  reward 0.500  0.25 s a step"
    write(tmp_path, row(2))
    lines()
    assert said == []
    clock[0] += 10
    lines()
    assert said.pop().startswith("step 2/30")
    clock[0] += 10
    lines()
    assert said.pop() == "waiting for train/0, 20 s since the start".replace("20", "30")
    write(tmp_path, row(30))
    with lines:
        pass
    assert said == ["step 30/30  reward 0.500  0.25 s a step"]


def test_lines_of_a_resumed_run_do_not_repeat_what_was(tmp_path, clock):
    said = []
    write(tmp_path, row(4))
    metrics = Metrics(tmp_path)
    metrics.read()
    lines = Lines(metrics, 30, said.append)
    lines()
    assert said == []
    (tmp_path / "aside").write_text("")  # the recovery may take all of it back
    (tmp_path / "aside").replace(tmp_path / METRICS)
    lines()
    assert said == []
    write(tmp_path, row(5))
    lines()
    assert said == ["step 5/30  reward 0.500  0.25 s a step"]


def test_who_is_not_up_is_named(tmp_path):
    config = Config(rollout_ranks=2, kl_weight=0.01)
    assert starting(config, tmp_path) == "waiting for train/0, train/1, reference/0, rollout/0, rollout/1, meta_server/0"
    (tmp_path / "addresses").mkdir()
    for name in ("train-0", "train-1", "rollout-1"):
        (tmp_path / "addresses" / f"{name}.json").touch()
    assert starting(Config(kl_weight=0, weight_sync="disk"), tmp_path) == "waiting for rollout/0"


def test_the_bar_draws_whatever_comes(tmp_path):
    bar = Bar(Metrics(tmp_path), 3, lambda: "waiting for train/0")
    with bar:
        bar()
        write(tmp_path, row(1, 0.0) + row(2, 1.0))
        bar()


def test_the_curve_fits_and_ends_with_the_newest():
    assert curve([]) == ""
    assert curve([0.0] * 510 + [1.0] * 510) == "▁" * 15 + "█" * 15
    assert len(curve([0.5] * 31)) <= progress.CURVE_WIDTH
