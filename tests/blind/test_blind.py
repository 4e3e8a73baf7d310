"""Unseen programs: the analyzer keeps what it reached on cases written without sight of its rules."""

from __future__ import annotations

from blind.measure import measure


def test_unseen_programs_get_the_right_cause() -> None:
    """At least nine in ten verdicts and causes are right, no healthy run is called failed, and being sure means being right."""
    found = measure(without="rl-")
    assert found["verdict"] >= 0.9 and found["cause"] >= 0.9
    assert found["alarms"] == 0
    assert found["sure_and_wrong"] <= 0.04 * found["cases"]


def test_unseen_post_training_keeps_its_first_figures() -> None:
    """RL frameworks: the floors are what a first look at unseen cases gave; they rise with the analyzer and never sink."""
    found = measure(only="rl-")
    assert found["verdict"] >= 77 / 92 and found["cause"] >= 43 / 73
    assert found["alarms"] <= 1
    assert found["sure_and_wrong"] <= 13
