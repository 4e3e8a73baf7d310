"""An inconclusive verdict says who speaks, who is not heard, and what to collect next."""

from __future__ import annotations

from pathlib import Path

import rca
from rca.rules.undecided import speakers
from rca.taxonomy import Kind


def test_every_speaker_names_known_kinds_and_what_to_collect() -> None:
    """A mistyped kind would silently never speak."""
    known = {kind.value for kind in Kind}
    for speaker in speakers():
        assert set(speaker["kind"]) <= known and speaker["says"].endswith(".")
        assert all(item["what"] and item["how"] for item in speaker["collect"])


def test_a_lone_waiter_asks_for_the_others(tmp_path: Path) -> None:
    """One rank that timed out cannot tell whom it waited for."""
    work = "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    line = f"[rank3]:[E ProcessGroupNCCL.cpp:530] [Rank 3] Watchdog caught collective operation timeout: {work} ran for 600341 milliseconds before timing out.\n"
    (tmp_path / "log.txt").write_text(line)
    document = rca.analyze(tmp_path / "log.txt").document
    assert document["verdict"] == "inconclusive" and "waited in vain" in document["summary"]
    assert any("py-spy" in item["how"] for item in document["coverage"]["missing"])


def test_words_alone_ask_for_everything(tmp_path: Path) -> None:
    """Nothing failed and nothing finished in these lines."""
    (tmp_path / "log.txt").write_text("step=1 loss=2.0\nstep=2 loss=1.9\n")
    document = rca.analyze(tmp_path / "log.txt").document
    assert document["verdict"] == "inconclusive" and document["coverage"]["missing"]


def test_an_interrupt_is_no_guess_at_memory(tmp_path: Path) -> None:
    """Python raises KeyboardInterrupt for SIGINT; the kernel's OOM killer sends what nothing can catch."""
    (tmp_path / "log.txt").write_text('step=1 loss=2.0\n^CTraceback (most recent call last):\n  File "t.py", line 5, in <module>\n    main()\nKeyboardInterrupt\n')
    report = rca.analyze(tmp_path / "log.txt")
    assert report.verdict == "inconclusive" and all(h.cause != "host.oom" for h in report.judged.hypotheses)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """What is encrypted is no evidence, and the report says what to do with it."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("a.txt", "step=1\n")
    data = bytearray((tmp_path / "logs.zip").read_bytes())
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + flags] |= 1
    (tmp_path / "logs.zip").write_bytes(data)
    document = rca.analyze(tmp_path / "logs.zip").document
    assert "logs.zip!/a.txt (encrypted)" in document["summary"] and "unpack" in document["coverage"]["missing"][0]["how"]
