"""The gate: which report violates which policy, and what a fingerprint holds."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rca.errors import RcaError
from rca.gate import Policy, decide, fingerprint, read_policy
from rca.report.document import document
from tests.builders import NOON_NS, SECOND_NS, event, hypothesis, run, verdict

TODAY = date(2026, 11, 20)


def report(*causes: tuple[str, float], verdict_is: str = "failed", **changes) -> dict:
    cause = event(**changes)
    judged = [hypothesis(name, confidence=share, event=cause) for name, share in causes]
    return document(run(cause, hosts=(cause.host,)), verdict(*judged, verdict=verdict_is), seconds=0, version="0.1.0")


@pytest.fixture
def policy(tmp_path):
    """Write a policy file and read it."""

    def read(text: str) -> Policy:
        path = tmp_path / "rca.toml"
        path.write_text(text, encoding="utf-8")
        return read_policy(path)

    return read


@pytest.mark.parametrize(
    ("verdict_is", "causes", "code", "warns"),
    [
        ("failed", [("gpu.ecc", 0.9)], 1, False),
        ("failed", [("gpu.ecc", 0.5)], 1, False),
        ("inconclusive", [("gpu.ecc", 0.4)], 0, True),
        ("inconclusive", [], 0, True),
        ("healthy", [], 0, False),
    ],
)
def test_without_a_policy_failed_violates_and_inconclusive_warns(verdict_is, causes, code, warns):
    """The default needs no file."""
    decision = decide(report(*causes, verdict_is=verdict_is))
    assert (decision.exit_code, bool(decision.warnings)) == (code, warns)
    assert decision.lines[0].startswith("gate: violated" if code else "gate: met")


@pytest.mark.parametrize(
    ("entries", "cause", "action"),
    [
        ([], "gpu.ecc", "fail"),
        ([("*", "warn")], "gpu.ecc", "warn"),
        ([("gpu.*", "ignore"), ("*", "warn")], "gpu.ecc", "ignore"),
        ([("*", "warn"), ("gpu.*", "ignore")], "gpu.ecc", "ignore"),
        ([("gpu.*", "ignore"), ("gpu.ecc", "fail")], "gpu.ecc", "fail"),
        ([("gpu.*", "ignore"), ("gpu.*", "warn")], "gpu.ecc", "warn"),
        ([("net.*", "ignore")], "gpu.ecc", "fail"),
    ],
)
def test_longest_glob_decides_then_the_strictest(entries, cause, action):
    """The order of the entries does not matter; a cause that nothing matches fails."""
    assert Policy(then=tuple(entries)).action(cause) == action
    assert Policy(then=tuple(reversed(entries))).action(cause) == action


def test_command_line_comes_before_the_file(policy):
    """A short glob of the command line beats a long one of the file."""
    from_file = policy('[[gate.policy]]\ncause = "gpu.ecc"\naction = "fail"\n')
    assert decide(report(("gpu.ecc", 0.9)), from_file).exit_code == 1
    assert decide(report(("gpu.ecc", 0.9)), from_file.over(ignore=["gpu.*"])).exit_code == 0


def test_a_warning_is_said_and_passes():
    """`warn` is 0 with the cause among the warnings; `ignore` has none."""
    warned = decide(report(("gpu.ecc", 0.9)), Policy().over(warn=["gpu.*"]))
    assert warned.exit_code == 0
    assert "gpu.ecc (0.90)" in warned.warnings[0]
    assert decide(report(("gpu.ecc", 0.9)), Policy().over(ignore=["gpu.*"])).warnings == ()


@pytest.mark.parametrize(("least", "code"), [(0.3, 1), (0.5, 1), (0.8, 1), (0.81, 0), (1.0, 0)])
def test_minimum_confidence_decides_what_is_judged(policy, least, code):
    """Below it a failure only warns; at a lower one a second hypothesis is judged too."""
    assert decide(report(("gpu.ecc", 0.8)), policy(f"[gate]\nmin_confidence = {least}\n")).exit_code == code


def test_strictest_action_among_judged_hypotheses_counts():
    """A warning about the first does not excuse the second, where both are sure enough."""
    both = report(("net.loss", 0.5), ("gpu.ecc", 0.4))
    assert decide(both, Policy().over(warn=["net.*"])).exit_code == 0
    assert decide(both, Policy().over(warn=["net.*"], min_confidence=0.4)).exit_code == 1


@pytest.mark.parametrize(("expires", "code"), [("2026-11-20", 0), ("2026-11-21", 0), ("2026-11-19", 1)])
@pytest.mark.parametrize("quote", ['"', ""])
def test_known_issue_is_ignored_until_it_expires(policy, expires, code, quote):
    """Its last day counts; afterwards it violates again, and the reader is told who owned it."""
    failed = report(("gpu.ecc", 0.9))
    known = policy(
        f'[[gate.known]]\nfingerprint = "{fingerprint(failed)}"\nid = "INFRA-12"\nowner = "alice"\nreason = "driver"\nexpires = {quote}{expires}{quote}\n'
    )
    decision = decide(failed, known, today=TODAY)
    assert decision.exit_code == code
    assert ("expired on" in " ".join(decision.warnings)) == bool(code)
    assert "alice" in " ".join(decision.lines + decision.warnings)
    assert decide(report(("net.loss", 0.9)), known, today=TODAY).exit_code == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gate", "not valid TOML"),
        ("gate = 3", "`gate` must be a table"),
        ("[gate]\nmin_confidenc = 0.5", "did you mean `min_confidence`"),
        ("[gate]\nmin_confidence = 2", "from 0 to 1, got `2`"),
        ('[gate]\nmin_confidence = "high"', "from 0 to 1, got `high`"),
        ("[gate]\nmin_confidence = true", "from 0 to 1"),
        ("[gate]\nmin_confidence = nan", "from 0 to 1"),
        ('[gate.policy]\ncause = "*"', "with two brackets"),
        ('[[gate.policy]]\ncause = "gpu.ec"\naction = "warn"', "did you mean `gpu.ecc`"),
        ('[[gate.policy]]\ncause = "gpus.*"\naction = "warn"', "did you mean `gpu.*`"),
        ('[[gate.policy]]\ncause = "gpu.*"\naction = "wran"', "did you mean `warn`"),
        ('[[gate.policy]]\ncause = "gpu.*"', "`action` is missing"),
        ('[[gate.policy]]\ncauses = "gpu.*"\naction = "warn"', "did you mean `cause`"),
        ('[[gate.known]]\nfingerprint = "x"\nowner = "a"\nreason = "b"\nexpires = "2026-11-20"', "no fingerprint"),
        (f'[[gate.known]]\nfingerprint = "{"0" * 16}"\nowner = "a"\nreason = "b"\nexpires = "soon"', "YYYY-MM-DD"),
        (f'[[gate.known]]\nfingerprint = "{"0" * 16}"\nowner = "a"\nreason = "b"', "YYYY-MM-DD"),
        (f'[[gate.known]]\nfingerprint = "{"0" * 16}"\nreason = "b"\nexpires = "2026-11-20"', "`owner` is missing"),
    ],
)
def test_a_mistake_in_the_policy_is_named(policy, tmp_path, text, message):
    """The error names the file, what was expected, and the nearest valid word."""
    with pytest.raises(RcaError) as error:
        policy(text)
    assert message in str(error.value)
    assert str(tmp_path / "rca.toml") in str(error.value)
    assert error.value.exit_code == 2


def test_other_tables_of_the_file_belong_to_others(policy):
    """A policy file without `[gate]` is the default."""
    assert policy('[other]\nkey = "value"\n') == Policy()


def test_missing_policy_is_an_error(tmp_path):
    """A policy that was asked for and is not there never passes silently."""
    with pytest.raises(RcaError, match="cannot read the policy"):
        read_policy(tmp_path / "none.toml")


SAME = (
    ("2026-11-20 12:00:00,123 ERROR [rank3] node-7: NCCL error at 10.0.0.7:29500 in /work/a.py:12: pid=4711", "gn0028", 3, 0),
    ("2027-01-02 03:04:05,999 ERROR [rank511] gn0028: NCCL error at fe80::1%eth0:1 in /home/bob/x/b.py:7: pid=1", "node-7", 511, 86400),
    ("Jan  2 03:04:05 gn0028 ERROR [rank7] gn0028.cluster.local: NCCL error at 0x7fff00ab in ./run/c.py: pid=99", "gn0028", 7, 9),
)


@pytest.mark.parametrize(("text", "host", "rank", "later_s"), SAME)
def test_fingerprint_holds_no_host_time_rank_or_address(text, host, rank, later_s):
    """The same failure elsewhere and later has the same fingerprint."""
    first = report(("net.loss", 0.9), text=SAME[0][0], host="node-7", rank=3)
    again = report(("net.loss", 0.7), text=text, host=host, rank=rank, time_ns=NOON_NS + later_s * SECOND_NS)
    assert fingerprint(again) == fingerprint(first)


@given(st.from_regex(r"[a-z]{2,8}(-[a-z]{1,6})?(\.[a-z]{2,5}){0,2}", fullmatch=True), st.integers(0, 10**6))
def test_fingerprint_forgets_any_host_the_report_knows(host, number):
    """A host name without digits, with a domain, in capitals, beside punctuation."""
    text = "{0}: rank {1} lost its peer ({0}), see {0}/{1}"
    first = report(("net.loss", 0.9), text=text.format("zzz", 1), host="zzz")
    assert fingerprint(report(("net.loss", 0.9), text=text.format(host.upper(), number), host=host)) == fingerprint(first)


def test_fingerprint_tells_causes_and_symptoms_apart():
    """Another cause, rule or wording is another issue."""
    marks = {
        fingerprint(report(("net.loss", 0.9))),
        fingerprint(report(("gpu.ecc", 0.9))),
        fingerprint(report(("net.loss", 0.9), text="ValueError: bad shape")),
        fingerprint(report(verdict_is="inconclusive")),
    }
    assert len(marks) == 4
    assert all(len(mark) == 16 for mark in marks)
