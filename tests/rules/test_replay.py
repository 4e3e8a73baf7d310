"""What a replay is worth: it moves what explains the failure that was replayed, by how often such failures come back, and proves nothing by itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import replays
from builders import event, run

import rca
from rca.model import Edge, Event, Graph
from rca.report.text import render
from rca.rules import load_rules, replay
from rca.rules.judge import judge, priors
from rca.taxonomy import CAUSES, Kind

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
TRUTHS = {p.parent.name: json.loads(p.read_text("utf-8")) for p in sorted(SCENARIOS.glob("*/truth.json"))}
#: Those that failed, with what their failed request does when it is run again: software and data fail again, links, disks, machines and killed processes do not.
BROKEN = {name: truth["replay"] for name, truth in TRUTHS.items() if "failed" in truth and truth["replay"] in ("reproduces", "does not reproduce")}
OPPOSITE = {"reproduces": "does not reproduce", "does not reproduce": "reproduces"}


def analyzed(folder: Path, tmp_path: Path, *lines: dict[str, Any], **header: Any) -> dict[str, Any]:
    """The report on a copy of a run with a replay beside it; without lines, on the run alone."""
    shutil.rmtree(tmp_path / "logs", ignore_errors=True)
    shutil.copytree(folder, tmp_path / "logs")
    if lines:
        replays.write(tmp_path / "logs", *lines, **header)
    return rca.analyze(tmp_path / "logs", workers=1).document


def confidence(document: dict[str, Any], *causes: str) -> float:
    """The greatest confidence of some classes."""
    return max((h["confidence"] for h in document["hypotheses"] if h["cause"] in causes), default=0.0)


def truth(name: str) -> dict[str, Any]:
    """What really broke."""
    return TRUTHS[name]


def test_all_ten_couplings_are_there() -> None:
    """Of them only the leak in the program fails again."""
    assert sum(name[:2] <= "10" for name in BROKEN) == 10 and BROKEN["06_cleanup_masks_oom"] == "reproduces"
    assert [name for name, what in BROKEN.items() if name[:2] <= "10" and what == "reproduces"] == ["06_cleanup_masks_oom"]


# -- the ten scenarios ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKEN)
def test_the_true_verdict_raises_the_true_cause(name: str, tmp_path: Path) -> None:
    """And the contrary one lowers it; both are cited with their line and stand in the sum."""
    true = BROKEN[name]
    logs = SCENARIOS / name / "logs"
    before = analyzed(logs, tmp_path)
    cause = before["hypotheses"][0]["cause"]
    assert cause in truth(name)["accept"]
    after = analyzed(logs, tmp_path, replays.healthy(), replays.of_truth(truth(name), true))
    contrary = analyzed(logs, tmp_path, replays.healthy(), replays.of_truth(truth(name), OPPOSITE[true]))
    assert confidence(contrary, cause) < confidence(before, cause) < confidence(after, cause)
    for document, link, sign in ((after, "mechanism", "+"), (contrary, "against", "-")):
        first = document["hypotheses"][0]
        assert first["cause"] == cause
        assert [(e["file"], e["line"], e["link"]) for e in first["evidence"] if e["kind"].startswith("replay.")] == [("replay.rca.jsonl", 3, link)]
        assert any(term.startswith(sign) and "run again" in term for term in first["why"])
        assert sum(h["confidence"] for h in document["hypotheses"]) + document["unknown_probability"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("how", ["cannot tell", "with_fault", "another environment"])
def test_what_is_no_evidence_moves_nothing(name: str, how: str, tmp_path: Path) -> None:
    """A replay that cannot tell, one with the fault in it, and one in another environment are told of, and that is all."""
    logs, wrong = SCENARIOS / name / "logs", OPPOSITE[BROKEN[name]]
    header = {"with_fault": {"with_fault": True}, "another environment": {"same_environment": False}}.get(how, {})
    after = analyzed(logs, tmp_path, replays.of_truth(truth(name), "cannot tell" if how == "cannot tell" else wrong), **header)
    assert after["hypotheses"] == analyzed(logs, tmp_path)["hypotheses"]
    assert after["replay"][0]["counts"] is (how == "cannot tell") and "Replay" in render(after)


def test_made_twice_it_says_nothing_new(tmp_path: Path) -> None:
    """The same result, copied or replayed again, weighs once."""
    name = "07_reference_payload_loss"
    once = analyzed(SCENARIOS / name / "logs", tmp_path, replays.of_truth(truth(name), "does not reproduce"))
    replays.write(tmp_path / "logs", replays.of_truth(truth(name), "does not reproduce"), name="again.jsonl", time=replays.MADE_NS + 1)
    twice = rca.analyze(tmp_path / "logs", workers=1).document
    assert confidence(twice, "net.loss") == confidence(once, "net.loss") and len(twice["replay"]) == 2


def test_a_broken_hand_over_points_at_its_sender(tmp_path: Path) -> None:
    """What the reference worker sent did not arrive so: causes on its side gain, others do not."""
    name = "07_reference_payload_loss"
    logs, said = SCENARIOS / name / "logs", replays.of_truth(truth(name), "does not reproduce")
    plain = analyzed(logs, tmp_path, said)
    told = analyzed(logs, tmp_path, replays.hand_over(**{"from": "reference/0", "host": "gpu-3", "stage": "reference"}), said)
    elsewhere = analyzed(logs, tmp_path, replays.hand_over(**{"from": "rollout/1", "host": "gpu-2"}), said)
    assert confidence(told, "net.loss") > confidence(plain, "net.loss") == confidence(elsewhere, "net.loss")
    assert any("reference/0 handed over" in term for term in told["hypotheses"][0]["why"])


# -- a wrong verdict -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_verdict_never_makes_a_wrong_answer_sure(name: str, tmp_path: Path) -> None:
    """The contrary verdict, at the right failure, lets no other class reach 0.8."""
    wrong = OPPOSITE[BROKEN[name]]
    accepted = {truth(name)["root_cause_class"], *truth(name)["accept"]}
    after = analyzed(SCENARIOS / name / "logs", tmp_path, replays.healthy(), replays.of_truth(truth(name), wrong))
    assert all(h["confidence"] < 0.8 for h in after["hypotheses"] if h["cause"] not in accepted)


def unsure(*said: Event, against: float = 0.0) -> Any:
    """A run that ended with two complaints of one step, one a machine's and one the program's; `said` was replayed afterwards."""
    machine = event(Kind.DEVICE_HANG, "Xid 119", rank=None, host="node-1")
    program = event(Kind.SHAPE_MISMATCH, "shapes differ", host="node-2", attrs={"generic": 2} if against else {})
    edges = (Edge(0, 1, "collective"),) if against else ()
    made = run(machine, program, *said, edges=edges)
    return judge(made, load_rules(), Graph(edges))


def test_what_other_evidence_speaks_against_is_hardly_lifted() -> None:
    """`reproduces` favours the program; where an earlier event explains its error, that makes no sure answer of it."""
    again = event(Kind.REPLAY_REPRODUCED, "fails again", severity="info", role="train", source="r", attrs={"of": "verdict", "void": None})
    doubted, lifted = unsure(against=1.0), unsure(again, against=1.0)
    before, after = ({h.cause: h.confidence for h in v.hypotheses} for v in (doubted, lifted))
    assert before["gpu.hang"] > after["gpu.hang"] and after.get("sw.shape", 0.0) < 0.5


# -- which failure -------------------------------------------------------------------------------------------------------


def test_a_replay_of_another_failure_counts_less_or_not() -> None:
    """In the same phase it counts most, in the same step less, in another step not at all, and little where no place is stated."""
    def worth(**place: Any) -> float:
        said = event(Kind.REPLAY_NOT_REPRODUCED, "does not fail", severity="info", host=None, rank=None, source="r", attrs={"of": "verdict", "void": None}, **place)
        found = {h.cause: h.logit for h in unsure(said).hypotheses}
        return found["gpu.hang"] - {h.cause: h.logit for h in unsure().hypotheses}["gpu.hang"]

    here, step, nowhere, other = worth(step=1, stage="train"), worth(step=1, stage="rollout"), worth(step=None, stage=None), worth(step=9, stage="train")
    assert here > step > nowhere > other == 0.0


# -- silent corruption ---------------------------------------------------------------------------------------------------


def test_a_finished_run_that_computed_otherwise_has_failed(tmp_path: Path) -> None:
    """The same request in the same environment gave other numbers: the machine of that worker, named with its host."""
    where = {"role": "rollout", "rank": 1, "host": "gpu-3", "stage": "rollout"}
    after = analyzed(SCENARIOS / "11_healthy" / "logs", tmp_path, replays.request(**where), replays.healthy(), replays.verdict("diverges", **where))
    first = after["hypotheses"][0]
    assert (after["verdict"], first["cause"], first["rule"]) == ("failed", "gpu.sdc", "gpu/sdc") and first["confidence"] > 0.8
    assert {k: first["entity"][k] for k in ("role", "rank", "host")} == {"role": "rollout", "rank": 1, "host": "gpu-3"}
    assert (first["cause_stage"], first["cause_step"], first["evidence"][0]["line"]) == ("rollout", 3, 4)
    assert "rollout-1 on gpu-3" in after["summary"] and len(after["hypotheses"]) == 1


@pytest.mark.parametrize("name", [name for name, truth in TRUTHS.items() if truth.get("replay") == "diverges"])
def test_a_silent_corruption_is_named_where_it_was_made(name: str, tmp_path: Path) -> None:
    """No line of the run complains; the replay's verdict names worker, stage and step."""
    made, host = truth(name)["made"][0], truth(name)["faulty_entity"]["host"]
    at = {"role": made["role"], "rank": made["rank"], "host": host, "step": truth(name)["cause_step"], "stage": truth(name)["cause_stage"], "t": None}
    assert analyzed(SCENARIOS / name / "logs", tmp_path)["verdict"] in truth(name)["verdict_accept"]
    after = analyzed(SCENARIOS / name / "logs", tmp_path, replays.request(**at), replays.healthy(), replays.verdict("diverges", **at))
    first = after["hypotheses"][0]
    assert (after["verdict"], first["cause"], first["cause_stage"], first["cause_step"]) == ("failed", "gpu.sdc", at["stage"], at["step"])
    assert {k: first["entity"][k] for k in ("host", "role", "rank")} == {"host": host, "role": made["role"], "rank": made["rank"]}


