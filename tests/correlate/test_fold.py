"""One happening, one event: copies of a traceback merge with all their addresses, and what many ranks repeat is folded."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rca.correlate.fold import fold, masked, merge_copies
from rca.taxonomy import Kind
from tests.builders import NOON_NS, SECOND_NS, event, run_of

HEAD = "2026-11-20 11:59:59,000 INFO train: rank=0 world_size=2\n2026-11-20 12:00:00,000 INFO train: step=1 loss=2.0\n"
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nValueError: boom'
TIMEOUT = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete"


def prefixed(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def test_one_traceback_in_four_places_is_one_event(tmp_path: Path) -> None:
    """Rank log, torchrun folder, console and error file hold one exception: one event, four addresses, the rank's own log cited."""
    stated = {"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": TRACE, "timestamp": str(NOON_NS // SECOND_NS)}}}
    run = run_of(tmp_path, {
        "rank0.log": HEAD + TRACE + "\n",
        "tree/attempt_0/0/stderr.log": HEAD + TRACE + "\n",
        "console.log": prefixed("[default0]:", HEAD + TRACE),
        "tree/attempt_0/0/error.json": json.dumps(stated),
    })  # fmt: skip
    (error,) = [e for e in run.events if e.kind == Kind.EXCEPTION]
    names = [r.source.removeprefix(f"{tmp_path.name}/") for r in error.records]
    assert error.rank == 0 and names[0] == "rank0.log"
    assert sorted(names) == ["console.log", "rank0.log", "tree/attempt_0/0/error.json", "tree/attempt_0/0/stderr.log"]


def test_console_copies_of_two_consoles_merge(tmp_path: Path) -> None:
    """The same prefixed lines on two consoles are one event."""
    text = prefixed("[default0]:", HEAD + TRACE)
    run = run_of(tmp_path, {"console.log": text, "output.log": text})
    (error,) = [e for e in run.events if e.kind == Kind.EXCEPTION]
    assert len(error.records) == 2


def test_equal_texts_of_two_ranks_stay_two_events() -> None:
    """Two ranks that raise the same are two happenings."""
    a, b = event(), event(rank=1, source="rank1.log")
    assert [e.rank for e in merge_copies([a, b])] == [0, 1]


def test_equal_texts_far_apart_stay_two_events() -> None:
    """A copy lags by a poll at most: ten seconds later it happened again."""
    assert len(merge_copies([event(), event(source="console.log", time_ns=NOON_NS + 10 * SECOND_NS)])) == 2
    assert len(merge_copies([event(), event(source="console.log", time_ns=NOON_NS + 2 * SECOND_NS)])) == 1


def test_copies_fill_in_what_the_best_address_lacks() -> None:
    """The cited copy takes pid and time from the others."""
    (joined,) = merge_copies([event(pid=None, time_ns=None), event(pid=77, source="console.log")])
    assert (joined.source, joined.pid, joined.time_ns) == ("rank0.log", 77, NOON_NS)


def test_mask_drops_numbers() -> None:
    """Two messages that differ in numbers only are one wording."""
    assert masked("rank 3 at 0x7fff took 9000ms (v2.1.0)") == "rank # at # took #ms (v#)"


def test_repeats_of_one_process_are_one_event_with_a_count() -> None:
    """One process that says the same three times gives one event, at its first time."""
    found = fold([event(text=f"RuntimeError: try {i}", line=i, offset=i, time_ns=NOON_NS + i * SECOND_NS) for i in range(3)])
    assert [(e.count, e.time_ns, e.attrs["last_ns"]) for e in found] == [(3, NOON_NS, NOON_NS + 2 * SECOND_NS)]


def test_hundred_equal_timeouts_are_one_event_with_ranks() -> None:
    """A hundred ranks that time out alike are one event that names them all."""
    many = [event(Kind.COLLECTIVE_TIMEOUT, f"{TIMEOUT} {r}", rank=r, source=f"rank{r}.log") for r in range(100)]
    (folded,) = fold(many)
    assert (folded.count, folded.ranks, folded.event_id) == (100, tuple(range(100)), 0)


def test_hundred_timeouts_of_a_run_are_folded(tmp_path: Path) -> None:
    """The same holds from the files on, and every rank counts as having waited."""
    files = {f"rank{r}.log": f"2026-11-20 11:59:50,000 INFO train: rank={r} world_size=100\n2026-11-20 12:00:00,000 ERROR train: {TIMEOUT}\n" for r in range(100)}
    run = run_of(tmp_path, files)
    (folded,) = [e for e in run.events if e.kind == Kind.COLLECTIVE_TIMEOUT]
    assert (folded.count, folded.ranks) == (100, tuple(range(100)))
    assert all(p["ended_by"] == folded.event_id for p in run.processes.values())


def test_few_causes_are_kept_singly() -> None:
    """Exceptions of ten ranks are not folded: the first of them may be the cause."""
    assert len(fold([event(rank=r, source=f"rank{r}.log") for r in range(10)])) == 10


def test_thousands_of_repeats_are_compared_with_few() -> None:
    """A line that one process repeats is no copy of itself: work grows with the events, not with their square."""
    count = 20_000
    own = [event(offset=i, line=i, time_ns=NOON_NS + i * 10 * SECOND_NS) for i in range(count)]
    console = [event(source="console.log", offset=i, time_ns=NOON_NS + i * 10 * SECOND_NS + SECOND_NS) for i in range(count)]
    undated = [event(source="rank1.log", rank=1, offset=i, time_ns=None) for i in range(count)]
    began = time.process_time()
    found = merge_copies(own + console + undated)
    assert time.process_time() - began < 20  # all with all would take ten minutes
    assert len(found) == 2 * count and sum(len(e.records) == 2 for e in found) == count
