"""Scenarios as data: all load, their placeholders are filled, and what is not well-formed is told with its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rca.errors import RcaError
from rca.replay_trainer import scenario
from rca.replay_trainer.config import Config
from rca.scenario_check import REPLAYS
from rca.taxonomy import CAUSES

TEN = [f"{number:02d}" for number in range(1, 11)]
SMALL = """
title = "t"
[settings]
steps = 3
[hosts]
controller = "a"
train = "b"
"rollout/0" = "c"
"rollout/1" = "d"
[vary]
rank = [1, 0]
step = [2, 3]
[[act]]
at = "rollout@$step"
fault = "process_killed"
role = "rollout"
rank = "$rank"
[truth]
cause_step = "$step"
symptom_step = "$step+1"
faulty_entity = {host = "$host", name = "w-$rank"}
"""


def write(folder: Path, text: str) -> Path:
    (folder / "x").mkdir()
    (folder / "x" / scenario.NAME).write_text(text)
    return folder


def test_all_ten_and_four_beyond_are_there() -> None:
    """Ten couplings, two runs in which nothing breaks, one that computes wrongly without a word, one with bad data, each with a story of about ten lines."""
    found = scenario.names()
    assert [name[:2] for name in found] == [*TEN, "11", "12", "13", "14"]
    for name in found:
        story = (scenario.root() / name / "README.md").read_text("utf-8").splitlines()
        assert story[0].startswith("# ") and 3 <= len(story) <= 16


@pytest.mark.parametrize("name", scenario.names())
def test_every_variation_can_be_played(name: str) -> None:
    """The settings of twenty variations are valid, every role has a host, and the truth is in the words of the taxonomy."""
    for variation in range(20):
        found = scenario.load(name, variation)
        config = Config.of(found.settings)
        for role, ranks in (("train", config.train_ranks), ("rollout", config.rollout_ranks), ("reference", config.reference_ranks if config.uses_reference else 0)):
            assert all(found.host_of(role, rank) for rank in range(ranks))
        if config.weight_sync == "astate":
            assert found.host_of("meta_server", 0)
        classes = [found.truth["root_cause_class"], *found.truth["accept"]] if "root_cause_class" in found.truth else []
        assert set(classes) <= set(CAUSES)
        assert found.truth["replay"] in REPLAYS and (found.truth["replay"] == "healthy") == (not classes)
        assert "$" not in str(found)


@pytest.mark.parametrize("name", scenario.names())
def test_a_bundle_says_what_its_scenario_says(name: str) -> None:
    """What a replay gives is a fact of the scenario; a bundle is its plain variation."""
    told = json.loads((scenario.root() / name / "truth.json").read_text("utf-8"))
    assert {key: told.get(key) for key in ("replay", "root_cause_class", "finishes")} == {key: scenario.load(name).truth.get(key) for key in ("replay", "root_cause_class", "finishes")}
    assert scenario.again(told).settings == scenario.load(name).settings


@pytest.mark.parametrize("name", scenario.names())
@pytest.mark.parametrize("variation", range(6))
def test_a_scenario_is_had_again_from_its_truth(name: str, variation: int) -> None:
    """Whatever was drawn, the alternative among it: what truth.json recorded is enough."""
    played = scenario.load(name, variation)
    assert scenario.again(json.loads(json.dumps({"id": played.name, "values": dict(played.values)}))) == played


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ([], "does not say which scenario"),
        ({"id": "11_healthy"}, "does not say which scenario"),
        ({"id": "99_none", "values": {}}, "no such scenario: `99_none`"),
        ({"id": "../13_silent_corruption", "values": {}}, "no such scenario"),
        ({"id": "10_event_lost_deadlock", "values": {"step": [1], "alternative": 7}}, "not well-formed"),
    ],
)
def test_a_truth_that_names_no_scenario_is_told(truth: object, message: str) -> None:
    """Without a traceback."""
    with pytest.raises(RcaError, match=message):
        scenario.again(truth)


def test_what_was_not_varied_yet_is_the_first_of_what_is_now(tmp_path: Path) -> None:
    """The plain variation is what a scenario was before something in it varied."""
    folder = write(tmp_path, SMALL)
    assert scenario.again({"id": "x", "values": {"rank": 0}}, folder).values == {"rank": 0, "step": 2, "host": "c"}


def test_a_variation_is_always_the_same_and_the_plain_one_the_first_of_everything(tmp_path: Path) -> None:
    """Variation 0 takes the first of each list; others are drawn by their number alone."""
    folder = write(tmp_path, SMALL)
    plain = scenario.load("x", 0, folder)
    assert (plain.values["rank"], plain.values["step"], plain.telemetry, plain.acts[-1].rank) == (1, 2, "all", 1)
    assert plain.truth == {"cause_step": 2, "symptom_step": 3, "faulty_entity": {"host": "d", "name": "w-1"}}
    assert [scenario.load("x", 7, folder) for _ in range(2)] == [scenario.load("x", 7, folder)] * 2
    assert len({str(scenario.load("x", number, folder).values) for number in range(1, 30)}) > 8


def test_an_alternative_replaces_what_it_names(tmp_path: Path) -> None:
    """Its tables are laid over the scenario's; the rest stays."""
    folder = write(tmp_path, SMALL + '\n[[alternative]]\nact = [{at = "train@$step", fault = "disk_full"}]\n[alternative.truth]\ncause_step = 9\n')
    faults = {(s.acts[-1].fault, s.truth["cause_step"] == 9, s.truth["symptom_step"] - s.values["step"]) for s in (scenario.load("x", n, folder) for n in range(1, 30))}
    assert faults == {("process_killed", False, 1), ("disk_full", True, 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "cannot read the scenario"),
        ('title = "t"\n[settings]\n[hosts]\n', "a scenario needs `truth`"),
        (SMALL + "\n[trth]\n", "no such part of a scenario: `trth`"),
        (SMALL.replace("$step+1", "$stp"), "nothing says what `$stp` is"),
    ],
)
def test_what_is_not_well_formed_is_told(tmp_path: Path, text: str, message: str) -> None:
    """With the file in which it stands."""
    with pytest.raises(RcaError) as told:
        scenario.load("x", 0, write(tmp_path, text))
    assert message in told.value.message and told.value.where == str(tmp_path / "x" / scenario.NAME)


def test_a_scenario_is_asked_for_by_name_or_number() -> None:
    """`04`, its slug, its whole name, or all of them."""
    assert scenario.resolve("04") == scenario.resolve("save_fault_poisons_weights") == scenario.resolve("04_save_fault_poisons_weights")
    assert scenario.resolve("all") == scenario.names()
    with pytest.raises(RcaError, match="no such scenario: `99`"):
        scenario.resolve("99")
