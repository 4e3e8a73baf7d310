"""Unseen programs: the analyzer keeps what it reached on cases written without sight of its rules."""

from __future__ import annotations

from blind.measure import measure


def test_unseen_programs_get_the_right_cause() -> None:
    """At least nine in ten verdicts and causes are right, no healthy run is called failed, and being sure means being right."""
    found = measure(without="rl-")
    assert found["verdict"] >= 0.9 and found["cause"] >= 0.9
    assert found["alarms"] == 0
    assert found["sure_and_wrong"] <= 0.04 * found["cases"]


def test_post_training_keeps_what_it_reached() -> None:
    """RL frameworks: seen since, except for the hold-out; the floors rise with the analyzer and never sink (first measurement: 77 of 92, 43 of 73, 13)."""
    found = measure(only="rl-")
    assert found["verdict"] >= 80 / 92 and found["cause"] >= 59 / 73
    assert found["alarms"] == 0
    assert found["sure_and_wrong"] <= 3
