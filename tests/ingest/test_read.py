"""Files to readings: large files by excerpts, compressed ones like plain ones, and names that say who wrote."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import rca
from rca.ingest.read import LINE_CUT, document, error_document, ingest, named
from rca.ingest.reader import Reader
from rca.ingest.sources import list_sources

TRACE = (
    'Traceback (most recent call last):\n  File "/srv/train.py", line 161, in save_checkpoint\n    torch.save(state, file)\n'
    "OSError: [Errno 28] No space left on device: '/mnt/ckpt/step_7.pt'\n"
)


def filler(start: int, count: int) -> str:
    return "".join(f"2026-11-20 {12 + i // 3600 % 12:02d}:{i // 60 % 60:02d}:{i % 60:02d},000 [rank0] INFO train: step={i} loss=2.0 tokens=4096\n" for i in range(start, start + count))


@pytest.fixture(scope="module")
def large() -> tuple[str, int]:
    """A log of three megabytes with one traceback in its middle, and the line on which the error stands."""
    before, after = filler(0, 20_000), filler(20_000, 20_000)
    return before + TRACE + after, 20_000 + 4


def causes(report) -> list[tuple[str, float]]:
    return [(h["cause"], h["confidence"]) for h in report.document["hypotheses"]]


def test_error_in_the_middle_of_a_large_file_has_its_line_number(tmp_path: Path, large: tuple[str, int]) -> None:
    """Only excerpts are decoded, and still the cited line is counted exactly."""
    text, line = large
    assert len(text) > 2_900_000
    (tmp_path / "rank0.log").write_text(text)
    report = rca.analyze(tmp_path / "rank0.log", workers=1)
    (event,) = [e for e in report.run.events if e.kind == "storage.no_space"]
    assert (event.step, event.path) == (19_999, "/mnt/ckpt/step_7.pt")
    cited = [e for h in report.document["hypotheses"] for e in h["evidence"] if "No space left" in e["text"]]
    noted = [n.get("line") for n in report.document.get("notes", ()) if "No space left" in json.dumps(n)]
    assert line in [e["line"] for e in cited] + noted


@pytest.mark.parametrize("frames", [3, 60, 2000])
def test_a_block_is_read_to_its_end(tmp_path: Path, frames: int) -> None:
    """A traceback within a large file is one event that knows its last line and its innermost frames, however long it is."""
    stack = "".join(f'  File "/srv/module_{i}.py", line {i}, in function_{i}\n    call_{i}()\n' for i in range(frames))
    trace = f"Traceback (most recent call last):\n{stack}OSError: [Errno 28] No space left on device: '/mnt/a.pt'\n"
    (tmp_path / "rank0.log").write_text(filler(0, 5000) + trace + filler(5000, 5000))
    events = [e for e in ingest([tmp_path], workers=1)[0][0].events if e.kind == "storage.no_space"]
    assert [e.path for e in events] == ["/mnt/a.pt"]
    assert events[0].attrs["frames"][-1][2] == f"function_{frames - 1}"


def test_large_file_that_ends_with_the_error_is_a_full_disk(tmp_path: Path, large: tuple[str, int]) -> None:
    """The error at the very end of three megabytes is the cause, with its exact line."""
    text, _ = large
    (tmp_path / "rank0.log").write_text(text + TRACE.replace("step_7", "step_8"))
    first = rca.analyze(tmp_path / "rank0.log", workers=1).document["hypotheses"][0]
    assert first["cause"] == "fs.full"
    assert 40_000 + 8 in [e["line"] for e in first["evidence"]]


def test_compressed_file_gives_the_same_cause(tmp_path: Path) -> None:
    """gzip changes the name and nothing else."""
    text = filler(0, 50) + TRACE
    (tmp_path / "plain").mkdir()
    (tmp_path / "packed").mkdir()
    (tmp_path / "plain" / "rank0.log").write_text(text)
    (tmp_path / "packed" / "rank0.log.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = rca.analyze(tmp_path / "plain", workers=1), rca.analyze(tmp_path / "packed", workers=1)
    assert causes(plain) == causes(packed) and causes(plain)[0][0] == "fs.full"
    assert [e["line"] for e in packed.document["hypotheses"][0]["evidence"]] == [e["line"] for e in plain.document["hypotheses"][0]["evidence"]]


def test_readings_are_sorted_and_account_for_every_byte(tmp_path: Path) -> None:
    """One reading per file in the order of names, and its bytes add up."""
    for name in ("b.log", "a.log"):
        (tmp_path / name).write_text(filler(0, 3) + TRACE)
    readings, sources = ingest([tmp_path], workers=1)
    assert [r.source.rsplit("/", 1)[-1] for r in readings] == ["a.log", "b.log"] and list(sources) == [r.source for r in readings]
    assert all(r.parsed + r.plain + r.skipped == r.size for r in readings)


def test_very_long_line_does_not_hide_the_next(tmp_path: Path) -> None:
    """A line of a megabyte is cut, and the traceback after it is still read with its line number."""
    (tmp_path / "rank0.log").write_text("x" * (LINE_CUT * 3) + "\n" + filler(0, 1) + TRACE)
    readings, _ = ingest([tmp_path], workers=1)
    assert [(e.kind, e.line) for e in readings[0].events] == [("storage.no_space", 6)]


def test_carriage_returns_do_not_hide_an_error(tmp_path: Path) -> None:
    """A progress bar that redraws itself and an error may share one physical line."""
    (tmp_path / "rank0.log").write_bytes(b" 10%|#\r 20%|##\r 30%|###\rOSError: [Errno 28] No space left on device: '/a.pt'\n")
    readings, _ = ingest([tmp_path], workers=1)
    assert [(e.kind, e.line) for e in readings[0].events] == [("storage.no_space", 1)]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("logs/none_ab12cd34/attempt_1/3/stderr.log", {"tree": "logs/none_ab12cd34", "attempt": 1, "local_rank": 3}),
        ("worker_2.log", {"named_rank": 2}),
        ("logs/rank7.log.gz", {"named_rank": 7}),
        ("console.n17.log", {"tokens": ("n17",)}),
        ("engine_train-0.log", {"actor": "engine_train-0"}),
        ("console.log", {}),
    ],
)
def test_name_says_who_wrote(name: str, says: dict) -> None:
    """Attempt and local rank, a rank, a host or an actor: what a path tells, and nothing more."""
    assert named(name) == says


def test_error_document_is_known_by_its_shape() -> None:
    """An error file states text, stack and epoch; other JSON and broken JSON are none."""
    found = error_document(b'{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1795176000"}}}')
    assert found is not None and (found["text"], found["stack"], found["epoch"]) == ("ValueError: boom", "Traceback", 1795176000)
    for data in (b'{"message": {"text": 1}}', b'{"message": ', b'{"other": 1}', b"[]", b""):
        assert error_document(data) is None


def test_endless_digits_are_no_number_and_lose_no_line(tmp_path: Path) -> None:
    """Python reads no number of more than 4300 digits: such a line is kept, and so are those around it."""
    digits = "9" * 5000
    text = f"rank={digits} pid={digits} hostname=n1 world_size={digits}\nstep {digits} loss 2.0\nOSError: [Errno 28] No space left on device: '/a.pt'\n"
    (tmp_path / "rank0.log").write_text(text)
    (tmp_path / "attempt_99999999999" / "0").mkdir(parents=True)
    (tmp_path / "attempt_99999999999" / "0" / "stderr.log").write_text(text)
    readings, _ = ingest([tmp_path], workers=1)
    assert [[(e.kind, e.line) for e in r.events] for r in readings] == [[("storage.no_space", 3)]] * 2
    assert rca.analyze(tmp_path, workers=1).verdict == "failed"


def test_odd_digits_of_an_error_document_lose_nothing() -> None:
    """A stack may state a line of thousands of digits, or none that Python counts as decimal."""
    for number in ("9" * 5000, "\u00b2"):
        stack = f'Traceback (most recent call last):\n  File "t.py", line {number}, in main\nValueError: boom'
        found = error_document(json.dumps({"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": stack}}}).encode())
        assert found is not None
        reader = Reader("error.json")
        document(reader, found, (1, 0, found["raw"]), [])
        assert [e["text"] for e in reader.finish()["events"]] == ["ValueError: boom"]


def test_impossible_times_of_an_error_document_are_none() -> None:
    """A time before there were such runs, or beyond every calendar, is not stated."""
    for stamp, epoch in ((1795176000, 1795176000), (-5, None), (10**23, None), (1e300, None), (None, None)):
        found = error_document(json.dumps({"message": {"message": "x", "extraInfo": {"timestamp": stamp}}}).encode())
        assert found is not None and found["epoch"] == epoch


def test_lines_are_counted_alike_by_one_and_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever counts, the line of an offset is the number of newlines before it, plus one."""
    from rca.ingest import read

    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.log").write_text("".join(f"{name} {i}\n" for i in range(5000)))
    sources = {s.name: s for s in list_sources([tmp_path])}
    wanted = {name: [20_000, 7, 7, 12_345] for name in sources}
    alone = read.resolve_lines(sources, wanted)
    monkeypatch.setattr(read, "COUNT_ALONE_BYTES", 0)
    assert read.resolve_lines(sources, wanted) == alone
    assert all(line == (tmp_path / name).read_bytes()[:offset].count(b"\n") + 1 for (name, offset), line in alone.items())