@pytest.mark.parametrize(("lines", "header"), [
    ([replays.request(), replays.healthy(), replays.verdict("diverges")], {"same_environment": False}),
    ([replays.request(), replays.healthy(), replays.verdict("diverges")], {"with_fault": True}),
    ([replays.request(), replays.request(role="rollout", rank=1, step=2), replays.healthy(), replays.verdict("diverges")], {}),
    ([replays.healthy(40, 40)], {}),
    ([replays.healthy(), replays.verdict("reproduces")], {}),
])  # fmt: skip
def test_a_finished_run_stays_healthy_otherwise(lines: list[dict[str, Any]], header: dict[str, Any], tmp_path: Path) -> None:
    """In another environment, with the fault in it, where workers everywhere differ, or where nothing does."""
    after = analyzed(SCENARIOS / "11_healthy" / "logs", tmp_path, *lines, **header)
    assert (after["verdict"], after["hypotheses"]) == ("healthy", []) and after["replay"]


def test_a_nan_whose_step_computes_otherwise_is_the_machine() -> None:
    """NaN in the run and numbers in the replay: the same program, so it was not the program."""
    nan = event(Kind.NON_FINITE, "loss is nan", step=5)
    other = event(Kind.REPLAY_DIVERGED, "other numbers", severity="warning", step=5, source="r", attrs={"of": "verdict", "void": None, "others_same": True})
    plain, told = judge(run(nan), load_rules(), Graph(())), judge(run(nan, other), load_rules(), Graph(()))
    assert plain.hypotheses[0].cause == "sw.nan" and told.hypotheses[0].cause == "gpu.sdc"


