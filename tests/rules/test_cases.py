"""Every rule speaks up in its hit, stays silent in its look-alike, and loses confidence without its decisive lines.

A case is `cases/<family>/<class>/`: folders of logs and a `case.toml` with the truth. `hit*` must put the class first, `look_alike*` must
not, `without` is the hit with its decisive lines removed. A hit of a rule that only guesses says so: `verdict = "inconclusive"`, or "any".
"""

from __future__ import annotations

import shutil
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import rca
from rca.rules import load_rules
from rca.taxonomy import CAUSES

CASES = Path(__file__).parent / "cases"
ORIGINS = ("recorded", "synthetic")  # of the hit: cut from a real run of our own faults, or written by hand in a real format
EXPECTED = {"hit": {"cause", "min", "verdict", "rule", "host", "rank"}, "look_alike": {"max", "cause", "verdict"}, "without": set()}
CLEARLY = 0.2  # a fall in confidence that an operator notices; half of what it was will do for guesses that had little
LONGEST = 200  # lines of one file: a case is read by people


def _cases() -> dict[str, dict[str, Any]]:
    return {p.parent.relative_to(CASES).as_posix(): tomllib.loads(p.read_text("utf-8")) for p in sorted(CASES.rglob("case.toml"))}


TRUTH = _cases()
GAPS = tomllib.loads((Path(__file__).parent / "known_gaps.toml").read_text("utf-8"))


def _folders(kind: str) -> list:
    found = [(rule, f.name) for rule in TRUTH for f in sorted((CASES / rule).iterdir()) if f.is_dir() and _kind(f.name) == kind]
    return [pytest.param(rule, folder, id=f"{rule}:{folder}", marks=_gap(f"{rule}:{folder}")) for rule, folder in found]


def _gap(name: str) -> list:
    return [pytest.mark.xfail(strict=True, reason=GAPS[name])] if name in GAPS else []


def _kind(folder: str) -> str:
    return next((k for k in EXPECTED if folder == k or folder.startswith(f"{k}_")), "")


@lru_cache
def _analyze(rule: str, folder: str, under: Path) -> dict[str, Any]:
    """The report on one folder of logs, read from a place whose name tells nothing."""
    shutil.copytree(CASES / rule / folder, under / "logs")
    try:
        return rca.analyze([under / "logs"]).document
    finally:
        shutil.rmtree(under / "logs")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    under = tmp_path_factory.mktemp("run")
    return lambda rule, folder: _analyze(rule, folder, under)


def _confidence(document: dict[str, Any], cause: str) -> float:
    return next((h["confidence"] for h in document["hypotheses"] if h["cause"] == cause), 0.0)


def _first(document: dict[str, Any]) -> str:
    """The first hypothesis in words, for a message that tells what came out instead."""
    found = ", ".join(f"{h['cause']} {h['confidence']:.2f} ({h['rule']})" for h in document["hypotheses"][:3])
    return f"{document['verdict']}: {found or 'no hypothesis'}"


def test_gaps_name_cases() -> None:
    """The list of known gaps holds nothing but cases that exist."""
    assert {name for name in GAPS if not (CASES / name.replace(":", "/")).is_dir()} == set()


def test_every_rule_has_a_case() -> None:
    """A rule without a hit, a look-alike and the hit without its decisive lines is not finished."""
    assert set(TRUTH) == {rule.id for rule in load_rules()}
    for rule in TRUTH:
        assert {"hit", "look_alike", "without"} <= {f.name for f in (CASES / rule).iterdir()}, rule


@pytest.mark.parametrize("rule", TRUTH)
def test_case_is_honest_and_small(rule: str) -> None:
    """A case says where it comes from and what it shows, in words of the taxonomy, in files that a person can read."""
    truth = TRUTH[rule]
    assert truth["origin"] in ORIGINS and len(truth["note"]) > 20
    assert truth["hit"]["cause"] in next(r for r in load_rules() if r.id == rule).causes
    folders = {f.name for f in (CASES / rule).iterdir() if f.is_dir()}
    assert set(truth) - {"origin", "note"} <= folders
    for folder in folders:
        expected = truth.get(folder, {})
        assert set(expected) <= EXPECTED[_kind(folder)], folder
        assert expected.get("cause", truth["hit"]["cause"]) in CAUSES
        for path in (CASES / rule / folder).rglob("*"):
            assert path.is_dir() or path.read_text("utf-8").count("\n") <= LONGEST, path


@pytest.mark.parametrize(("rule", "folder"), _folders("hit"))
def test_hit(rule: str, folder: str, report) -> None:
    """The rule's class is the first hypothesis, with enough confidence and at the right place."""
    truth, document = TRUTH[rule].get(folder, TRUTH[rule]["hit"]), report(rule, folder)
    assert document["hypotheses"] and document["hypotheses"][0]["cause"] == truth["cause"], _first(document)
    first = document["hypotheses"][0]
    assert first["confidence"] >= truth["min"], _first(document)
    verdict = truth.get("verdict", "failed")
    assert verdict == "any" or document["verdict"] == verdict, _first(document)
    assert "rule" not in truth or first["rule"] == truth["rule"], _first(document)
    place = {name: truth[name] for name in ("host", "rank") if name in truth}
    assert {name: first["entity"][name] for name in place} == place


@pytest.mark.parametrize(("rule", "folder"), _folders("look_alike"))
def test_look_alike(rule: str, folder: str, report) -> None:
    """What fools a careless reader does not fool the rule; where the true cause is in the logs, it comes first."""
    truth, document = TRUTH[rule].get(folder, TRUTH[rule]["look_alike"]), report(rule, folder)
    first = document["hypotheses"][0] if document["hypotheses"] else None
    cause = TRUTH[rule]["hit"]["cause"]
    assert first is None or first["cause"] != cause or first["confidence"] < truth["max"], _first(document)
    assert "cause" not in truth or (first is not None and first["cause"] == truth["cause"]), _first(document)
    assert "verdict" not in truth or document["verdict"] == truth["verdict"], _first(document)


@pytest.mark.parametrize(("rule", "folder"), _folders("without"))
def test_without(rule: str, folder: str, report) -> None:
    """The hit without its decisive lines: the class falls clearly."""
    cause = TRUTH[rule]["hit"]["cause"]
    before, after = _confidence(report(rule, "hit"), cause), _confidence(report(rule, folder), cause)
    assert before - after >= CLEARLY or after <= before / 2, f"{before:.2f} -> {after:.2f}, {_first(report(rule, folder))}"
