"""`rca train` as a user meets it: help, settings, and errors that say what to do; nothing is started for any of these."""

import os
import tomllib

import pytest

from rca import cli
from rca.commands import train
from rca.replay_trainer.config import Config


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder to stand in; a run that would start fails the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "_run", lambda folder, config: pytest.fail(f"it started in {folder}"))
    return tmp_path


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--resume"], "--resume needs the folder of a run"),
        (["none", "--resume"], "no run to resume: `none`"),
        (["old"], "there is a run already: `old`\n\nhint: --resume goes on with it"),
        (["old", "--resume", "--config", "a.toml"], "not with those of --config"),
        (["file"], "this is a file: `file`"),
        (["file/below"], "cannot use the run's folder: not a directory"),
        (["full"], "the folder is not empty, and what is in it is no run: `full`"),
        (["."], "the folder is not empty"),
        ([""], "the name of the run's folder is empty"),
        (["new", "--steps", "0"], "`steps` must be at least 1: `0`"),
        (["new", "--steps", "x"], "--steps"),
        (["new", "--set", "steps"], "--set takes NAME=VALUE: `steps`"),
        (["new", "--set", "stepz=3"], "no such setting: `stepz`\n\nhint: did you mean `steps`?"),
        (["new", "--set", "temperature=0"], "`temperature` must be above 0: `0.0`"),
        (["new", "--config", "none.toml"], "cannot read the settings: no such file or directory in none.toml"),
        (["new", "--config", "full/kept"], "the settings are no valid JSON"),
        (["broken", "--resume"], "the settings are no valid JSON"),
        (["foreign", "--resume"], "no such setting: `model_type` in foreign/config.json"),
    ],
)
def test_wrong_usage_is_2_and_says_what_to_do(tmp_path, capsys, monkeypatch, args, says):
    for folder, name, text in (("old", "config.json", Config().to_json()), ("full", "kept", "mine"), ("broken", "config.json", "{"), ("foreign", "config.json", '{"model_type": "x"}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    (tmp_path / "file").write_text("text")
    if args[0] == "file/below":  # found out when the folder is made
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
    assert cli.main(["train", *args]) == 2
    out, err = capsys.readouterr()
    assert says in err and out == "" and "Traceback" not in err
    assert (tmp_path / "full" / "kept").read_text() == "mine" and (tmp_path / "file").read_text() == "text"
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_named(capsys, monkeypatch):
    """Root may write nearly everywhere, not in /proc."""
    pytest.importorskip("torch")
    monkeypatch.undo()
    assert cli.main(["train", "/proc/here"]) == 2
    assert "error: cannot use the run's folder: " in capsys.readouterr().err


def test_settings_are_printed_as_a_file_that_can_be_given_back(tmp_path, capsys):
    assert cli.main(["train", "--settings", "--set", "colocated=true", "--steps", "5"]) == 0
    out, _ = capsys.readouterr()
    assert Config.of(tomllib.loads(out)) == Config(colocated=True, steps=5)
    (tmp_path / "mine.toml").write_text(out)
    assert cli.main(["train", "--settings", "--config", "mine.toml"]) == 0
    assert capsys.readouterr().out == out
    assert os.listdir(tmp_path) == ["mine.toml"]


def test_help_names_the_defaults_and_exit_codes(capsys):
    assert cli.main(["train", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("--resume", "--settings", "rca scenarios", "Exit codes: 0 all steps done, 1 the run failed, 2 wrong usage, 130"))


def test_packages_that_are_missing_are_named(capsys, monkeypatch):
    monkeypatch.setattr(train, "missing_packages", lambda: ["torch", "httpx"])
    assert cli.main(["train", "new"]) == 2
    assert "not installed: torch, httpx\n\nhint: pip install 'trainrca[trainer]'" in capsys.readouterr().err


def test_a_run_that_is_done_is_not_started_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "needs_trainer", lambda: None)
    (tmp_path / "config.json").write_text(Config(steps=3).to_json())
    (tmp_path / "metrics.jsonl").write_text("".join(f'{{"step": {step}, "reward": 1, "seconds": 1}}\n' for step in (1, 2, 3)))
    assert cli.main(["train", str(tmp_path), "--resume"]) == 0
    assert capsys.readouterr().err == "nothing to do: all 3 steps are done; --steps N goes on to step N\n"


@pytest.mark.parametrize(
    ("leave", "says"),
    [
        (lambda run: (run / "failed.json").write_text('{"error": "TrainEngineError: SaveError: x", "stage": "train", "step": 3}'), "the run failed in train, step 3: TrainEngineError: SaveError: x"),
        (lambda run: (run / "failed.json").write_text('{"error": "SchedulerError: x", "stage": "init", "step": null}'), "the run failed in init: SchedulerError: x"),
        (lambda run: (run / "failed.json").write_text("{"), "the run failed: the controller is gone, killed by SIGKILL"),
        (lambda run: None, "the run failed: the controller is gone, killed by SIGKILL"),
        (lambda run: run.rmdir(), "the controller is gone, killed by SIGKILL; a run cannot be written: No such file or directory"),
    ],
)
def test_a_run_that_failed_says_why_as_far_as_is_known(tmp_path, capsys, monkeypatch, leave, says):
    def failed(folder, config):
        folder.mkdir()
        leave(folder)
        return -9

    monkeypatch.setattr(train, "needs_trainer", lambda: None)
    monkeypatch.setattr(train, "_run", failed)
    assert cli.main(["train", "a run"]) == 1
    err = capsys.readouterr().err
    assert says in err and "hint: rca analyze 'a run/logs'; or go on with: rca train 'a run' --resume" in err


def test_two_runs_of_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda form: "2026-01-01-000000")
    names = []
    for _ in range(3):
        folder = train._new_folder()
        folder.mkdir(parents=True)
        names.append(str(folder))
    assert names == ["runs/2026-01-01-000000", "runs/2026-01-01-000000-2", "runs/2026-01-01-000000-3"]
