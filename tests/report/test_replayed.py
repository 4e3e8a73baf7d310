"""What replays said: one line for people, an entry each for programs, and no place in the run's timeline."""

from __future__ import annotations

import pytest

from rca.report import json as as_json
from rca.report import markdown, text
from rca.report.document import chain, document
from rca.taxonomy import Kind
from tests.builders import event, evidence, hypothesis, run, verdict


def said(kind: str = Kind.REPLAY_NOT_REPRODUCED, of: str = "verdict", **changes):
    """A replay's line, made after the run."""
    attrs = {"of": of, "void": None, "made": 2, **changes.pop("attrs", {})}
    return event(kind, "the failed request does not fail again", **{"severity": "info", "source": "logs/replay.rca.jsonl", "line": 4, "attrs": attrs, **changes})


def report(*replays, **changes):
    """The report on a failed run with these lines of replays."""
    first = changes.pop("first", hypothesis())
    return document(run(event(), *replays), verdict(first), seconds=0, version="0.1.0")


def test_one_line_with_its_address():
    """Text and Markdown say what the replay said, where it stands, and why it is no evidence where it is none."""
    plain = report(said())
    assert "Replay    does not reproduce: the failed request does not fail again" in text.render(plain) and "replay.rca.jsonl:4" in text.render(plain)
    assert "does not reproduce: the failed request" in markdown.render(plain)
    void = report(said(attrs={"void": "the fault was made again for it"}))
    assert "(no evidence: the fault was made again" in " ".join(text.render(void).split())
    assert void["replay"][0]["counts"] is False and plain["replay"][0]["counts"] is True


def test_without_a_replay_there_is_no_field():
    """Reports of runs that nobody replayed stay what they were."""
    assert "replay" not in report() and "Replay" not in text.render(report())


def test_it_stands_in_no_timeline():
    """Nor does it make the run's steps, roles or times."""
    plain = report(said(step=900, role="critic", time_ns=1))
    assert [m["kind"] for m in plain["timeline"]] == ["process.exception"]
    assert plain["run"] == report()["run"] and plain["symptom"] == report()["symptom"]


def test_it_is_no_link_of_the_chain():
    """Its line is evidence, and the way from cause to symptom is the run's own."""
    line = said()
    plain = report(line, first=hypothesis(evidence=(evidence(event()), evidence(line, "mechanism"))))
    (first,) = plain["hypotheses"]
    assert chain(first) == "process.exception" and [e["kind"] for e in first["evidence"]] == ["process.exception", "replay.not_reproduced"]


def test_the_newest_comes_first():
    """Each replay is one entry, with how its other requests came out and the first hand-over that broke."""
    lines = [
        said(attrs={"made": 1}, source="old"), said(Kind.REPLAY_REPRODUCED, source="new"), said(Kind.REPLAY_HAND_OVER_BROKEN, "hand_over", source="new", line=2).but(text="rows are missing"),
        said(Kind.REPLAY_COMPARED, "healthy", source="new", line=3).but(text="40 of 40 came out the same"), said(Kind.REPLAY_DIVERGED, "request", source="third", attrs={"made": 0}),
    ]  # fmt: skip
    new, old, third = report(*lines)["replay"]
    assert (new["verdict"], new["compared"], new["hand_over"]) == ("reproduces", "40 of 40 came out the same", "rows are missing")
    assert (old["verdict"], third["verdict"], third["counts"], third["why_not"]) == ("does not reproduce", None, False, "it has no verdict")


@pytest.mark.parametrize("render", [text.render, markdown.render, as_json.render])
def test_secrets_and_escapes_in_it_are_hidden(render):
    """Its words come from other programs."""
    shown = render(report(said().but(text="failed with password=hunter2hunter2 \x1b[31m in red")))
    assert "hunter2hunter2" not in shown and "\x1b" not in shown
