"""Tracebacks as people paste them: wherever they come from, however they were cut, wrapped or labelled, one event each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rca.ingest.read import ingest
from rca.model import Event
from rca.taxonomy import Kind

DISK = "OSError: [Errno 28] No space left on device"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
BODY = f"""\
Traceback (most recent call last):
  File "/app/train.py", line 30, in main
    loop()
  File "/app/train.py", line 12, in save_checkpoint
    torch.save(state, path)
{DISK}
"""
LINES = BODY.splitlines()
WATCHDOG = (
    "[rank6]:[E429 13:55:49.384372190 ProcessGroupNCCL.cpp:632] [Rank 6] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=120049, OpType=_ALLGATHER_BASE, NumelIn=16384000, NumelOut=131072000, Timeout(ms)=1800000) ran for 1800065 milliseconds before timing out."
)


def events_of(folder: Path, text: str) -> list[Event]:
    """The events of a text, all of which must cite what lies in the file."""
    (folder / "log.txt").write_bytes(text.encode())
    readings, _ = ingest([folder / "log.txt"], workers=1)
    lines = text.split("\n")
    for event in readings[0].events:
        assert event.line is not None and event.attrs["raw"][:60].strip() in lines[event.line - 1]
    return list(readings[0].events)


def each(label: str) -> str:
    return "".join(f"{label}{line}\n" for line in LINES)


#: One traceback under one label or one treatment: the text, and what else is told of its writer.
WHOLE = {
    "quoted": (each("> "), {}),
    "quoted twice": (each("> > "), {}),
    "numbered": ("".join(f"{n:4} | {line}\n" for n, line in enumerate(LINES, 98)), {}),
    "numbered with tabs": ("".join(f"{n}\t{line}\n" for n, line in enumerate(LINES, 7)), {}),
    "indented": (each(" " * 8), {}),
    "fenced": (f"My run dies:\n\n```\n{BODY}```\n\nWhat can I do?\n", {}),
    "in HTML": ("<details><pre>" + BODY.replace('"', "&quot;") + "</pre></details>\n", {}),
    "in typographic quotes": (BODY.replace('"/app/train.py"', "\u201c/app/train.py\u201d"), {}),
    "with blanks of a page": (BODY.replace(" ", "\u00a0"), {}),
    "from Windows": ("\ufeff" + BODY.replace("\n", "\r\n"), {}),
    "with colours but no escape": (each("[36m(Worker pid=3, ip=10.0.0.4)[0m "), {"host": "10.0.0.4", "pid": 3}),
    "with colours spelled out": (each("\\x1b[36m(Worker pid=3, ip=10.0.0.4)\\x1b[0m "), {"host": "10.0.0.4", "pid": 3}),
    "from syslog": (each("Jan 05 10:00:00 gpunode python3[4242]: "), {"host": "gpunode", "pid": 4242}),
    "from syslog 5424": (each("<11>1 2026-01-05T10:00:00Z gpunode trainer 4242 - - "), {"host": "gpunode", "pid": 4242}),
    "from kubectl with times": (each("2026-01-05T10:00:00.123456Z "), {}),
    "from Airflow": (each("[2026-01-05, 10:00:00 UTC] {pod_manager.py:490} INFO - [base] "), {}),
    "from CloudWatch": (each("job-7/algo-2-1767607000\t2026-01-05T10:00:00.123Z\t"), {"host": "algo-2"}),
    "from Kaggle": ("".join(f"70{n}.4s {n + 80} {line}\n" for n, line in enumerate(LINES)), {}),
    "from SageMaker": (each("[1,mpirank:3,algo-2]<stderr>:"), {"host": "algo-2", "rank": 3}),
    "from compose": (each("trainer  | "), {}),
    "under a label of its own": (each("[gn7/task-3] "), {"host": "gn7"}),
    "as JSON lines": ("".join(json.dumps({"timestamp": "2026-01-05T10:00:00Z", "message": line, "labels": {"node_name": "gn7"}}) + "\n" for line in LINES),
                      {"host": "gn7"}),
    "as a repr": (f"2026-01-05 10:00:00,123 ERROR worker failed: {BODY!r}\n", {}),
    "as bytes in text": (f"ERROR stderr was {BODY.encode()!r}\n", {}),
    "behind a progress bar": (" 12%|\u2588\u258f   | 37/300 [01:02<07:21,  1.68s/it]" + BODY, {}),
    "elided": (BODY.replace("    loop()\n", "    loop()\n  ...\n<snip>\n[12 lines omitted]\n"), {}),
    "without its head": (BODY.split("\n", 2)[2], {}),
    "of another process": (f'multiprocessing.pool.RemoteTraceback: \n"""\n{BODY}"""\n\nThe above exception was the direct cause of the following exception:\n\n{BODY}', {}),
    "of a Ray task": ('Traceback (most recent call last):\n  File "/app/driver.py", line 9, in main\n    ray.get(ref)\n'
                      'ray.exceptions.RayTaskError(OSError): \x1b[36mray::W.step()\x1b[39m (pid=77, ip=10.0.0.4, repr=<W>)\n' + BODY.split("\n", 1)[1], {}),
    "in rich's box": ("\u256d\u2500\u2500 Traceback (most recent call last) \u2500\u2500\u256e\n\u2502 /app/train.py:30 in main              \u2502\n\u2502                   \u2502\n"
                      "\u2502   29 \u2502   model = build()      \u2502\n\u2502 \u2771 30 \u2502   loop(model)      \u2502\n\u2502 /app/train.py:12 in save_checkpoint  \u2502\n"
                      f"\u2570\u2500\u2500\u2500\u2500\u256f\n{DISK}\n", {}),
    "of a notebook": ("-------------------------------------\nOSError                       Traceback (most recent call last)\nCell In[7], line 2\n      1 model = build()\n"
                      "----> 2 fit(model)\n\nFile ~/env/x/trainer.py:272, in Trainer.save_checkpoint(self, model)\n    271     y = 3\n--> 272     save(model)\n\n" + DISK + "\n", {}),
    "of an old notebook": ("OSError                                   Traceback (most recent call last)\n<ipython-input-12-34> in <module>()\n----> 1 trainer.train()\n\n"
                           f"/usr/lib/x/trainer.py in save_checkpoint(self)\n   1269\n-> 1270         save()\n\n{DISK}\n", {}),
    "in a group": ('  + Exception Group Traceback (most recent call last):\n  |   File "/app/t.py", line 9, in main\n  |     go()\n  | ExceptionGroup: two (2 sub-exceptions)\n'
                   "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n"
                   f'    |   File "/app/t.py", line 3, in save_checkpoint\n    |     write()\n    | {DISK}\n    +---------------- 2 ----------------\n'
                   '    | Traceback (most recent call last):\n    |   File "/app/t.py", line 5, in load\n    | ValueError: empty\n    +------------------------------------\n', {}),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_one_event(tmp_path: Path, name: str) -> None:
    """The one event of the full disk, with the stack's frames and all that the label tells."""
    text, told = WHOLE[name]
    (event,) = events_of(tmp_path, text)
    assert (event.kind, event.text) == (Kind.NO_SPACE, DISK)
    assert event.attrs["frames"] and event.attrs["traceback"]
    assert {key: getattr(event, key) for key in told} == told


