"""What counts as right when a scenario's logs were analyzed."""

from __future__ import annotations

from typing import Any

import pytest

from rca.scenario_check import judge

TRUTH = {
    "verdict_expected": "failed", "root_cause_class": "net.loss", "accept": ["net.rdma"], "cause_stage": "rollout", "symptom_stage": "train",
    "faulty_entity": {"host": "gpu-3", "role": "rollout"},
}  # fmt: skip


def report(verdict: str = "failed", **changes: Any) -> dict[str, Any]:
    first = {"cause": "net.loss", "confidence": 0.9, "cause_stage": "rollout", "cause_step": 3, "symptom_stage": "train", "entity": {"host": "gpu-3"}} | changes
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
        ({"entity": {"host": "gpu-2"}}, "host gpu-2, it is gpu-3"),
        ({"verdict": "inconclusive"}, "verdict inconclusive, it is failed"),
    ],
)
def test_each_thing_that_is_wrong_is_named(changes: dict[str, Any], problem: str) -> None:
    """One line for each."""
    assert judge(report(**changes), TRUTH).problems == (problem,)


def test_a_sure_and_wrong_answer_is_counted() -> None:
    """From 0.8 on; also where nothing had failed."""
    assert judge(report(cause="gpu.ecc"), TRUTH).confident_and_wrong and not judge(report(cause="gpu.ecc", confidence=0.7), TRUTH).confident_and_wrong
    assert judge(report(), {"verdict_expected": "healthy"}).confident_and_wrong


def test_names_of_one_stage_are_one_stage_and_silence_may_be_right() -> None:
    """A save is a save; and without telemetry `inconclusive` may be the best answer."""
    assert judge(report(cause_stage="save"), TRUTH | {"cause_stage": "latest_recover_save"}).right
    assert judge({"verdict": "inconclusive", "hypotheses": []}, TRUTH | {"verdict_accept": ["failed", "inconclusive"]}).right
