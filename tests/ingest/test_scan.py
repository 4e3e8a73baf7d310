"""Scanning: every literal at its exact place, whatever lies between, and bounded work however often it repeats."""

import gzip
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.ingest import scan as module
from rca.ingest.engines import aho, hyperscan, matcher
from rca.ingest.scan import CHUNK_BYTES, KEEP_HITS, line_numbers, scan
from rca.ingest.sources import list_sources

LITERALS = (b"CUDA error", b"no space left on device", b"Killed", b"oom")
MATCHER = matcher(LITERALS)
KEPT = 2 * KEEP_HITS


def source_of(path, data):
    """The listed source of a file with these bytes."""
    path.write_bytes(data)
    return list_sources([path])[0]


def places(data, literals=LITERALS):
    """`(index, offset)` of all matches, by offset."""
    found = [(i, m.start()) for i, lit in enumerate(literals) for m in re.finditer(b"(?i)(?=%s)" % re.escape(lit), data)]
    return sorted(found, key=lambda h: (h[1], h[0]))


def test_hits_have_exact_places(tmp_path):
    """Offsets are those of the first byte, counts are complete."""
    data = b"line\ncuda ERROR: oom\n" + b"x" * 20_000 + b"\nKilled"
    result = scan(source_of(tmp_path / "a", data), MATCHER)
    assert result.hits == [(0, 5), (3, 17), (2, 20_022)]
    assert result.counts == {0: 1, 3: 1, 2: 1}
    assert (result.decoded_size, result.consumed, result.truncated) == (len(data), len(data), None)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_tiny_files(tmp_path, size):
    """An empty file has no hits; a literal may be all there is."""
    data = b"oom!!"[:size]
    result = scan(source_of(tmp_path / "a", data), MATCHER)
    assert result.hits == ([(3, 0)] if size >= 3 else [])
    assert result.decoded_size == size


