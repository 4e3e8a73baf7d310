"""A healthy run of the same job takes the blame from what it shows too, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import rca
from rca.correlate import baseline
from tests.builders import event, run

WIRE = "ERROR [rank1] mlx5_0: Got completion from peer 10.0.0.1 with status=12 error, vendor err 129, retrying"
TRACE = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\nOSError: [Errno 28] No space left on device\n'
ODD = "2026-11-20 12:10:00,100 ERROR something odd happened in the frobnicator\n"
LEVELS = {"source": None, "severity": "warning"}


def put(folder: Path, *, steps: int, every: int = 20, said: str = WIRE, end: str = "") -> Path:
    """A run of two ranks, of which the second says something every so many steps."""
    folder.mkdir()
    for rank in (0, 1):
        lines = []
        for i in range(steps):
            at = f"2026-11-20 12:{i // 60:02d}:{i % 60:02d},500"
            lines += [f"{at} {said}\n"] if i % every == 7 and rank else []
            lines.append(f"{at} INFO [rank{rank}] step={i} loss=2.0\n")
        lines.append(end if rank or not end.startswith("Trace") else "")
        (folder / f"rank{rank}.log").write_text("".join(lines))
    return folder


def good_end() -> str:
    return "2026-11-20 12:30:00,000 INFO training finished\n"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return put(tmp_path / "good", steps=600, end=good_end())


def named(report, kind: str = "nic.fault") -> list[tuple[str, float]]:
    return [(h.cause, h.confidence) for h in report.judged.hypotheses if h.event.kind == kind]


def test_what_the_healthy_run_shows_too_is_no_cause(tmp_path: Path, good: Path) -> None:
    """It was a hypothesis without the healthy run; with it, it is a note that says how often both have it."""
    bad = put(tmp_path / "bad", steps=120, end=ODD)
    assert named(rca.analyze(bad))
    report = rca.analyze(bad, baseline=good)
    assert not named(report)
    (note,) = [n for n in report.document["notes"] if "healthy run shows this too" in n["text"]]
    assert "30 time(s) there, 6 here" in note["text"] and (note["file"], note["line"]) == ("rank1.log", 8)


def test_more_of_it_is_not_usual(tmp_path: Path) -> None:
    """Ten times the rate is something else."""
    calm = put(tmp_path / "calm", steps=600, every=200, end=good_end())
    for every, usual in ((150, True), (9, False)):
        bad = put(tmp_path / f"bad{every}", steps=600, every=every, end=ODD)
        assert named(rca.analyze(bad)) and bool(named(rca.analyze(bad, baseline=calm))) != usual


def test_what_ended_a_process_is_not_excused_by_what_was_survived(tmp_path: Path) -> None:
    """The healthy run met a full disk, and went on; this one died of it."""
    good = put(tmp_path / "good", steps=600, said="WARNING [rank1] cannot save, will retry\n" + TRACE.rstrip(), end=good_end())
    bad = put(tmp_path / "bad", steps=120, every=999, end=TRACE)
    report = rca.analyze(bad, baseline=good)
    assert report.judged.hypotheses[0].cause == "fs.full"


def test_a_failed_run_given_as_healthy_hides_nothing(tmp_path: Path) -> None:
    """The same failed run on both sides: the verdict stays, and a note says what is wrong."""
    logs = Path(rca.__file__).parent / "bundles" / "disk_full_at_save" / "logs"
    report = rca.analyze(logs, baseline=logs)
    assert report.document["hypotheses"] == rca.analyze(logs).document["hypotheses"]
    assert any("looks failed itself" in n["text"] for n in report.document["notes"])


def test_levels_are_compared() -> None:
    """A counter that grows in the healthy run too is usual up to twice its level; hosts and numbers are no part of the wording."""
    there = event("net.retransmits", "n1 loses 12 packets", attrs={"level": 12.0}, **LEVELS)
    known = baseline.learn(run(there, processes={0: {"first_ns": 0, "last_ns": 10**12}}, hosts=("n1",), outcome="finished"))
    for level, severity in ((20.0, "info"), (40.0, "warning")):
        here = event("net.retransmits", "n2 loses 20 packets", attrs={"level": level}, **LEVELS)
        assert baseline.discount([here], ["n2"], {0: {}}, known)[0].severity == severity
