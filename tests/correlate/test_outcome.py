"""How the run ended: finished, failed, cut or unknown, judged by the last attempt."""

from __future__ import annotations

from pathlib import Path

from tests.builders import run_of

STEPS = "".join(f"2026-11-20 12:00:{i:02d},000 INFO train: step={i} loss=2.0\n" for i in range(1, 5))
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nValueError: boom\n'
DONE = "2026-11-20 12:00:{:02d},000 INFO train: training loop finished at step=4, waiting for all ranks\n"


def test_line_that_says_so_is_a_finish(tmp_path: Path) -> None:
    """Every rank says that it is done and nobody contradicts."""
    assert run_of(tmp_path, {f"rank{r}.log": STEPS + DONE.format(9) for r in range(2)}).outcome == "finished"


def test_exception_is_a_failure(tmp_path: Path) -> None:
    """One rank that raised is a failed run, whatever the other says."""
    assert run_of(tmp_path, {"rank0.log": STEPS + DONE.format(9), "rank1.log": STEPS + TRACE}).outcome == "failed"


def test_order_to_stop_is_a_failure(tmp_path: Path) -> None:
    """A launcher that was told to stop did not finish."""
    order = "W1120 12:00:10.000000 23970 torch/distributed/elastic/agent/server/api.py:720] Received 15 death signal, shutting down workers\n"
    assert run_of(tmp_path, {"rank0.log": STEPS, "console.log": order}).outcome == "failed"


def test_steps_alone_are_unknown(tmp_path: Path) -> None:
    """A log of one rank that just ends tells nothing."""
    assert run_of(tmp_path, {"rank0.log": STEPS}).outcome == "unknown"


def test_last_attempt_decides(tmp_path: Path) -> None:
    """A run that failed once, was restarted and finished is a finished run, and the restart is a note."""
    later = STEPS.replace("12:00", "12:05") + DONE.format(9).replace("12:00", "12:05")
    run = run_of(tmp_path, {"tree/attempt_0/0/stderr.log": STEPS + TRACE, "tree/attempt_1/0/stderr.log": later})
    assert run.outcome == "finished"
    assert "the launcher restarted the job: 2 attempts" in [text for text, _ in run.notes]


def test_retry_is_a_note_and_no_failure(tmp_path: Path) -> None:
    """A request that was repeated with success is worth a note only."""
    retry = "2026-11-20 12:00:06,000 WARNING train: request to 10.29.150.89:30000 succeeded on retry\n"
    run = run_of(tmp_path, {"rank0.log": STEPS + retry + DONE.format(9)})
    assert run.outcome == "finished" and any("retry" in text for text, _ in run.notes)


TEARDOWN = (
    "[rank1]:[E1120 12:00:10.984417033 ProcessGroupNCCL.cpp:546] [Rank 1] Collective WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    " raised the following async exception: NCCL error: unhandled system error, NCCL version 2.21.5\n"
)


def test_peers_that_leave_after_the_last_step_are_teardown(tmp_path: Path) -> None:
    """The last step of so many was made, then peers left, then the log says that it is done."""
    steps = "".join(f"[12:00:{i:02d}] step {i}/9 | loss 2.0\n" for i in range(5, 10))
    assert run_of(tmp_path / "a", {"train.log": steps + TEARDOWN + "训练结束 | 9 步\n"}).outcome == "finished"
    assert run_of(tmp_path / "b", {"train.log": steps.replace("/9", "/90") + TEARDOWN + "训练结束 | 9 步\n"}).outcome == "failed"
    assert run_of(tmp_path / "c", {"train.log": steps + TEARDOWN}).outcome == "failed"


KERNEL = "Nov 20 12:00:02 node-1 kernel: NVRM: Xid (PCI:0000:3a:00): {xid}, pid={pid}, name={name}, {what}\n"


def test_steps_after_every_alarm_show_a_run_that_goes_on(tmp_path: Path) -> None:
    """A retry, a corrected row, another program's crash: training went on after all of them."""
    retried = "2026-11-20 12:00:02,500 WARNING train: request to 10.29.150.89:30000 succeeded on retry\n"
    lines = STEPS.splitlines(keepends=True)
    noted = KERNEL.format(xid=63, pid="'<unknown>'", name="<unknown>", what="Row Remapper: New row marked for remapping, reset gpu to activate.")
    other = KERNEL.format(xid=13, pid=9912, name="qmd_md", what="Graphics SM Warp Exception on (GPC 1, TPC 4, SM 1): Out Of Range Address")
    assert run_of(tmp_path / "a", {"train.log": "".join(lines[:2]) + retried + "".join(lines[2:])}).outcome == "goes_on"
    assert run_of(tmp_path / "b", {"train.log": STEPS, "dmesg.log": noted + other}).outcome == "goes_on"
    assert run_of(tmp_path / "c", {"train.log": STEPS}).outcome == "unknown"  # nothing alarming: it may hang right after


def test_error_that_no_step_follows_is_a_failure(tmp_path: Path) -> None:
    """What stands last was not survived."""
    last = "2026-11-20 12:00:09,500 ERROR train: nfs: server filer7 not responding, still trying\n"
    assert run_of(tmp_path, {"train.log": STEPS + last}).outcome == "failed"


RESTART = "torch.distributed.elastic.agent.server.api: [ERROR] Worker group FAILED. 2/3 attempts left; will restart worker group\n"


def test_error_before_a_restart_that_trained_to_the_end_is_no_failure(tmp_path: Path) -> None:
    """One console over two attempts: what failed before the restart is over once the end is reached; an error behind it is not."""
    lines = STEPS.splitlines(keepends=True)
    broken = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    text = "".join(lines[:2]) + broken + RESTART + "".join(lines) + "Training finished.\n"
    assert run_of(tmp_path / "a", {"console.log": text}).outcome == "finished"
    assert run_of(tmp_path / "b", {"console.log": text + broken}).outcome == "failed"
    assert run_of(tmp_path / "c", {"console.log": text.replace("Training finished.\n", "")}).outcome == "failed"


def test_what_is_finished_before_more_steps_is_a_part(tmp_path: Path) -> None:
    """An epoch says that its training is done, more steps follow, then an exception: the run failed. After the last step it is teardown."""
    lines = [f"2026-11-20 12:00:{i:02d},000 INFO train: step={i} loss=2.0\n" for i in range(10)]
    done = "Training finished.\n"
    trace = 'Traceback (most recent call last):\n  File "t.py", line 9, in <module>\n    main()\nKeyError: 5\n'
    assert run_of(tmp_path / "a", {"train.log": "".join([*lines[:5], done, *lines[5:], trace])}).outcome == "failed"
    assert run_of(tmp_path / "b", {"train.log": "".join([*lines[:5], done, *lines[5:], done])}).outcome == "finished"
    assert run_of(tmp_path / "c", {"train.log": "".join([*lines, done, trace])}).outcome == "finished"
