"""What counts as right when a scenario's logs were analyzed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rca
from rca.errors import RcaError
from rca.scenario_check import REPLAYED, compare, judge

TRUTH = {
    "verdict_expected": "failed", "root_cause_class": "net.loss", "accept": ["net.rdma"], "cause_stage": "rollout", "symptom_stage": "train",
    "faulty_entity": {"host": "gpu-3", "role": "rollout"}, "cause_step": 3, "symptom_step": 3,
}  # fmt: skip


def report(verdict: str = "failed", **changes: Any) -> dict[str, Any]:
    first = {"cause": "net.loss", "confidence": 0.9, "cause_stage": "rollout", "cause_step": 3, "symptom_stage": "train", "symptom_step": 3, "entity": {"host": "gpu-3"}} | changes
    return {"verdict": verdict, "hypotheses": [first]}


def test_a_right_answer_has_no_problems() -> None:
    """The class or one that an expert would accept, its place and both stages."""
    assert judge(report(), TRUTH).right
    assert judge(report(cause="net.rdma"), TRUTH).right


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"cause": "coord.rpc"}, "cause coord.rpc, it is net.loss or net.rdma"),
        ({"cause_stage": "reference"}, "cause_stage reference, it is rollout"),
        ({"symptom_stage": None}, "symptom_stage None, it is train"),
        ({"entity": {"host": "gpu-2", "role": "rollout"}}, "host gpu-2, it is gpu-3"),
        ({"entity": {"host": "gpu-3", "role": "train"}}, "role train, it is rollout"),
        ({"cause_step": 2}, "cause_step 2, it is 3"),
        ({"symptom_step": None}, "symptom_step None, it is 3"),
        ({"verdict": "inconclusive"}, "verdict inconclusive, it is failed"),
    ],
)
def test_each_thing_that_is_wrong_is_named(changes: dict[str, Any], problem: str) -> None:
    """One line for each."""
    assert judge(report(**changes), TRUTH).problems == (problem,)


def test_a_sure_and_wrong_answer_is_counted() -> None:
    """From 0.8 on, a wrong cause or a wrong place; also where nothing had failed."""
    assert judge(report(cause="gpu.ecc"), TRUTH).sure_and_wrong and not judge(report(cause="gpu.ecc", confidence=0.7), TRUTH).sure_and_wrong
    assert judge(report(entity={"host": "gpu-2"}), TRUTH).sure_and_wrong and not judge(report(entity={}), TRUTH).sure_and_wrong
    assert judge(report(), {"verdict_expected": "healthy"}).sure_and_wrong
    assert not judge(report(cause_stage="train"), TRUTH).sure_and_wrong


def test_who_abstains_is_neither_right_nor_wrong_about_the_cause() -> None:
    """Without telemetry `inconclusive` may be the best answer: it is counted apart."""
    silent = judge({"verdict": "inconclusive", "hypotheses": []}, TRUTH | {"verdict_accept": ["failed", "inconclusive"]})
    assert (silent.right, silent.cause, silent.abstained) == (True, None, True)
    assert judge({"verdict": "healthy", "hypotheses": []}, TRUTH).cause is False
    assert judge(report(), TRUTH).cause is True and judge({"verdict": "healthy", "hypotheses": []}, {"verdict_expected": "healthy"}).cause is None


def test_logs_that_cannot_tell_are_not_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends well while something computes wrongly: healthy is right, a cause is not, until a replay is among the logs, which makes the cause the only right answer."""
    silent = {"verdict_expected": "failed", "finishes": True, "verdict_accept": ["healthy", "inconclusive"], "root_cause_class": "gpu.sdc", "replay": "diverges"}
    (tmp_path / "truth.json").write_text(json.dumps(silent))
    (tmp_path / "logs").mkdir()

    def found(document: dict[str, Any]) -> tuple[bool, bool | None]:
        monkeypatch.setattr(rca, "analyze", lambda path: SimpleNamespace(document=document))
        checked = compare(tmp_path)
        return checked.right, checked.cause

    healthy, sdc = {"verdict": "healthy", "hypotheses": []}, report(cause="gpu.sdc")
    assert (found(healthy), found(sdc)) == ((True, None), (False, True))
    (tmp_path / "logs" / REPLAYED).touch()
    assert (found(healthy), found(sdc)) == ((False, False), (True, True))


def test_names_of_one_stage_are_one_stage() -> None:
    """A save is a save."""
    assert judge(report(cause_stage="save"), TRUTH | {"cause_stage": "latest_recover_save"}).right


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "it is not an object"), ("{}", "`verdict_expected` must be"), ('{"verdict_expected": "failed"}', "no `root_cause_class`"), ("{", "cannot read the truth"),
        ('{"verdict_expected": "healthy", "replay": ["maybe"]}', "`replay` must be one of"),
        ('{"verdict_expected": "healthy", "faulty_entity": "x"}', "`faulty_entity` must be an object"), ('{"verdict_expected": "healthy"}', "there are no logs"),
    ],
)  # fmt: skip
def test_what_is_no_truth_is_told(tmp_path: Path, text: str, message: str) -> None:
    """With its file, and without a traceback."""
    (tmp_path / "truth.json").write_text(text)
    with pytest.raises(RcaError) as told:
        compare(tmp_path)
    assert message in told.value.message
