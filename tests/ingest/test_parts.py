"""A huge file in parts: what is found does not depend on how it was cut, or on who searched what, or who died of it."""

import os
import signal
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rca.ingest import parts, pool, read
from rca.ingest import scan as module
from rca.ingest.engines import aho, hyperscan
from rca.ingest.parts import Board, InParts, plan
from rca.ingest.pool import scan_all
from rca.ingest.scan import Part, line_numbers, merged, scan, search
from rca.ingest.sources import Source, list_sources

LITERALS = (b"CUDA error", b"no space left on device", b"Killed", b"oom", b"step=", b"--")
ONCE = frozenset({4})
ENGINES = [hyperscan.Matcher(LITERALS, ONCE), aho.Matcher(LITERALS, ONCE)]
PIECES = st.sampled_from([*LITERALS, b"\n", b"\r\n", b"o", b"---", b"Oom\0", b"CUDA \xff", b"KILLED", b"no space left on ", b"step=12 loss 2.0\n", b"killed " * 9])


def source_of(path, data):
    """The source of a file with these bytes, read as text whatever they are."""
    path.write_bytes(data)
    return Source(str(path), path.name, len(data))


@pytest.fixture
def small(monkeypatch):
    """Chunks hardly longer than a literal, few hits kept, muting at once: so that a short text has many seams."""
    for name, value in {"CHUNK_BYTES": 32, "KEEP_HITS": 3, "MUTE_HITS": 3, "MUTE_SAVES_HITS": 0}.items():
        monkeypatch.setattr(module, name, value)
    module._buffer.cache_clear()
    yield
    module._buffer.cache_clear()


@given(st.lists(PIECES, max_size=120), st.sets(st.integers(1, 40), max_size=6), st.sampled_from(ENGINES))
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cut_gives_the_result_of_the_whole(tmp_path_factory, small, pieces, cuts, engine):
    """Hits, counts and lines are those of one scan: literals across seams, muted ones, `once` ones, any line ends."""
    data = b"".join(pieces)
    source = source_of(tmp_path_factory.mktemp("cut") / "a", data)
    seams = [0, *sorted(c * 32 for c in cuts if c * 32 < len(data)), len(data)]
    got = merged([Part(*tuple(search(source, engine, a, b))) for a, b in pairwise(seams)])
    whole = scan(source, engine)
    assert got._replace(lines=()) == whole
    offsets = [offset for _, offset in got.hits]
    lines = [data.count(b"\n", 0, o) + 1 for o in offsets]
    assert line_numbers(source, offsets) == lines
    assert line_numbers(source._replace(lines=got.lines), offsets) == lines


