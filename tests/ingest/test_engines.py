"""Both engines give the same answers, and the right ones."""

import importlib
import importlib.util
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.errors import RcaError
from rca.ingest import engines

INSTALLED = [name for name in engines.ENGINES if importlib.util.find_spec(engines.NEEDS[name])]
# A small alphabet makes overlaps, borders and case differences likely; bytes above 127 have no case.
LETTERS = st.sampled_from(list(b"aAbB \n\xc3\xa4\xe4"))
# Long literals are searched by their beginning: near misses share one.
PARTS = st.sampled_from([b"the CUDA device ", b"THE cuda device ", b"was lost", b"Was Lost", b"was los", b"zq", b"zQ", b" is not "])
LITERALS = st.lists(st.lists(LETTERS, min_size=1, max_size=5).map(bytes) | st.lists(PARTS, min_size=1, max_size=4).map(b"".join), min_size=1, max_size=8)
TEXTS = st.lists(LETTERS, max_size=60).map(bytes) | st.lists(PARTS, max_size=12).map(b"".join)


def hits(name, literals, text, once=(), muted=(), low=0, high=None):
    """`(end, index)` of every match by one engine, sorted."""
    module = importlib.import_module(f"rca.ingest.engines.{name}")
    matcher = module.Matcher(tuple(literals), frozenset(once))
    if muted:
        matcher = matcher.without(frozenset(muted))
    found = matcher.scan(bytearray(text), low, len(text) if high is None else high)
    assert all(ends == sorted(ends) for ends in found.values())
    return sorted((low + end, index) for index, ends in found.items() for end in ends)


def expected(literals, text):
    """The same by looking at every place."""
    low = text.lower()
    return sorted(
        (at + len(literal), index) for index, literal in enumerate(literals) for at in range(len(low) - len(literal) + 1) if low.startswith(literal.lower(), at)
    )


@pytest.mark.parametrize("name", INSTALLED)
@given(LITERALS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_every_match_is_found(name, literals, text):
    """All matches are reported, overlapping ones too, without regard to ASCII case and to ASCII case only."""
    assert hits(name, literals, text) == expected(literals, text)


@pytest.mark.parametrize("name", INSTALLED)
@given(LITERALS, TEXTS, st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7)))
@settings(max_examples=200, deadline=None)
def test_once_and_muted_literals(name, literals, text, once, muted):
    """A `once` literal reports its first match only, a muted one none; the numbering stays."""
    wanted, seen = [], set()
    for end, index in expected(literals, text):
        if index not in muted and not (index in once and index in seen):
            wanted.append((end, index))
        seen.add(index)
    assert hits(name, literals, text, once, muted) == wanted


@pytest.mark.parametrize("name", INSTALLED)
@given(LITERALS, TEXTS, st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_only_the_given_part_is_searched(name, literals, text, low, length):
    """Matches lie within the part to be searched, whatever stands beside it; positions are those of the buffer."""
    low = min(low, len(text))
    high = min(low + length, len(text))
    wanted = [(end, i) for end, i in expected(literals, text) if end <= high and end - len(literals[i]) >= low]
    assert hits(name, literals, text, low=low, high=high) == wanted


def test_a_storm_of_beginnings_changes_nothing():
    """Where the beginning of a literal fills a log, the literal is searched whole from then on, with the same answers."""
    hyperscan = pytest.importorskip("rca.ingest.engines.hyperscan")
    literal = b"ProcessGroupNCCL preparing to dump debug info"
    beginning = literal[: hyperscan.cut(literal)]
    assert len(beginning) < len(literal)
    text = (beginning + b".cpp:2311] all is well\n") * 1000 + literal
    matcher = hyperscan.Matcher((literal,), frozenset())
    assert matcher.scan(text, 0, len(text)) == {0: [len(text)]}
    assert not matcher._rest
    assert matcher.scan(text, 0, len(text)) == {0: [len(text)]}


@pytest.mark.parametrize("name", INSTALLED)
def test_hundreds_of_literals(name):
    """A set as large as the product's, with duplicates and prefixes of one another, works as a small one does."""
    literals = [f"failure number {i}".encode() for i in range(500)] + [b"FAILURE", b"failure"]
    text = b"Failure Number 417\n\1\1\1\1\1\1\1\1"
    wanted = [(len(b"failure number %d" % i), i) for i in (4, 41, 417)] + [(7, 500), (7, 501)]
    assert hits(name, literals, text) == sorted(wanted)


@pytest.mark.parametrize("name", INSTALLED)
def test_no_literals(name):
    """Without literals there are no hits, and no error."""
    assert hits(name, [], b"text") == []


@pytest.mark.parametrize("literal", [b"", b"a\0b"])
def test_impossible_literals_are_refused(literal):
    """An empty literal would match everywhere, and one with a NUL would silently be cut by Hyperscan."""
    with pytest.raises(ValueError, match="literal"):
        engines.matcher([b"fine", literal])


def test_fallback_can_be_forced(monkeypatch):
    """`RCA_ENGINE=aho` chooses the fallback; otherwise the faster engine serves."""
    assert type(engines.matcher([b"x"])).__module__.endswith(INSTALLED[0])
    if "aho" in INSTALLED:
        monkeypatch.setenv("RCA_ENGINE", "aho")
        assert type(engines.matcher([b"x"])).__module__.endswith("aho")


def test_missing_engines(monkeypatch):
    """The fallback serves where Hyperscan is missing; with neither the user is told what to install."""
    monkeypatch.delenv("RCA_ENGINE", raising=False)
    for name in engines.ENGINES:
        monkeypatch.delitem(sys.modules, f"rca.ingest.engines.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "hyperscan", None)
    if "aho" in INSTALLED:
        assert type(engines.matcher([b"x"])).__module__.endswith("aho")
    monkeypatch.delitem(sys.modules, "rca.ingest.engines.aho", raising=False)
    monkeypatch.setitem(sys.modules, "ahocorasick_rs", None)
    with pytest.raises(RcaError, match="no search engine"):
        engines.matcher([b"x"])
