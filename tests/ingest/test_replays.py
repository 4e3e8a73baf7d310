"""Results of replays are recognised by what they hold, read with care, and never taken for logs."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
import replays

import rca
from rca.ingest.read import ingest
from rca.taxonomy import Kind


def read(path: Path) -> Any:
    """The one reading of a file."""
    (found,) = ingest([path], workers=1)[0]
    return found


@pytest.mark.parametrize("name", ["replay.rca.jsonl", "worker-3.log", "notes", "deep/er/rank7.err"])
def test_it_is_known_by_its_first_line(tmp_path: Path, name: str) -> None:
    """Whatever it is called and wherever it lies: a verdict with its address, and no stream of any process."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(replays.text(replays.healthy(), replays.verdict()), "utf-8")
    reading = read(path)
    compared, said = reading.events
    assert (reading.format, reading.damaged, reading.reason, reading.skipped) == ("rca_replay", 0, None, 0)
    assert not reading.facts["streams"] and reading.parsed == path.stat().st_size
    assert (said.kind, said.line, said.role, said.rank, said.host, said.step, said.stage, said.request_id) == (Kind.REPLAY_NOT_REPRODUCED, 3, "train", 0, "gpu-1", 3, "train", "a1-7")
    assert said.attrs["raw"] == path.read_text().splitlines()[2] and said.attrs["void"] is None and said.attrs["compared"] == 40
    assert path.read_bytes()[said.offset :].startswith(b'{"e": "verdict"') and compared.kind == Kind.REPLAY_COMPARED