# -- the table -----------------------------------------------------------------------------------------------------------


def test_the_table_holds_shares_of_every_class() -> None:
    """For each class of the taxonomy three shares that add up to 1, and every pattern fits some class."""
    for cause in CAUSES:
        shares = [replay.share(cause, outcome) for outcome in replay.OUTCOMES.values()]
        assert sum(shares) == pytest.approx(1) and min(shares) > 0, cause
    patterns = [p for entry in replay.table()["class"] for p in entry["cause"]]
    assert len(patterns) == len(set(patterns)) and all("*" in p or p in CAUSES for p in patterns)


@pytest.mark.parametrize("outcome", replay.OUTCOMES.values())
def test_unknown_is_the_average(outcome: str) -> None:
    """The base-rate average of what each class gains is nothing: a replay alone makes nobody surer of anything."""
    rates = {c: r for c, r in priors().items() if "." in c}
    mean = sum(r * 2.718281828459045 ** replay.worth(c, outcome, 0.85, priors()) for c, r in rates.items()) / sum(rates.values())
    assert mean == pytest.approx(1)


def test_software_fails_again_and_machines_do_not() -> None:
    """The signs of the worths, as mechanisms have them; races lie between."""
    worth = {c: {o: replay.worth(c, o, 0.85, priors()) for o in replay.OUTCOMES.values()} for c in CAUSES}
    for cause in ("sw.shape", "sw.config", "sw.bug", "sw.nan", "sw.ckpt_format", "sw.cuda_oom", "sw.device_assert"):
        assert worth[cause]["reproduces"] > 0.5 and worth[cause]["does_not_reproduce"] < -0.5
    for cause in ("gpu.ecc", "gpu.off_bus", "net.loss", "net.partition", "fs.full", "fs.hang", "host.oom", "host.preempt", "coord.event_lost", "coord.rpc"):
        assert worth[cause]["does_not_reproduce"] > 0.2 and worth[cause]["reproduces"] < -1
    for cause in ("sw.deadlock", "sw.dataloader", "sw.segfault", "sw.rank_skew"):
        assert abs(worth[cause]["reproduces"]) < 0.4 and abs(worth[cause]["does_not_reproduce"]) < 0.4
    assert worth["gpu.sdc"]["diverges"] > 2 and all(worth[c]["diverges"] < 0 for c in CAUSES if c != "gpu.sdc")
