"""Lines to events: blocks of many lines are one event, and context flows down from the lines above."""

from __future__ import annotations

import json
from pathlib import Path

from rca.ingest.read import ingest
from rca.model import Event
from rca.taxonomy import Kind

STEP = "2026-11-20 12:00:00,000 INFO train: step=7 loss=2.0\n"
FRAME = '  File "train.py", line {}, in {}\n    call()\n'
BAD_BYTE = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9 in position 370: invalid continuation byte"
START = "Traceback (most recent call last):\n"


def events_of(folder: Path, text: str, name: str = "rank0.log") -> list[Event]:
    (folder / name).write_text(text)
    readings, _ = ingest([folder / name], workers=1)
    return list(readings[0].events)


def test_chain_takes_the_oldest_known_kind(tmp_path: Path) -> None:
    """The full disk under the broken zip file is what happened; the last exception only came of it."""
    text = STEP + START + FRAME.format(3, "save") + "OSError: [Errno 28] No space left on device\n\n"
    text += "During handling of the above exception, another exception occurred:\n\n" + START + FRAME.format(9, "main")
    text += "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 165504 vs 165392\n"
    (event,) = events_of(tmp_path, text)
    assert (event.kind, event.text, event.line) == (Kind.NO_SPACE, "OSError: [Errno 28] No space left on device", 5)
    assert event.attrs["chain"][-1].startswith("RuntimeError: [enforce fail")


def test_chain_of_unknown_exceptions_takes_the_first(tmp_path: Path) -> None:
    """Where no signature knows any of them, the oldest exception is the event."""
    text = START + FRAME.format(3, "build") + "KeyError: 'lr'\n\nThe above exception was the direct cause of the following exception:\n\n"
    text += START + FRAME.format(9, "main") + "RuntimeError: cannot build optimizer\n"
    (event,) = events_of(tmp_path, STEP + text)
    assert (event.kind, event.text) == (Kind.EXCEPTION, "KeyError: 'lr'")


def test_loader_worker_exception_is_that_of_the_worker(tmp_path: Path) -> None:
    """An exception re-raised from a DataLoader worker is told by the worker's own traceback."""
    text = STEP + START + FRAME.format(9, "main") + "UnicodeDecodeError: Caught UnicodeDecodeError in DataLoader worker process 0.\n"
    text += "Original Traceback (most recent call last):\n" + '  File "data.py", line 4, in __getitem__\n    parse(row)\n' + BAD_BYTE + "\n"
    (event,) = events_of(tmp_path, text)
    assert (event.kind, event.text, event.attrs["loader"]) == (Kind.LOADER_WORKER_EXCEPTION, BAD_BYTE, True)
    assert event.attrs["frames"][-1][0] == "data.py"


def test_loader_worker_exception_of_an_unknown_kind_is_told_too(tmp_path: Path) -> None:
    """The worker's own message is the event's text, not the wrapper that brought it home."""
    text = STEP + START + FRAME.format(9, "main") + "ValueError: Caught ValueError in DataLoader worker process 0.\n"
    text += "Original Traceback (most recent call last):\n" + '  File "data.py", line 4, in __getitem__\n    parse(row)\n' + "ValueError: bad row 17\n"
    (event,) = events_of(tmp_path, text)
    assert (event.kind, event.text) == (Kind.LOADER_WORKER_EXCEPTION, "ValueError: bad row 17")
    assert event.attrs["frames"][-1][0] == "data.py"


def test_exception_in_a_thread_is_not_the_end_of_the_process(tmp_path: Path) -> None:
    """A helper thread's exception has a kind of its own and names the thread."""
    (event,) = events_of(tmp_path, STEP + "Exception in thread prefetcher:\n" + START + FRAME.format(9, "run") + "ValueError: boom\n")
    assert (event.kind, event.attrs["thread"]) == (Kind.THREAD_EXCEPTION, "prefetcher")


def test_json_line_with_a_traceback_is_one_event(tmp_path: Path) -> None:
    """A traceback inside a JSON line has that line's address, time and rank."""
    trace = START + FRAME.format(9, "main") + "ValueError: boom"
    line = {"ts": "2026-11-20T12:00:01.000Z", "level": "ERROR", "rank": 3, "msg": "step failed", "exc": trace}
    (event,) = events_of(tmp_path, json.dumps({**line, "level": "INFO", "msg": "hello", "exc": None}) + "\n" + json.dumps(line) + "\n", "app.jsonl")
    assert (event.kind, event.text, event.line, event.rank) == (Kind.EXCEPTION, "ValueError: boom", 2, 3)


def test_context_flows_down(tmp_path: Path) -> None:
    """A traceback without time and step has those of the line above it."""
    (event,) = events_of(tmp_path, STEP + START + FRAME.format(9, "main") + "ValueError: boom\n")
    assert (event.step, event.stage, event.attrs["inherited"]) == (7, "train", True)
    assert event.time_ns == 1_795_176_000_000_000_000 and event.time_assumed