@pytest.mark.parametrize(("label", "field"), [("[{}] ", None), ("node{}: ", "host"), ("[n{}:r{}] ", "rank"), ("[1,{}]<stderr>:", "rank"), ("[rank{}]: ", "rank"),
                                              ("[pod/tr-{}/main] ", "host"), ("gn{}  | ", None)])  # fmt: skip
def test_two_writers(tmp_path: Path, label: str, field: str | None) -> None:
    """Two tracebacks whose lines alternate are two events, each whole."""
    text = "".join(label.format(n, n) + line + "\n" for line in LINES for n in (1, 2))
    events = events_of(tmp_path, text)
    assert [(e.kind, e.text, len(e.attrs["frames"])) for e in events] == [(Kind.NO_SPACE, DISK, 2)] * 2
    assert field is None or len({getattr(e, field) for e in events} - {None}) == 2


def test_two_writers_without_labels(tmp_path: Path) -> None:
    """Where nothing tells them apart, both are still one failure with its own words."""
    (event,) = events_of(tmp_path, "".join(f"{line}\n{line}\n" for line in LINES))
    assert (event.kind, event.text) == (Kind.NO_SPACE, DISK)


def test_two_writers_in_one_line(tmp_path: Path) -> None:
    """Names written into one another are one name."""
    text = 'Traceback (most recent call last):Traceback (most recent call last):\n\n  File "t.py", line 3, in f\n  File "t.py", line 3, in f\n    g()    g()\n\n'
    (event,) = events_of(tmp_path, text + "RuntimeErrorRuntimeError: : CUDA error: out of memoryCUDA error: out of memory\n\n")
    assert (event.kind, event.attrs["exception"]) == ("device.out_of_memory", "RuntimeError")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_wrapped_by_a_terminal(tmp_path: Path, width: int) -> None:
    """Lines cut at the edge of a terminal, in the midst of words, are whole again and cite where they begin."""
    text = "ready\n" + "\n".join(WATCHDOG[n : n + width] for n in range(0, len(WATCHDOG), width)) + "\n[rank6]: SystemExit: 1\n"
    event = events_of(tmp_path, text)[0]
    assert (event.kind, event.rank, event.line) == (Kind.COLLECTIVE_TIMEOUT, 6, 2)


