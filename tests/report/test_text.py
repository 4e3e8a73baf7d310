"""Text for the person at the terminal: one screen, plain, and nothing a log says can act on it."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from rca.report.document import document
from rca.report.text import render
from tests.builders import event, hypothesis, run, verdict
from tests.report.hostile import assert_harmless, poisoned, pools

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_matches_the_golden_file(ecc_report, golden):
    """A usual case fills one screen of 80 columns."""
    text = render(ecc_report)
    golden("ecc.txt", text)
    assert len(text.splitlines()) <= 50
    assert max(map(cell_len, text.splitlines())) <= 80


def test_inconclusive_and_healthy(golden):
    """Without a sure cause the report says what is known and what to collect; a healthy run needs two lines."""
    unsure = verdict(hypothesis(confidence=0.4), verdict="inconclusive", summary="Two causes fit; a kernel log would tell them apart.")
    golden("inconclusive.txt", render(document(run(event()), unsure, seconds=0, version="0.1.0")))
    golden("healthy.txt", render(document(run(), verdict(), seconds=0, version="0.1.0")))


def test_colour_changes_nothing_but_colour(ecc_report):
    """Without colour no escape is written; with colour the words are the same."""
    plain, colored = render(ecc_report), render(ecc_report, color=True)
    assert "\x1b" not in plain
    assert ANSI.sub("", colored) == plain
    assert colored != plain


def test_environment_does_not_matter(ecc_report, monkeypatch):
    """Neither the terminal nor NO_COLOR nor COLUMNS changes what was asked for."""
    expected = render(ecc_report), render(ecc_report, color=True)
    for name, value in (("COLUMNS", "33"), ("NO_COLOR", "1"), ("FORCE_COLOR", "1"), ("TERM", "dumb"), ("JUPYTER_COLUMNS", "9")):
        monkeypatch.setenv(name, value)
    assert (render(ecc_report), render(ecc_report, color=True)) == expected


@pytest.mark.parametrize("retryable", [True, False, None])
def test_every_answer_about_a_retry_has_words(ecc_report, retryable):
    """Null is an answer too."""
    ecc_report["hypotheses"][0]["remedy"]["retryable"] = retryable
    assert re.search(r"^Retry +\w", render(ecc_report), re.MULTILINE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
@given(pool=pools, width=st.integers(20, 140))
def test_hostile_strings_only_show(ecc_report, pool, width):
    """No control character, bidi control, CI command or markup error, whatever the strings and the width."""
    text = render(poisoned(ecc_report, pool), width=width)
    assert_harmless(text)
    assert max(map(cell_len, text.splitlines())) <= max(40, width) + len("\\x3a") - 1  # a CI command at the start of a wrapped row is written out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(width=st.integers(20, 140), lead=st.sampled_from(["", "::error::", "    ", "\t"]))
def test_no_line_starts_with_raw_log_text(ecc_report, width, lead):
    """A cited line stands behind a bar, its continuation too."""
    for item in [e for h in ecc_report["hypotheses"] for e in h["evidence"]]:
        item["text"] = lead + "RAWLOG" * 60
    rows = [row for row in render(ecc_report, width=width).splitlines() if "RAW" in row or "LOG" in row]
    assert rows
    assert all(row.startswith("    │ ") for row in rows)
