"""Markdown that no log line breaks out of."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from markdown_it import MarkdownIt

from rca.report.document import document
from rca.report.markdown import code, fence, prose, render
from tests.builders import run, verdict
from tests.report.hostile import ATTACKS, assert_harmless, poisoned, pools

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ACTIVE = {"html_block", "html_inline", "link_open", "image", "table_open", "blockquote_open", "s_open", "hr"}


def tokens(text):
    """All tokens, those inside of lines included."""
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def test_matches_the_golden_file(ecc_report, golden):
    """The report of a usual case."""
    golden("ecc.md", render(ecc_report))


def test_healthy_run_is_two_lines():
    """Nothing failed: nothing more to say."""
    assert render(document(run(), verdict(), seconds=0, version="0.1.0")) == "# HEALTHY\n\nthe run finished\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(pool=pools)
def test_hostile_strings_only_show(ecc_report, pool):
    """No HTML, link, image or heading comes from a log, and every cited line stays in its own fence."""
    doc = poisoned(ecc_report, pool)
    text = render(doc)
    assert_harmless(text)
    parsed = list(tokens(text))
    assert not {t.type for t in parsed} & ACTIVE
    assert sum(t.type == "fence" for t in parsed) == len(doc["hypotheses"][0]["evidence"])
    assert sum(t.type == "heading_open" for t in parsed) == sum(t.type == "heading_open" for t in tokens(render(ecc_report)))


def test_fence_is_longer_than_any_inside():
    """Backticks of a log do not end the fence."""
    assert fence(7, "a ```` b") == "`````text\n7 │ a ```` b\n`````"


def test_code_span_keeps_its_backticks():
    """A code span shows what it holds, backticks included."""
    for text in (*ATTACKS, "`x", "x`", "a `` b"):
        spans = [t.content for t in tokens(f"x {code(text)} y") if t.type == "code_inline"]
        assert len(spans) == 1
        assert "\n" not in spans[0]


def test_prose_mentions_nobody():
    """A log that names `@someone` sends nobody a message."""
    assert not re.search(r"@\w", prose("ping @someone, a@b"[:13]))
    assert prose("* x <b> [y](z)") == "\\* x \\<b\\> \\[y\\](z)"