def test_lines_are_counted_from_the_nearest_part(tmp_path, monkeypatch):
    """A line late in the file is numbered without reading what lies before its part."""
    source = source_of(tmp_path / "a", b"0123456\n" * 300_000)
    step = 2 * module.CHUNK_BYTES
    result = merged([search(source, ENGINES[0], a, min(a + step, source.size)) for a in range(0, source.size, step)])
    assert result.lines == tuple((a, a // 8) for a in range(step, source.size, step))
    read_bytes = []
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: read_bytes.append(at) or real(fd, views, at))
    assert line_numbers(source._replace(lines=result.lines), [5, source.size - 1]) == [1, 300_000]
    assert [at for at in read_bytes if at] == [at for at in read_bytes if at >= result.lines[-1][0]] != []


@pytest.fixture
def huge(tmp_path, monkeypatch):
    """A file of twelve parts with a hit across every seam and one besides, among small ones; the sources."""
    monkeypatch.setattr(parts, "PART_BYTES", 2 * module.CHUNK_BYTES)
    monkeypatch.setattr(parts, "PARTS_PER_WORKER", 64)
    step = 2 * module.CHUNK_BYTES
    data = bytearray(b"ordinary line of a healthy run\n" * (12 * step // 31 + 1))[: 12 * step - 5]
    for seam in range(step, len(data), step):
        data[seam - 3 : seam + 7] = b"CUDA error"
    data[5 * step + 1000 : 5 * step + 1006] = b"Killed"
    (tmp_path / "huge.log").write_bytes(data)
    for i in range(5):
        (tmp_path / f"small{i}.log").write_bytes(b"Killed\n" * i)
    return list_sources([tmp_path])


def whole(source, engine):
    """The plain result of one scan."""
    result = scan(source, engine)
    return [result.hits, result.counts, result.decoded_size, result.consumed, result.truncated]


IN_PARTS = InParts(
    lambda *task: tuple(search(*task)),
    lambda source, engine, found: list(merged([p if p[0] == "died" else Part(*p) for p in found])[:5]),
)


@pytest.mark.parametrize("engine", ENGINES, ids=["hyperscan", "aho"])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_parts_do_not_change_results(huge, workers, engine):
    """A file searched in parts gives what it gives as a whole, in its place among the others, and is told of once."""
    assert len(plan(huge, range(6), workers)[0]) >= 6
    told = []
    got = scan_all(huge, whole, engine, in_parts=IN_PARTS, workers=workers, progress=lambda *p: told.append(p))
    assert got == scan_all(huge, whole, engine, workers=1)
    assert len(told) == 6 and told[-1] == (told[-1][1],) * 2


@pytest.mark.parametrize("how", ["kill", "raise"])
def test_a_death_within_a_part_is_a_stated_gap(huge, how):
    """What the other parts hold is kept; the bytes of the lost one are missing from those used, and a reason is given."""

    def deadly(source, engine, start, end):
        if start <= 5 * 2 * module.CHUNK_BYTES < end:
            if how == "raise":
                raise ValueError("bad luck")
            os.kill(os.getpid(), signal.SIGKILL)
        return tuple(search(source, engine, start, end))

    got = scan_all(huge, whole, ENGINES[0], in_parts=IN_PARTS._replace(part=deadly), workers=2)
    wanted = scan_all(huge, whole, ENGINES[0], workers=1)
    assert got[1:] == wanted[1:]
    hits, counts, size, consumed, reason = got[0]
    assert reason == "a part of it was not searched: " + ("the reader was killed by SIGKILL" if how == "kill" else "ValueError: bad luck")
    ((start, end),) = [r for r in plan(huge, range(6), 2)[0] if r[0] <= 5 * 2 * module.CHUNK_BYTES < r[1]]
    assert hits == [h for h in wanted[0][0] if not start <= h[1] + len(LITERALS[h[0]]) - 1 < end]
    assert (size, consumed, 2 in counts) == (huge[0].size, huge[0].size - (end - start), False)


def test_all_parts_lost(huge):
    """If every part kills its reader, the file says so and the others are read."""
    got = scan_all(huge, whole, ENGINES[0], in_parts=IN_PARTS._replace(part=lambda *task: os._exit(3)), workers=2)
    assert got[0] == [[], {}, 0, 0, "a part of it was not searched: the reader exited with code 3"]
    assert [r[3] for r in got[1:]] == [s.size for s in huge[1:]]


def test_a_death_while_joining_costs_the_file(huge):
    """What only one process does can still kill it."""
    got = scan_all(huge, whole, ENGINES[0], in_parts=IN_PARTS._replace(join=lambda *task: os._exit(3)), workers=2)
    assert got == [("died", "the reader exited with code 3"), *scan_all(huge, whole, ENGINES[0], workers=1)[1:]]


@pytest.mark.parametrize("size", [0, 5, 1 << 20])
def test_file_cut_after_it_was_listed(huge, size):
    """A file that shrank is used to its new end, and the result says so."""
    os.truncate(huge[0].path, size)
    got = scan_all(huge, whole, ENGINES[0], in_parts=IN_PARTS, workers=2)[0]
    assert got == whole(huge[0], ENGINES[0])
    assert got[2:] == [size, size, "shrank while it was read"]


def test_file_that_grew_or_vanished(huge):
    """No part reads beyond the size at the start; a file that is gone is no error."""
    wanted = whole(huge[0], ENGINES[0])
    with open(huge[0].path, "ab") as file:
        file.write(b"Killed\n" * 100_000)
    assert scan_all(huge, whole, ENGINES[0], in_parts=IN_PARTS, workers=2)[0] == wanted
    os.unlink(huge[0].path)
    assert scan_all(huge, whole, ENGINES[0], in_parts=IN_PARTS, workers=2)[0] == [[], {}, 0, 0, "unreadable: no such file or directory"]


def test_what_is_not_split(huge, tmp_path, monkeypatch):
    """Small, compressed and sparse files, and any file where there is one worker or no board."""
    assert plan([s._replace(compression="gz") for s in huge], range(6), 2) == {}
    assert list(plan(huge, range(6), 2)) == [0]
    with open(tmp_path / "sparse.log", "wb") as file:
        file.seek(1 << 30)
        file.write(b"Killed\n")
    assert plan(list_sources([tmp_path / "sparse.log"]), [0], 2) == {}

    def refuse(name):
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert scan_all(huge, whole, ENGINES[0], in_parts=IN_PARTS._replace(part=None), workers=2) == scan_all(huge, whole, ENGINES[0], workers=1)


def test_parts_lie_on_the_grid_of_chunks_and_cover_the_file():
    """The number of parts is bounded whatever the sizes are."""
    sources = [Source(__file__, str(i), size) for i, size in enumerate([3 << 30, 1 << 20, 40 << 20, (1 << 40) + 7])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_unbroken", lambda source: True)
        planned = plan(sources, range(4), 2)
    assert list(planned) == [3]
    ranges = planned[3]
    assert ranges[0][0] == 0 and ranges[-1][1] == sources[3].size and len(ranges) <= 2 * 16
    assert all(a[1] == b[0] and b[0] % module.CHUNK_BYTES == 0 for a, b in pairwise(ranges))


def test_one_posting_completes_a_board():
    """One part is told that it was the last, and told again if it is posted for a worker that died; duplicates are never read."""
    board = Board([(0, 1), (1, 2), (2, 3)])
    assert [board.post(2, "c"), board.post(0, "a"), board.post(0, ("died", "too late")), board.post(1, "b"), board.post(1, "late")] == [False, False, False, True, True]
    assert board.read() == ["a", "b", "c"]
    board.close()


def test_parts_are_batches_of_their_own(huge):
    """A worker that dies of one part has no other in hand."""
    split = plan(huge, range(6), 2)
    tasks, batches = pool._batches(huge, list(range(6)), 2, split)
    assert sorted(tasks) == sorted([(0, n) for n in range(len(split[0]))] + [(i, pool.WHOLE) for i in range(1, 6)])
    assert all(stop - start == 1 or all(n == pool.WHOLE for _, n in tasks[start:stop]) for start, stop in batches)
    assert [i for start, stop in batches for i in range(start, stop)] == list(range(len(tasks)))


def test_a_huge_log_reads_the_same(tmp_path, monkeypatch):
    """Readings and line numbers of a run do not depend on splitting."""
    monkeypatch.setattr(parts, "PART_BYTES", 2 * module.CHUNK_BYTES)
    trace = 'Traceback (most recent call last):\n  File "/srv/train.py", line 1, in save\nOSError: [Errno 28] No space left on device: \'/c/s.pt\'\n'
    lines = [f"2026-11-20 12:{i // 6000 % 60:02d}:{i // 100 % 60:02d},000 [rank0] INFO step={i} loss=2.0\n" for i in range(120_000)]
    for place in (30_000, 31_000, 99_000):
        lines[place] += trace
    (tmp_path / "rank0.log").write_text("".join(lines))
    one, two = read.ingest([tmp_path], workers=1), read.ingest([tmp_path], workers=2)
    assert one[0] == two[0] and len(one[0][0].events) >= 3
    assert two[1]["rank0.log"].lines
    wanted = {"rank0.log": [e.offset for e in one[0][0].events]}
    assert read.resolve_lines(one[1], wanted) == read.resolve_lines(two[1], wanted)