def test_said_stage_holds_until_the_next_metrics(tmp_path: Path) -> None:
    """A stage that a line states goes on for the lines below it; metrics of a step end it."""
    text = "2026-11-20 12:00:00,000 INFO train: stage=load resuming from /mnt/a.pt (600 bytes)\n2026-11-20 12:00:01,000 ERROR train: first\n"
    text += STEP.replace("00,000", "02,000") + "2026-11-20 12:00:03,000 ERROR train: second\n"
    stages = {e.text: e.stage for e in events_of(tmp_path, text) if e.kind == Kind.LOGGED_ERROR}
    assert stages == {"first": "load", "second": "train"}


def test_stage_of_a_traceback_is_read_from_its_frames(tmp_path: Path) -> None:
    """Where no line says the stage, the functions of the stack do."""
    (event,) = events_of(tmp_path, START + FRAME.format(9, "save_checkpoint") + "ValueError: boom\n")
    assert event.stage == "save"


def test_block_cut_off_at_the_end_of_the_file_still_counts(tmp_path: Path) -> None:
    """A message without a newline at the end of the file closes its traceback; one without a message is no event."""
    assert [e.text for e in events_of(tmp_path, STEP + START + FRAME.format(9, "main") + "ValueError: boom")] == ["ValueError: boom"]
    assert events_of(tmp_path, STEP + START + FRAME.format(9, "main"), "rank1.log") == []


def test_summary_cut_off_at_the_end_of_the_file_still_counts(tmp_path: Path) -> None:
    """A launcher's entry that ends with its exit code is an exit."""
    text = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-20_12:00:05\n  host      : node-1\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 77)"
    (event,) = events_of(tmp_path, text, "console.log")
    assert (event.kind, event.rank, event.pid, event.host, event.attrs["exitcode"], event.line) == (Kind.EXITED, 1, 77, "node-1", -9, 6)


def test_two_ranks_on_one_console_do_not_mix(tmp_path: Path) -> None:
    """Tracebacks of two ranks that interleave line by line are two events."""
    a, b = ((START + FRAME.format(9, "main") + f"ValueError: of rank {r}\n").splitlines() for r in (0, 1))
    text = "".join(f"[rank0]: {x}\n[rank1]: {y}\n" for x, y in zip(a, b, strict=True))
    assert [(e.rank, e.text) for e in events_of(tmp_path, text, "console.log")] == [(0, "ValueError: of rank 0"), (1, "ValueError: of rank 1")]


def test_refused_share_of_device_memory(tmp_path: Path) -> None:
    """The call that shares memory is native and leaves no frame: its caller in torch tells it from any other refused argument."""
    torch = '  File "/x/torch/multiprocessing/reductions.py", line 357, in reduce_tensor\n    ) = storage._share_cuda_()\n'
    (shared,) = events_of(tmp_path, STEP + START + FRAME.format(9, "send") + torch + "RuntimeError: CUDA error: invalid argument\n")
    (other,) = events_of(tmp_path, STEP + START + FRAME.format(9, "launch") + "RuntimeError: CUDA error: invalid argument\n")
    (late,) = events_of(tmp_path, STEP + START + torch + "RuntimeError: CUDA error: an illegal memory access was encountered\n")
    assert [shared.kind, other.kind, late.kind] == [Kind.DEVICE_IPC, Kind.DEVICE_ERROR, Kind.DEVICE_ILLEGAL_ACCESS]


def test_bare_last_line_of_a_traceback_is_an_exception(tmp_path: Path) -> None:
    """The head of the traceback was never printed; its last line still says what was raised."""
    (event,) = events_of(tmp_path, STEP + "ValueError: boom\n")
    assert event.kind == Kind.EXCEPTION and event.attrs["bare"]


def test_abort_that_somebody_sent_to_see_the_stack(tmp_path: Path) -> None:
    """A file that holds nothing but the dump of an abort in the job's own code was asked for; below a library, or behind its words, it is a crash."""
    dump = 'Fatal Python error: Aborted\n\nCurrent thread 0x00007f3a8c9ff740 (most recent call first):\n  File "{}", line 141 in score\n  File "/root/job/main.py", line 9 in run\n'
    (asked,) = events_of(tmp_path, dump.format("/root/job/reward.py"), "stack-7714.txt")
    (native,) = events_of(tmp_path, dump.format("/opt/venv/lib/python3.12/site-packages/torch/cuda/__init__.py"), "stack-7715.txt")
    (spoken,) = events_of(tmp_path, STEP + dump.format("/root/job/reward.py"), "rank1.log")
    assert (asked.kind, asked.severity, asked.attrs["asked"]) == (Kind.STACK_DUMP, "info", True)
    assert [native.kind, spoken.kind] == [Kind.FATAL_SIGNAL, Kind.FATAL_SIGNAL]
