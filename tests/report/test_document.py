"""The JSON report keeps its contract: every key, null where unknown, the same bytes for the same input."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rca.model import Evidence
from rca.report import json as as_json
from rca.report.document import document, doubts, iso, percent, place, shown_evidence, when
from rca.taxonomy import Kind
from tests.builders import NOON_NS, SECOND_NS, event, evidence, hypothesis, missing, reading, record, run, verdict

KEYS = {
    "": "schema rca_version verdict unknown_probability summary hypotheses symptom timeline run coverage notes stats",
    "hypotheses": "cause confidence rule title summary inferred entity cause_stage cause_step cause_time cause_time_error_ms time_assumed "
    "symptom_stage symptom_step evidence missing remedy",
    "hypotheses.entity": "host role rank gpu bus_id nic pid path group",
    "hypotheses.evidence": "file line text kind link time host rank",
    "hypotheses.missing": "what how",
    "hypotheses.remedy": "action text retryable cordon",
    "symptom": "file line text stage rank host",
    "timeline": "time kind text host rank stage step file line",
    "run": "hosts ranks roles attempts first_time last_time last_step framework",
    "coverage": "sources missing clock_offsets",
    "coverage.sources": "file format lines bytes host rank first_time last_time damaged",
    "coverage.missing": "what how",
    "notes": "text file line",
    "stats": "bytes events seconds",
    "stats.bytes": "parsed text skipped",
}


def report(*events, hypotheses=(), **changes):
    return document(run(*events, **changes), verdict(*hypotheses), seconds=0.5, version="0.1.0")


def at(doc, path):
    for key in filter(None, path.split(".")):
        doc = doc[key]
        doc = doc[0] if isinstance(doc, list) else doc
    return doc


@pytest.mark.parametrize("path", KEYS)
def test_every_key_of_the_contract_is_there_and_in_its_order(ecc_report, path):
    """Extra keys may follow; none is missing, and the contract's order is kept."""
    got = list(at(ecc_report, path))
    assert got[: len(KEYS[path].split())] == KEYS[path].split()


def test_unknown_is_null():
    """What no source said is null, never 0 or an empty text."""
    bare = event(time_ns=None, host=None, role=None, rank=None, stage=None, step=None)
    doc = report(
        bare, hypotheses=(hypothesis(event=bare, entity={}),), readings=(reading(lines=None, first_ns=None, last_ns=None),), hosts=(), world=None, processes={}
    )
    first = doc["hypotheses"][0]
    assert set(first["entity"].values()) == {None}
    assert [first[k] for k in ("cause_stage", "cause_step", "cause_time", "cause_time_error_ms", "symptom_stage", "symptom_step")] == [None] * 6
    assert [doc["run"][k] for k in ("ranks", "first_time", "last_time", "last_step", "framework")] == [None] * 5
    assert doc["coverage"]["sources"][0]["lines"] is None


def test_healthy_run_has_no_symptom():
    """The keys of the symptom stay, with nothing in them."""
    doc = report(event(severity="error"))
    assert doc["verdict"] == "healthy"
    assert set(doc["symptom"].values()) == {None}


def test_entity_is_the_hypothesis_own_and_falls_back_to_its_event():
    """A key the judge set stands, null included; one it left out comes from the cause event."""
    cause = event(host="node-1", gpu=3, rank=27)
    entity = report(cause, hypotheses=(hypothesis(event=cause, entity={"host": "node-7", "rank": None}),))["hypotheses"][0]["entity"]
    assert (entity["host"], entity["rank"], entity["gpu"]) == ("node-7", None, 3)