@given(st.integers(-30, 30), st.integers(0, 3), st.sampled_from([b"x", b"\n", b"\r", b"\xff", b"oo"]), st.booleans())
@settings(max_examples=80, deadline=None)
def test_nothing_is_lost_at_chunk_edges(tmp_path_factory, shift, index, filler, packed):
    """A literal across or beside the edge of two chunks is found once, within lines of any length, progress bars and bad text."""
    fill = filler * (CHUNK_BYTES // len(filler))
    data = fill[: CHUNK_BYTES + shift] + LITERALS[index] + fill[: CHUNK_BYTES - shift - 3] + LITERALS[index].upper() + fill[:99]
    source = source_of(tmp_path_factory.mktemp("edge") / "a", gzip.compress(data, 1) if packed else data)
    result = scan(source, MATCHER)
    assert result.hits == places(data)


@given(st.lists(st.sampled_from([*LITERALS, b"\n", b"o", b"Oom\0", b"CUDA \xff", b"KILLED"]), max_size=300), st.integers(24, 90))
@settings(max_examples=150, deadline=None)
def test_chunk_size_does_not_matter(tmp_path_factory, parts, chunk):
    """Chunks hardly longer than a literal give the hits and counts that one look at the whole gives, with either engine."""
    data = b"".join(parts)
    source = source_of(tmp_path_factory.mktemp("chunks") / "a", data)
    all_places = places(data)
    counts = {i: n for i in range(len(LITERALS)) if (n := sum(1 for j, _ in all_places if j == i))}
    kept = [h for h in all_places if sum(1 for g in all_places if g[0] == h[0]) <= KEPT]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_BYTES", chunk)
        module._buffer.cache_clear()
        results = [scan(source._replace(reason=None, compression=None), m(LITERALS, frozenset())) for m in (hyperscan.Matcher, aho.Matcher)]
        lines = line_numbers(source._replace(compression=None), [o for _, o in all_places])
    module._buffer.cache_clear()
    assert results[0] == results[1]
    assert results[0].counts == counts
    assert [h for h in results[0].hits if counts[h[0]] <= KEPT] == kept
    assert lines == [data.count(b"\n", 0, offset) + 1 for _, offset in all_places]


@pytest.mark.parametrize("line", [b"step %06d loss 2.0 and all is well\n", b"Killed %06d\n"])
@pytest.mark.parametrize("engine", [hyperscan, aho])
def test_dense_hits_are_capped_and_counted(tmp_path, monkeypatch, line, engine):
    """Of a literal in every line the first and last 64 hits are kept, with the exact count, whether muted or not."""
    monkeypatch.setattr(module, "MUTE_SAVES_HITS", 1000)
    data = b"".join(line % i for i in range(100_000)) + b"no space left on device\n" + b"Killed then\n" * 10
    result = scan(source_of(tmp_path / "a", data), engine.Matcher(LITERALS, frozenset()))
    every = places(data)
    mine = [h for h in every if h[0] == 2]
    wanted = mine if len(mine) <= KEPT else mine[:KEEP_HITS] + mine[-KEEP_HITS:]
    assert [h for h in result.hits if h[0] == 2] == wanted
    assert result.counts == {2: len(mine), 1: 1}
    assert [h for h in result.hits if h[0] == 1] == [h for h in every if h[0] == 1]


def test_muted_literals_are_not_searched(tmp_path, monkeypatch):
    """Muting takes a literal out of the search, however it is spelled; one that may overlap itself stays in."""
    monkeypatch.setattr(module, "MUTE_SAVES_HITS", 1000)
    engine = matcher((b"same", b"Mixed", b"--"))
    data = b"".join(b"same %s ---\n" % (b"mixed" if i % 2 else b"MIXED") for i in range(100_000)) + b"SAME\n"
    result = scan(source_of(tmp_path / "a", data), engine)
    assert result.counts == {0: 100_001, 1: 100_000, 2: 200_000}
    assert list(engine.narrower)[-1] == frozenset({0, 1})
    assert len(result.hits) == 3 * KEPT
    assert (0, len(data) - 5) in result.hits


def test_a_literal_of_every_file_is_muted_in_all_from_some_file_on(tmp_path):
    """No file alone is worth compiling anew, all of them together are; the results are those of the first file."""
    sources = [source_of(tmp_path / f"{i:02}", b"Killed, as said before\n" * 30_000) for i in range(8)]
    engine = matcher(LITERALS)
    results = [scan(s, engine) for s in sources]
    assert list(engine.narrower) == [frozenset({2})]
    assert results == [results[0]] * 8 and results[0].counts == {2: 30_000}


def test_once_literals_cost_one_hit_a_chunk(tmp_path):
    """A step marker is reported about once per chunk, at places where it stands, the first one included."""
    data = b"".join(b"step=%d loss\n" % i for i in range(100_000))
    chunks = -(-len(data) // CHUNK_BYTES)
    result = scan(source_of(tmp_path / "a", data), matcher((b"step=", b"loss"), once=(0,)))
    steps = [o for i, o in result.hits if i == 0]
    assert chunks - 1 <= len(steps) <= chunks and steps[0] == 0
    assert all(data.startswith(b"step=", o) for o in steps)
    assert result.counts[1] == 100_000


def test_very_long_line(tmp_path):
    """A line of 100 MB is scanned in the memory of one chunk."""
    path = tmp_path / "a"
    with open(path, "wb") as file:
        for _ in range(100):
            file.write(b"y" * (1 << 20))
        file.write(b" CUDA error ")
    result = scan(list_sources([path])[0], MATCHER)
    assert result.hits == [(0, (100 << 20) + 1)]
    assert line_numbers(list_sources([path])[0], [result.hits[0][1]]) == [1]


def test_sparse_file(tmp_path):
    """What lies behind a huge hole is found at its offset; a literal is not seen across the hole."""
    path = tmp_path / "a"
    with open(path, "wb") as file:
        file.write(b"first\n" + b"no space left".rjust((64 << 10) - 6, b"z"))  # whole blocks: data reaches up to the hole
        file.seek(1 << 38)
        file.write(b" on device\nKilled\n")
    source = list_sources([path])[0]
    result = scan(source, MATCHER)
    assert result.hits == [(2, (1 << 38) + 11)]
    assert (result.truncated, result.decoded_size) == ("sparse", source.size)
    assert result.consumed < 1 << 20
    assert line_numbers(source, [0, 6, (1 << 38) - 100, result.hits[0][1]]) == [1, 2, 2, 3]


def test_truncated_gzip(tmp_path):
    """What a killed gzip writer left is scanned, and the result says that it is cut."""
    data = b"".join(b"%d Killed %d\n" % (i, i * i) for i in range(50_000))
    packed = gzip.compress(data)
    source = source_of(tmp_path / "a", packed[: len(packed) // 2])
    result = scan(source, MATCHER)
    assert result.truncated == "truncated"
    assert result.consumed == source.size
    assert result.counts[2] > 10_000
    assert result.hits[:KEEP_HITS] == [h for h in places(data[:10_000]) if h[0] == 2][:KEEP_HITS]


def test_utf16(tmp_path):
    """Hits in UTF-16 have the offsets and lines of the text."""
    text = "läuft\n" * 1000 + "CUDA error\n"
    source = source_of(tmp_path / "a", text.encode("utf-16"))
    result = scan(source, MATCHER)
    assert result.hits == [(0, len(("läuft\n" * 1000).encode()))]
    assert line_numbers(source, [result.hits[0][1]]) == [1001]
    assert result.consumed == source.size


def test_vanished_file(tmp_path):
    """A file that is gone when its turn comes is a result with a reason, nothing consumed."""
    source = source_of(tmp_path / "a", b"Killed\n")
    os.unlink(source.path)
    result = scan(source, MATCHER)
    assert (result.hits, result.consumed, result.truncated) == ([], 0, "unreadable: no such file or directory")


@given(st.lists(st.integers(0, 3000), max_size=40).map(sorted), st.binary(max_size=2500))
@settings(max_examples=150, deadline=None)
def test_line_numbers(tmp_path_factory, offsets, noise):
    """Line numbers count the newlines before each offset, equal and far too large offsets included."""
    data = noise.replace(b"a", b"\n")
    source = source_of(tmp_path_factory.mktemp("lines") / "a", data)._replace(reason=None, compression=None)
    assert line_numbers(source, offsets) == [data.count(b"\n", 0, o) + 1 for o in offsets]