def test_wrapped_between_words(tmp_path: Path) -> None:
    """A phrase that an author broke over two lines is still that phrase, quoted or not."""
    text = "RuntimeError: CUDA error: an illegal memory\n  access was encountered\nsome more words\n"
    for label in ("", "> "):
        event = events_of(tmp_path, "".join(f"{label}{line}\n" for line in text.splitlines()))[0]
        assert (event.kind, event.line) == ("device.illegal_access", 1)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n:5d} 0 0 1492029407 812344 210000000 0 0 625 1951 86000 76000 12 3 85 0 0 2026-11-13 12:19:{n}\n" for n in range(10, 30)),
        "".join(f"iteration {n}/ 100 | consumed samples: {n}0 | loss: 2.{n} | grad norm: 0.150 | number of skipped steps: 0 |\n" for n in range(10, 30)),
        "".join(f"tr-worker-{n}             0/1     Completed   0             3h17m   some-node-{n}   none          \n" for n in range(10, 30)),
    ],
    ids=["vmstat", "megatron", "kubectl"],
)
def test_tables_are_not_joined(tmp_path: Path, text: str) -> None:
    """Rows that all end at one column are rows."""
    assert events_of(tmp_path, text) == []


def test_the_end_is_missing(tmp_path: Path) -> None:
    """What stands in and behind a traceback without an end is not lost with it."""
    text = "\n".join(LINES[:-1]) + "\n[... 200 lines omitted ...]\nslurmstepd: error: Detected 1 oom_kill event in StepId=3.0. Some of the step tasks have been OOM Killed.\n"
    (event,) = events_of(tmp_path, text)
    assert event.kind == Kind.KILLED_BY_KERNEL and event.line == 7


def test_torchscript(tmp_path: Path) -> None:
    """The interpreter's own tracebacks belong to the exception; what failed inside is its kind."""
    text = f"""\
Traceback (most recent call last):
  File "/app/t.py", line 9, in main
    m(x)
RuntimeError: The following operation failed in the TorchScript interpreter.
Traceback of TorchScript, serialized code (most recent call last):
  File "code/__torch__/m.py", line 8, in forward
    y = torch.matmul(x, w)
        ~~~~~~~~~~~~ <--- HERE

Traceback of TorchScript, original code (most recent call last):
  File "/app/m.py", line 7, in forward
    return x @ w
           ~~~~~ <--- HERE
{ILLEGAL}
"""
    assert [e.kind for e in events_of(tmp_path, text)] == ["device.illegal_access"]


def test_a_word_and_a_colon_is_no_exception(tmp_path: Path) -> None:
    """Behind a traceback without an end, other programs' lines are not taken for its end."""
    text = "\n".join(LINES[:-1]) + "\nstep: 3\nwandb: run finished\n"
    assert events_of(tmp_path, text) == []
