"""Real failures: torchrun jobs that are really broken, and what the analyzer says about their logs.

Every fault of `faults.py` is made once per session, two at a time, while the tests of the earlier ones run. A fault that this
machine does not allow is skipped by the name of the missing mechanism. Needs torch, Linux and mostly root; takes two to
four minutes on two cores.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from torchrun.faults import FAULTS, HEALTHY
from torchrun.harness import Fault, lacking, record

pytestmark = [pytest.mark.real, pytest.mark.skipif(importlib.util.find_spec("torch") is None or sys.platform != "linux", reason="needs torch on Linux")]

JOBS_AT_A_TIME = 2  # each job starts three or four processes; more only make each other late on two cores
CONFIDENT = 0.8  # at this confidence a wrong answer sends someone the wrong way
SHOWN_CHARS = 60  # of a cited line, compared with the file (reports cut long lines and redact secrets)


@pytest.fixture(scope="session")
def recordings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future]]:
    """The log folder of every fault that some selected test asks for, as a future."""
    wanted = dict.fromkeys(item.callspec.params["name"] for item in request.session.items if "recordings" in getattr(item, "fixturenames", ()))
    pool = ThreadPoolExecutor(JOBS_AT_A_TIME)

    def make(fault: Fault) -> Path:
        folder = tmp_path_factory.mktemp("run", numbered=True) / "logs"  # the folder's name must not tell
        record(fault, folder)
        return folder

    yield {name: pool.submit(make, FAULTS[name]) for name in wanted if not lacking(FAULTS[name].needs)}
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def reports() -> dict[str, dict]:
    """Reports that were made already, by fault."""
    return {}


@pytest.fixture
def folder(name: str, recordings: dict[str, Future]) -> Path:
    if need := lacking(FAULTS[name].needs):
        pytest.skip(f"this machine does not allow: {need}")
    return recordings[name].result()


@pytest.fixture
def report(name: str, folder: Path, reports: dict[str, dict]) -> dict:
    import rca

    if name not in reports:
        reports[name] = rca.analyze([folder]).document
    return reports[name]


BROKEN = [name for name, fault in FAULTS.items() if fault.truth.causes]
PLACED = [name for name in BROKEN if FAULTS[name].truth.rank is not None]
UNBROKEN = [name for name in FAULTS if name not in BROKEN]


def first(report: dict) -> dict:
    return report["hypotheses"][0] if report["hypotheses"] else {}


def abstained(name: str, report: dict) -> bool:
    """Whether the report says that it cannot tell, where an expert may say so too."""
    return report["verdict"] == "inconclusive" and "inconclusive" in FAULTS[name].truth.verdicts


@pytest.mark.parametrize("name", FAULTS)
def test_verdict_is_one_an_expert_may_give(name: str, report: dict) -> None:
    """A broken run is called failed, a run that finished is called healthy."""
    assert report["verdict"] in FAULTS[name].truth.verdicts, report["summary"]


@pytest.mark.parametrize("name", BROKEN)
def test_first_hypothesis_names_the_cause(name: str, report: dict) -> None:
    """The first hypothesis is of a class that an expert would accept."""
    if abstained(name, report):
        return
    assert first(report).get("cause") in FAULTS[name].truth.causes, [(h["cause"], h["confidence"]) for h in report["hypotheses"]]


@pytest.mark.parametrize("name", PLACED)
def test_first_hypothesis_names_the_rank(name: str, report: dict) -> None:
    """The rank that broke is named, not the one that complained."""
    if abstained(name, report):
        return
    assert first(report)["entity"]["rank"] == FAULTS[name].truth.rank


@pytest.mark.parametrize("name", BROKEN)
def test_no_other_host_is_blamed(name: str, report: dict) -> None:
    """The only host there is may be named by any of its names, or not at all."""
    names = {socket.gethostname(), socket.getfqdn(), socket.gethostname().split(".")[0], "localhost", None}
    assert {h["entity"]["host"] for h in report["hypotheses"]} <= names


@pytest.mark.parametrize("name", BROKEN)
def test_cause_is_proved_by_a_line(name: str, folder: Path, report: dict) -> None:
    """At least one line is cited for the cause, and every cited line stands where the report says."""
    if abstained(name, report):
        return
    cited = first(report).get("evidence", [])
    assert any(line["link"] == "cause" for line in cited) or first(report).get("inferred"), cited
    for line in (line for h in report["hypotheses"] for line in h["evidence"]):
        lines = (folder / line["file"]).read_bytes().decode("utf-8", "replace").split("\n")
        assert line["text"].strip()[:SHOWN_CHARS] in lines[line["line"] - 1], line


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_answers_are_never_confident(name: str, report: dict) -> None:
    """No hypothesis of a class that an expert would reject is given much confidence."""
    wrong = [(h["cause"], h["confidence"]) for h in report["hypotheses"] if h["cause"] not in FAULTS[name].truth.causes]
    assert all(confidence < CONFIDENT for _, confidence in wrong), wrong


@pytest.mark.parametrize("name", UNBROKEN)
def test_healthy_runs_are_not_blamed_for_anything(name: str, report: dict) -> None:
    """A run that finished has no hypotheses, whatever frightening lines it printed."""
    assert FAULTS[name].truth.verdicts == (HEALTHY,)
    assert report["hypotheses"] == []
