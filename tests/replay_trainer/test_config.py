"""Settings: what cannot work is refused before anything starts, in a sentence that names the setting."""

import dataclasses
import json
import tomllib

import pytest

from rca.errors import RcaError
from rca.replay_trainer.config import Config


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"temperature": 0}, "`temperature` must be above 0: `0.0`"),
        ({"temperature": "nan"}, "`temperature` must be a finite number"),
        ({"learning_rate": -1e-3}, "`learning_rate` must be above 0"),
        ({"learning_rate": "inf"}, "`learning_rate` must be a finite number"),
        ({"kl_weight": -1}, "`kl_weight` must be 0 or more"),
        ({"rpc_timeout_s": 0}, "`rpc_timeout_s` must be above 0"),
        ({"meta_server_keeps": -1}, "`meta_server_keeps` must be 0 or more"),
        ({"device_bytes": 0}, "`device_bytes` must be above 0"),
        ({"steps": 0}, "`steps` must be at least 1: `0`"),
        ({"steps": "many"}, "`steps` must be a whole number: `many`"),
        ({"steps": 2.5}, "`steps` must be a whole number: `2.5`"),
        ({"steps": True}, "`steps` must be a whole number: `True`"),
        ({"steps": None}, "`steps` must be a whole number"),
        ({"colocated": "perhaps"}, "`colocated` must be true or false: `perhaps`"),
        ({"checkpoints": 3}, "`checkpoints` must be text"),
        ({"hold_at": 3}, "`hold_at` must be names"),
        ({"group": 1}, "`group` must be at least 2: an advantage is relative to the group"),
        ({"weight_sync": "nfs"}, "`weight_sync` must be one of collective, disk, astate: `nfs`"),
        ({"train_ranks": 3}, "`train_ranks` must be a divisor of `prompts` (16): `3`"),
        ({"reference_ranks": 0}, "`reference_ranks` must be a divisor"),
        ({"width": 65}, "`width` must be a multiple of `heads` (4)"),
        ({"seed": 1 << 70}, "`seed` must be below 2^63"),
        ({"stepz": 3}, "no such setting: `stepz`"),
        ([1], "a table of names and values"),
        (None, "a table of names and values"),
    ],
)
def test_what_cannot_work_is_refused_by_name(values, says):
    with pytest.raises(RcaError) as raised:
        Config.of(values, "file.toml")
    assert says in raised.value.message and raised.value.where == "file.toml"


def test_a_slip_of_the_pen_is_answered_with_the_right_name():
    with pytest.raises(RcaError) as raised:
        Config.of({"learning_rat": 1})
    assert raised.value.hint == "did you mean `learning_rate`?"


def test_text_from_a_command_line_becomes_the_type_of_the_setting():
    config = Config.of({"steps": "3", "colocated": "Yes", "learning_rate": "1e-4", "hold_at": "rollout@3,train@4", "kl_weight": 0})
    assert (config.steps, config.colocated, config.learning_rate, config.hold_at, config.uses_reference) == (3, True, 1e-4, ("rollout@3", "train@4"), False)


def test_settings_survive_their_files(tmp_path):
    """JSON of a run, and TOML as `--settings` prints it, with every setting explained where its name does not say enough."""
    config = Config(steps=3, learning_rate=1e-5, periodic_checkpoints='/a "folder"', hold_at=("rollout@1",), colocated=True)
    for name, text in (("run.json", config.to_json()), ("run.toml", config.to_toml())):
        (tmp_path / name).write_text(text)
        assert Config.read(tmp_path / name) == config
    assert tomllib.loads(config.to_toml()).keys() == json.loads(config.to_json()).keys() == {f.name for f in dataclasses.fields(Config)}
    assert "weight_sync = \"astate\"  # collective, disk or astate" in config.to_toml()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("none.toml", None, "cannot read the settings: no such file or directory"),
        ("a.toml", "steps = ", "the settings are no valid TOML"),
        ("a", "steps = 3", "the settings are no valid JSON"),
        ("a.json", "[" * 100_000, "the settings are no valid JSON"),
        ("a.json", b"\xff\xfe", "the settings are no valid JSON"),
        ("a.json", "[]", "a table of names and values"),
        ("a.toml", "temperature = 0", "`temperature` must be above 0"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, name, text, says):
    if text is not None:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(RcaError) as raised:
        Config.read(tmp_path / name)
    assert says in raised.value.message and raised.value.where == str(tmp_path / name)
