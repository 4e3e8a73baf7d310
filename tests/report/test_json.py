"""JSON for programs: deterministic, strict, and harmless on a terminal."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from rca.report.json import render
from tests.report.hostile import assert_harmless, poisoned, pools


def test_matches_the_golden_file(ecc_report, golden):
    """The bytes are known."""
    golden("ecc.json", render(ecc_report))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(pool=pools)
def test_hostile_strings_only_show(ecc_report, pool):
    """Every value comes back as it went in, and no character acts on what shows it."""
    doc = poisoned(ecc_report, pool)
    text = render(doc)
    assert json.loads(text) == doc
    assert text.isascii()
    assert_harmless(text)


def test_nan_is_refused(ecc_report):
    """A number that is no JSON is our own bug, never output."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        render(ecc_report | {"unknown_probability": float("nan")})