@pytest.mark.parametrize(
    ("raw", "cited"),
    [
        ("boom\r", "boom"),
        ("  indented\ttext", "  indented\ttext"),
        ("first line\nsecond line", "first line"),
        ("x" * 700, "x" * 500),
        ("not text \udcff", "not text \ufffd"),
        ("\x1b[31mred", "\x1b[31mred"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123", "HF_TOKEN=⟨redacted:hf_token#1⟩"),
        ("y" * 490 + " hf_abcdefghijklmnopqrstuvwxyz0123", "y" * 490 + " ⟨redacted"[:10]),
    ],
)
def test_evidence_is_the_raw_line(raw, cited):
    """The line as it stands in the file: one line, no secret, at most 500 characters."""
    cause = event(text="folded", attrs={"raw": raw})
    assert report(cause, hypotheses=(hypothesis(event=cause),))["hypotheses"][0]["evidence"][0]["text"] == cited


def test_no_address_no_claim():
    """A line whose number is not known is not cited, and one line is cited once per link."""
    cause = event()
    lost = Evidence(record("somewhere", line=None), cause.kind, "cause", cause)
    told = hypothesis(event=cause, evidence=(lost, evidence(cause), evidence(cause), evidence(cause, "symptom")))
    assert [(e["line"], e["link"]) for e in report(cause, hypotheses=(told,))["hypotheses"][0]["evidence"]] == [(1, "cause"), (1, "symptom")]


def test_derived_event_cites_its_basis_and_says_what_follows():
    """An event that no line states shows the raw line it rests on, and its own sentence beside it."""
    derived = event(Kind.RANK_SILENT, "rank 1 wrote nothing for 9 min", source=None, line=None, also=(record("step 3 done", "rank1.log", 7),))
    doc = report(derived, hypotheses=(hypothesis(event=derived),))
    for item in (doc["hypotheses"][0]["evidence"][0], doc["timeline"][0]):
        assert (item["file"], item["line"], item["text"], item["says"]) == ("rank1.log", 7, "step 3 done", "rank 1 wrote nothing for 9 min")


def test_symptom_is_the_gravest_then_the_last_error():
    """Wrappers of the launcher and quiet events do not count while a process's own error is there."""
    first = event(text="first", severity="error")
    last = event(text="last", severity="error", time_ns=NOON_NS + SECOND_NS, line=2)
    wrapper = event(Kind.AGENT_REPORT, "ChildFailedError", severity="fatal", time_ns=NOON_NS + 2 * SECOND_NS, line=3)
    warning = event(text="warning", severity="warning", time_ns=NOON_NS + 3 * SECOND_NS, line=4)
    assert report(first, last, wrapper, warning, hypotheses=(hypothesis(),))["symptom"]["text"] == "last"
    fatal = first.but(severity="fatal", attrs={"raw": "fatal"})
    assert report(fatal, last, wrapper, hypotheses=(hypothesis(),))["symptom"]["text"] == "fatal"


def test_timeline_is_short_and_in_order_of_time():
    """At most 40 rows without quiet events; a cited event is always among them; what has no time stands last."""
    cause = event(text="cause", severity="info", time_ns=NOON_NS + 100 * SECOND_NS, line=1000, offset=1000)
    noise = [event(text=f"e{i}", time_ns=NOON_NS + i * SECOND_NS, line=i + 2, offset=i + 2) for i in range(60)]
    quiet = event(Kind.SAVED, "saved", line=2000, offset=2000)
    untimed = event(text="untimed", severity="fatal", time_ns=None, line=3000, offset=3000)
    rows = report(*noise, quiet, cause, untimed, hypotheses=(hypothesis(event=cause),))["timeline"]
    assert len(rows) == 40
    assert [r["text"] for r in rows[-2:]] == ["cause", "untimed"]
    assert "saved" not in [r["text"] for r in rows]
    assert [r["time"] for r in rows[:-1]] == sorted(r["time"] for r in rows[:-1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_confidences_and_unknown_add_up_to_one(weights):
    """Rounding does not break the sum, and the most likely comes first."""
    total = sum(weights) + 0.5
    judged = [hypothesis(confidence=w / total) for w in weights]
    doc = report(event(), hypotheses=judged)
    shares = [h["confidence"] for h in doc["hypotheses"]]
    assert sum(shares) + doc["unknown_probability"] == pytest.approx(1.0, abs=1e-9)
    assert shares == sorted(shares, reverse=True)


@given(st.randoms(use_true_random=False))
def test_order_of_input_does_not_matter(shuffle: random.Random):
    """The same events, readings and notes in any order give the same bytes."""
    events = [event(text=f"e{i % 3}", time_ns=None if i % 2 else NOON_NS, line=i, offset=i) for i in range(8)]
    readings = [reading(f"rank{i}.log") for i in range(4)]
    notes = [("b", events[0]), ("a", None), ("a", events[1]), ("a", None)]

    def text(es, rs, ns):
        return as_json.render(report(*es, hypotheses=(hypothesis(event=events[0]),), readings=tuple(rs), notes=tuple(ns)))

    expected = text(events, readings, notes)
    assert text(*(shuffle.sample(items, len(items)) for items in (events, readings, notes))) == expected


def test_bytes_are_the_sums_of_the_readings():
    """Every input byte stands in one bucket."""
    doc = report(event(), readings=(reading(), reading("b.bin", size=7, parsed=0, plain=0, skipped=7, reason="binary")))
    assert doc["stats"]["bytes"] == {"parsed": 90, "text": 10, "skipped": 7}
    assert doc["coverage"]["sources"][0]["reason"] == "binary"


def test_run_is_summed_up():
    """Roles in the taxonomy's order, the last step of any process, the framework most files name."""
    states = {(0, "train", 0): {"role": "train", "last_step": 7}, (0, "rollout", 0): {"role": "rollout", "last_step": None}}
    names = ("verl", "verl", "trl")
    told = tuple(reading(f"{i}.log", facts={"framework": name}) for i, name in enumerate(names))
    got = report(event(role="controller", step=3), processes=states, readings=told, hosts=("b", "a"))["run"]
    assert (got["hosts"], got["roles"], got["last_step"], got["framework"]) == (["a", "b"], ["controller", "train", "rollout"], 7, "verl")


def test_secrets_are_hidden_everywhere_with_one_numbering():
    """Summary, title, note and evidence show the same placeholder for the same secret."""
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123"
    cause = event(text=f"401 for {secret}")
    doc = report(
        cause,
        hypotheses=(hypothesis(event=cause, summary=f"{secret} was refused", missing=(missing(how=f"HF_TOKEN={secret} hf whoami"),)),),
        notes=((secret, None),),
    )
    text = str(doc)
    assert secret not in text
    assert set(doc["notes"][0]["text"].split()) == {"⟨redacted:hf_token#1⟩"}
    assert "#2⟩" not in text


def test_numbers_are_finite():
    """A number that JSON cannot hold is unknown."""
    clocks = ({"host": "node-1", "offset_ms": float("nan"), "error_ms": float("inf")},)
    assert report(event(), clocks=clocks)["coverage"]["clock_offsets"] == [{"host": "node-1", "offset_ms": None, "error_ms": None}]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, None),
        (0, None),
        (NOON_NS + 999_999, "2026-11-20T12:00:00.000Z"),
        (NOON_NS - 1, "2026-11-20T11:59:59.999Z"),
        (10**30, None),
        (-(10**30), None),
    ],
)
def test_times_are_iso_with_milliseconds(ns, text):
    """Cut, not rounded; without a year or outside the calendar it is unknown."""
    assert iso(ns) == text


def test_words_for_people(ecc_report):
    """Place, time, probability and doubt are said in the same words by every renderer."""
    first, second = ecc_report["hypotheses"]
    assert place(first["entity"]) == "host node-7, gpu 3, rank 27 (rollout)"
    assert place({}) == ""
    assert when(first).startswith("rollout of step 41, 2026-11-20T12:00:00.000Z ±12 ms; came to light in weights_update")
    assert [percent(p) for p in (0.999, 0.93, 0.004, 0.0, None)] == ["> 99 %", "93 %", "< 1 %", "0 %", "? %"]
    assert doubts(second) == ["-1.5 no index message though stderr was read"]


def test_shown_evidence_has_each_link_before_a_second_line_of_any():
    """A short report still shows the whole chain."""
    items = [{"link": link, "n": n} for n, link in enumerate(("cause", "cause", "cause", "symptom", "mechanism", "symptom"))]
    assert [i["n"] for i in shown_evidence({"evidence": items}, 4)] == [0, 1, 4, 3]