def test_packed_and_in_an_archive(tmp_path: Path) -> None:
    """Compressed, or a member of an archive: the same."""
    text = replays.text(replays.verdict("reproduces"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.gz").write_bytes(gzip.compress(text.encode()))
    plain = replays.write(tmp_path, replays.verdict("reproduces"))
    with tarfile.open(tmp_path / "a" / "logs.tar", "w") as packed:
        packed.add(plain, "inner/whatever.txt")
    found = [e.kind for r in ingest([tmp_path / "a"], workers=1)[0] for e in r.events]
    assert found == [Kind.REPLAY_REPRODUCED, Kind.REPLAY_REPRODUCED]


@pytest.mark.parametrize(("what", "kind"), [("reproduces", Kind.REPLAY_REPRODUCED), ("does not reproduce", Kind.REPLAY_NOT_REPRODUCED), ("diverges", Kind.REPLAY_DIVERGED), ("cannot tell", Kind.REPLAY_UNDECIDED)])
def test_each_verdict_has_its_kind(tmp_path: Path, what: str, kind: str) -> None:
    """Only other numbers are a complaint by themselves."""
    (said,) = read(replays.write(tmp_path, replays.verdict(what))).events
    assert said.kind == kind and said.severity == ("warning" if what == "diverges" else "info")


@pytest.mark.parametrize(("header", "why"), [({"with_fault": True}, "the fault was made again"), ({"same_environment": False}, "not that of the run"), ({"same_environment": None}, "does not say"), ({"with_fault": "no"}, "does not say")])
def test_what_is_no_evidence_says_why(tmp_path: Path, header: dict[str, Any], why: str) -> None:
    """With the fault in it, in another environment, or where that is not stated."""
    (said,) = read(replays.write(tmp_path, replays.verdict("diverges"), **header)).events
    assert why in said.attrs["void"] and said.severity == "info"


def test_torn_lines_are_counted(tmp_path: Path) -> None:
    """A half line, bytes that are no text, and lines of something else cost themselves only."""
    lines = replays.text(replays.request("reproduces"), replays.verdict("reproduces")).splitlines()
    path = tmp_path / "r"
    path.write_bytes("\n".join([lines[0], lines[1][:80], "[1, 2]", '{"e":"who"}', '{"e":"verdict","verdict":"perhaps"}', '{"e":"request","outcome":["diverges"]}', lines[2]]).encode() + b"\n\xff\xfe\0\n" + lines[1][:30].encode())
    reading = read(path)
    assert [e.kind for e in reading.events] == [Kind.REPLAY_REPRODUCED] and reading.damaged == 7


def test_without_its_verdict_it_says_nothing_of_the_cause(tmp_path: Path) -> None:
    """The last line was torn off: what is left are requests."""
    path = tmp_path / "r"
    path.write_text(replays.text(replays.request("reproduces"), replays.verdict("reproduces"))[:-40])
    assert [e.attrs["of"] for e in read(path).events] == ["request"]


@pytest.mark.parametrize("version", ["2", "1.1", "x" * 39])
def test_another_version_is_a_stated_gap(tmp_path: Path, version: str) -> None:
    """Not one byte of it is used; the report names the file and what would help, and is incomplete."""
    (tmp_path / "train.log").write_text("RuntimeError: boom\n")
    replays.write(tmp_path, replays.verdict(), schema=f"rca.replay/{version}")
    report = rca.analyze(tmp_path, workers=1)
    ((name, reason),) = report.skipped
    assert name == "replay.rca.jsonl" and f"rca.replay/{version}" in reason and "rca replay" in reason
    assert report.incomplete and "replay" not in report.document


def test_without_its_header_it_is_a_gap_too(tmp_path: Path) -> None:
    """Whether it is evidence stood in the first line; its lines are not read as those of a log."""
    path = tmp_path / "replay.rca.jsonl"
    path.write_text(replays.text(replays.request("diverges", error="RuntimeError: CUDA out of memory"), replays.verdict()).split("\n", 1)[1])
    reading = read(path)
    assert not reading.events and "without its first line" in str(reading.reason)


@pytest.mark.parametrize("name", ["train-0-n1-7.requests.jsonl", "renamed.log"])
def test_a_recording_is_no_log(tmp_path: Path, name: str) -> None:
    """Requests with their arguments and errors are what a replay starts from; the report says that one could be made."""
    folder = tmp_path / "recording"
    folder.mkdir()
    lines = [{"schema": "rca.recording/1", "host": "n1", "pid": 7}, {"e": "outcome", "t": 1, "id": "1", "ok": False, "error": {"type": "OSError", "text": "[Errno 28] No space left on device"}}]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "train.log").write_text("[rank0]: RuntimeError: boom\nTraceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nValueError: x\n")
    report = rca.analyze(tmp_path, workers=1)
    assert not any("recording" in (e.source or "") for e in report.run.events) and not report.incomplete
    assert "rca replay RUN" in [m["how"] for m in report.document["coverage"]["missing"]]
    replays.write(tmp_path, replays.verdict())
    assert "rca replay RUN" not in [m["how"] for m in rca.analyze(tmp_path, workers=1).document["coverage"]["missing"]]


def test_several_replays_in_one_file(tmp_path: Path) -> None:
    """Each header begins another; each has its own verdict, and its own say whether it counts."""
    path = tmp_path / "r"
    path.write_text(replays.text(replays.verdict("reproduces"), with_fault=True) + replays.text(replays.verdict()))
    first, second = read(path).events
    assert (first.kind, second.kind) == (Kind.REPLAY_REPRODUCED, Kind.REPLAY_NOT_REPRODUCED)
    assert first.attrs["void"] and not second.attrs["void"]


def test_who_else_gave_other_numbers(tmp_path: Path) -> None:
    """Ranks that exchange their numbers differ in the same step; another worker in another step is another finding."""
    together = [replays.request(), replays.request(rank=1, request="a1-8")]
    apart = [replays.request(), replays.request(role="rollout", rank=1, stage="rollout", step=2), replays.request(rank=1, step=2)]
    often = [replays.request(step=step) for step in (3, 4, 5)]
    summed = [line for step in (3, 4, 5) for line in (replays.request(step=step), replays.request(rank=1, step=step, because_of="train/0"))]
    for lines, same, others, alone, steps in ((summed, 34, 0, True, 3), (together, 38, 0, True, 1), (apart, 37, 2, False, 1), (often, 37, 0, True, 3), (often, 36, 0, False, 3), (often, 5, 0, False, 3)):
        *_, said = read(replays.write(tmp_path, *lines, replays.healthy(40, same), replays.verdict("diverges"))).events
        assert (said.attrs["others_differ"], said.attrs["others_same"], said.attrs["steps_differ"]) == (others, alone, steps)


def test_a_world_that_differs_together_leaves_the_rank_open(tmp_path: Path) -> None:
    """All ranks share what they add up: step after step each gives other numbers, and which of them was wrong is not known; the host is where all of them live on one."""
    lines = [replays.request(step=step, rank=rank, host=host) for step in (3, 4) for rank, host in ((0, "n1"), (1, "n1"))]
    *_, said = read(replays.write(tmp_path, *lines, replays.healthy(40, 36), replays.verdict("diverges", step=3, host="n1"))).events
    assert (said.attrs["together"], said.attrs["others_differ"], said.attrs["others_same"], said.rank, said.host) == (1, 0, True, None, "n1")
    lines[-1]["host"] = lines[-3]["host"] = "n2"
    *_, said = read(replays.write(tmp_path, *lines, replays.healthy(40, 36), replays.verdict("diverges", step=3, host="n1"))).events
    assert (said.attrs["together"], said.rank, said.host) == (1, None, None)
    *_, said = read(replays.write(tmp_path, replays.request(host="n1"), replays.healthy(40, 39), replays.verdict("diverges", host="n1"))).events
    assert (said.attrs["together"], said.rank, said.host) == (0, 0, "n1")


@pytest.mark.parametrize(("stage", "method", "known"), [("train", "generate", "train"), (None, "train_batch", "train"), (None, "upload_weights", "weights_update"), (None, "event", None), ("nowhere", "generate", "rollout")])
def test_a_run_that_was_not_traced_has_the_stage_of_the_method(tmp_path: Path, stage: str | None, method: str, known: str | None) -> None:
    """Nothing told the recording in which stage it was; the name of what was called does, where it does."""
    *_, said = read(replays.write(tmp_path, replays.verdict("diverges", stage=stage, method=method))).events
    assert said.stage == known


def test_nothing_in_it_makes_the_analysis_fail(tmp_path: Path) -> None:
    """Values of every wrong type, endless numbers and texts, nesting, lone surrogates, shuffled bytes."""
    rng = random.Random(7)
    strange: list[Any] = [None, True, -1, 1 << 70, 1e308, "", "x" * 5000, "\ud800", [1], {"a": {}}, "\x1b[31m", "../../etc", [[[[]]]], "NaN"]
    names = list(replays.verdict()) + list(replays.request()) + list(replays.hand_over()) + ["count", "identical", "time", "schema", "with_fault"]
    for number in range(60):
        lines = [replays.request(), replays.hand_over(), replays.healthy(), replays.verdict(rng.choice(["diverges", "reproduces"]))]
        for line in lines:
            for name in rng.sample(names, 4):
                line[name] = rng.choice(strange)
        data = bytearray(replays.text(*lines, time=rng.choice(strange)).encode("utf-8", "replace"))
        for _ in range(rng.choice([0, 0, 5])):
            data[rng.randrange(data.index(b"\n") + 1, len(data))] = rng.randrange(1, 256)
        (tmp_path / f"{number}.jsonl").write_bytes(bytes(data) + (b"[" * 100_000 if number % 7 == 0 else b'{"e":"verdict","t":' + b"9" * 5000 + b"}"))
    (tmp_path / "train.log").write_text("RuntimeError: boom\n")
    report = rca.analyze(tmp_path, workers=1)
    formats = [s["format"] for s in json.loads(json.dumps(report.document))["coverage"]["sources"]]
    assert formats.count("rca_replay") == 60


def test_a_huge_one_is_bounded(tmp_path: Path) -> None:
    """The first requests become events, the others a number; the verdict behind them all is read."""
    path = tmp_path / "r"
    line = json.dumps(replays.request("does not reproduce")) + "\n"
    path.write_text(replays.text() + line * 5000 + json.dumps(replays.verdict()) + "\n")
    reading = read(path)
    assert len(reading.events) == 201 and reading.events[-1].attrs["requests"] == 5000 and reading.events[-1].line == 5002
