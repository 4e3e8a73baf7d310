"""Workers: the same results however many there are, whatever happens to them."""

import os
import signal
import time
from itertools import pairwise

import pytest

from rca.ingest import pool
from rca.ingest.engines import matcher
from rca.ingest.pool import scan_all
from rca.ingest.scan import scan
from rca.ingest.sources import Source, list_sources

MATCHER = matcher([b"Killed", b"CUDA error"])


def fill(folder, count):
    """Files of very different sizes, some with hits."""
    for i in range(count):
        (folder / f"{i:03}.log").write_bytes(b"ordinary line\n" * (i * i * 7 % 5000) + b"Killed\n" * (i % 3))
    return list_sources([folder])


def work(source, engine):
    """The usual piece of work: scan, give plain values."""
    result = scan(source, engine)
    return {"name": source.name, "hits": result.hits, "size": result.decoded_size}


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_workers_do_not_change_results(tmp_path, workers):
    """Results come in the order of the sources and are equal for any number of workers."""
    sources = fill(tmp_path, 70)
    assert scan_all(sources, work, MATCHER, workers=workers) == scan_all(sources, work, MATCHER, workers=1)


def test_skipped_sources_are_not_worked_on(tmp_path):
    """A source with a reason has no result."""
    sources = [*fill(tmp_path, 2), Source("/nowhere", "pipe", 0, None, "not a regular file")]
    assert [r and r["name"] for r in scan_all(sources, work, MATCHER, workers=2)] == ["000.log", "001.log", None]
    assert scan_all(sources[2:], work, MATCHER, workers=2) == [None]
    assert scan_all([], work, MATCHER) == []


def test_small_inputs_need_no_workers(tmp_path):
    """A few small files are read in this process."""
    sources = fill(tmp_path, 5)
    assert scan_all(sources, lambda s, m: os.getpid(), MATCHER) == [os.getpid()] * 5
    assert os.getpid() not in scan_all(sources, lambda s, m: os.getpid(), MATCHER, workers=2)


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_dead_worker_costs_one_file(tmp_path, how):
    """A worker that dies marks the file it was at; all others have their results."""
    sources = fill(tmp_path, 60)

    def deadly(source, engine):
        if source.name in ("007.log", "041.log"):
            os.kill(os.getpid(), signal.SIGKILL) if how == "kill" else os._exit(3)
        return work(source, engine)

    wanted = scan_all(sources, work, MATCHER, workers=1)
    reason = "the reader was killed by SIGKILL" if how == "kill" else "the reader exited with code 3"
    wanted[7] = wanted[41] = ("died", reason)
    assert scan_all(sources, deadly, MATCHER, workers=2) == wanted


def test_all_workers_dying_at_every_file_ends(tmp_path):
    """If every file kills its reader, every file says so."""
    sources = fill(tmp_path, 12)
    results = scan_all(sources, lambda s, m: os._exit(1), MATCHER, workers=2)
    assert results == [("died", "the reader exited with code 1")] * 12


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_worker_may_die(tmp_path, count):
    """Death at the very last file, with no other worker left, ends the run as well."""
    sources = fill(tmp_path, count)
    results = scan_all(sources, lambda s, m: os._exit(3), MATCHER, workers=2)
    assert results == [("died", "the reader exited with code 3")] * count


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_costs_one_file(tmp_path, workers):
    """A fault in reading one file is that file's result."""

    def faulty(source, engine):
        if source.name == "003.log":
            raise ValueError("bad luck")
        return source.name

    results = scan_all(fill(tmp_path, 5), faulty, MATCHER, workers=workers)
    assert results[3] == ("died", "ValueError: bad luck")
    assert results[4] == "004.log"


def test_a_result_that_cannot_travel_costs_one_file(tmp_path):
    """Only plain values travel between processes."""
    results = scan_all(fill(tmp_path, 3), lambda s, m: s if s.name == "001.log" else 1, MATCHER, workers=2)
    assert results[0] == 1 and results[1][0] == "died"


def test_results_larger_than_a_pipe(tmp_path):
    """Large results pass while the parent is busy elsewhere."""
    sources = fill(tmp_path, 10)
    seen = []
    results = scan_all(sources, lambda s, m: s.name.encode() * 100_000, MATCHER, workers=2, meanwhile=lambda: seen.append(time.sleep(0.2)))
    assert [r[:7] for r in results] == [s.name.encode() for s in sources]
    assert all(len(r) == 700_000 for r in results) and len(seen) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_and_meanwhile(tmp_path, workers):
    """Progress counts bytes on disk up to the total; the other work is done once if there is anything to wait for; a matcher may be made late."""
    sources, told, done = fill(tmp_path, 30), [], []
    scan_all(sources, work, lambda: MATCHER, workers=workers, progress=lambda *p: told.append(p), meanwhile=lambda: done.append(1))
    total = sum(s.size for s in sources)
    assert [p[0] for p in told] == sorted(p[0] for p in told)
    assert told[-1] == (total, total) and len(told) == 30 and done == [1] * (workers - 1)


def test_an_error_in_the_parent_ends_the_workers(tmp_path):
    """If the parent fails meanwhile, no worker is left behind."""

    def interrupt():
        raise KeyboardInterrupt

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        scan_all(fill(tmp_path, 10), lambda s, m: time.sleep(60), MATCHER, workers=2, meanwhile=interrupt)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_small_files(tmp_path):
    """Thousands of files fit the queue, and every one has its result."""
    source = fill(tmp_path, 2)[1]
    many = [source._replace(name=str(i)) for i in range(5000)]
    assert scan_all(many, lambda s, m: s.name, MATCHER, workers=2) == [str(i) for i in range(5000)]


def test_batches_are_even_and_largest_first():
    """Large files go out alone and first; small ones travel together; nothing is lost."""
    sources = [Source("", str(i), size) for i, size in enumerate([1, 50 << 20, 1, 10 << 20] + [1] * 2000)]
    tasks, batches = pool._batches(sources, list(range(len(sources))), 2)
    order = [index for index, _ in tasks]
    assert order[:2] == [1, 3] and sorted(order) == list(range(len(sources)))
    assert batches[:2] == [(0, 1), (1, 2)]
    assert batches[-1][1] == len(sources) and all(a[1] == b[0] for a, b in pairwise(batches))
    assert len(batches) <= pool.BATCHES_MAX
