"""Lines that no signature was written for: plain words alone name the cause more often than not, and harmless lines stay harmless."""

from __future__ import annotations

from pathlib import Path

from blind.paraphrase import measure

HERE = Path(__file__).parent / "paraphrases"


def _share(name: str, *, signatures: bool = False) -> float:
    rows = measure(HERE / name, signatures=signatures)
    return sum(r["right"] for r in rows) / len(rows)


def test_unread_lines_get_the_right_cause_more_often_than_not() -> None:
    """At least 60 % of lines in wordings that nobody here has read, over 20 classes, by plain words alone."""
    assert _share("test.jsonl") >= 0.6


def test_lines_that_the_vocabulary_was_tried_on() -> None:
    """The lines read while the words were written."""
    assert _share("dev.jsonl") >= 0.9


def test_alarming_but_harmless_lines_are_no_failure() -> None:
    """At most one in twenty harmless lines is taken for a failure, with signatures or without."""
    assert _share("negatives.jsonl") >= 0.95
    assert _share("negatives.jsonl", signatures=True) >= 0.95
