"""How far every process came, and what ended it."""

from __future__ import annotations

from pathlib import Path

from rca.correlate.identity import Identity, Writer
from rca.correlate.progress import key_of, processes
from rca.correlate.workers import Worker
from tests.builders import NOON_NS, SECOND_NS, event, reading, run_of

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nValueError: boom\n'
TIMEOUT = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete"


def steps(first: int, last: int) -> str:
    return "".join(f"2026-11-20 12:00:{i:02d},000 INFO train: step={i} loss=2.0\n" for i in range(first, last + 1))


def test_last_step_and_last_sign_of_life(tmp_path: Path) -> None:
    """A process is as far as its last step, and its last line is its last sign of life."""
    (proc,) = run_of(tmp_path, steps(1, 5) + "2026-11-20 12:00:09,000 INFO train: writing a report\n").processes.values()
    assert (proc["last_step"], proc["steps"], proc["first_ns"], proc["last_ns"]) == (5, 5, NOON_NS + SECOND_NS, NOON_NS + 9 * SECOND_NS)


def test_traceback_at_the_end_ended_it(tmp_path: Path) -> None:
    """The exception after which nothing was written is what ended the process."""
    run = run_of(tmp_path, steps(1, 3) + TRACE)
    (proc,) = run.processes.values()
    assert run.events[proc["ended_by"]].text == "ValueError: boom" and not proc["finished"]


def test_error_that_the_process_survived_did_not_end_it(tmp_path: Path) -> None:
    """After this traceback there are many more steps: the process lived on, and the run says so."""
    run = run_of(tmp_path, steps(1, 3) + TRACE + steps(10, 20))
    (proc,) = run.processes.values()
    assert proc["ended_by"] is None and proc["last_step"] == 20
    assert [e.text for note, e in run.notes if "went on" in note] == ["ValueError: boom"]


def test_wait_before_an_abort_is_the_end(tmp_path: Path) -> None:
    """A rank that waited in vain and was then aborted ended by the wait, not by the abort."""
    run = run_of(tmp_path, steps(1, 3) + f"2026-11-20 12:00:20,000 ERROR train: {TIMEOUT}\n" + "terminate called after throwing an instance of 'c10::DistBackendError'\n")
    (proc,) = run.processes.values()
    assert run.events[proc["ended_by"]].kind == "collective.timeout"


def test_all_steps_of_a_total_are_a_finish(tmp_path: Path) -> None:
    """The last of so many steps was made and nothing went wrong: done, though no line says so."""
    text = "".join(f"2026-11-20 12:00:{i:02d},000 INFO train: rank=0 step {i}/5 loss=2.0\n" for i in range(1, 6))
    (proc,) = run_of(tmp_path, text).processes.values()
    assert proc["finished"]


def test_event_without_rank_and_actor_belongs_to_nobody() -> None:
    """A host's event has no process; an event beside a rank belongs to whom it names."""
    assert key_of(event(rank=None)) is None
    assert key_of(event(rank=3, attempt=1)) == (1, 3)
    assert key_of(event(rank=None, actor="rollout-0")) == (0, "rollout-0")
    assert key_of(event(rank=3, attrs={"of": "rollout-0"})) == (0, "rollout-0")


def test_file_of_a_worker_that_nobody_named() -> None:
    """A pid of a known role, but neither rank nor name: no process of its own, and no error."""
    nameless = Writer("worker-1.out", "", {"first": None, "last": None, "steps": [], "lines": 0}, reading("worker-1.out"), worker=Worker("train", 7))
    identity = Identity.__new__(Identity)
    identity.writers, identity.attempts = [nameless], 1
    assert processes(identity, [], None) == {}
