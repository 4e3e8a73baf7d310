"""Who wrote what: local and global ranks, hosts, attempts, pids and actor names, joined by what the files say."""

from __future__ import annotations

from pathlib import Path

from rca.correlate.correlate import correlate
from rca.correlate.identity import resolve, role_of, short
from rca.ingest.margin import wrap
from rca.ingest.read import ingest
from rca.model import Run
from rca.taxonomy import Kind
from tests.builders import run_of

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nValueError: {}\n'
ENTRY = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_12:00:05
  host      : {host}
  rank      : {rank} (local_rank: {local})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
"""
FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def steps(count: int = 3, start: int = 0) -> str:
    return "".join(f"2026-11-20 12:00:{start + i:02d},000 INFO train: step={i + 1} loss=2.0\n" for i in range(count))


def only(run: Run, kind: str):
    found = [e for e in run.events if e.kind == kind]
    assert len(found) == 1, [(e.kind, e.text) for e in run.events]
    return found[0]


def test_summary_maps_local_to_global_ranks_on_two_hosts(tmp_path: Path) -> None:
    """Local rank 0 of the second host is the global rank that its launcher's summary says."""
    run = run_of(tmp_path, {
        "node-1/tree_a/attempt_0/0/stderr.log": steps() + TRACE.format("first host"),
        "node-2/tree_b/attempt_0/0/stderr.log": steps() + TRACE.format("second host"),
        "node-1/console.log": FAILED + ENTRY.format(host="node-1", rank=0, local=0, code=1, pid=100),
        "node-2/console.log": FAILED + ENTRY.format(host="node-2", rank=2, local=0, code=1, pid=100),
    })  # fmt: skip
    assert [(e.rank, e.host, e.text) for e in run.events if e.kind == Kind.EXCEPTION] == [
        (0, "node-1", "ValueError: first host"), (2, "node-2", "ValueError: second host"),
    ]  # fmt: skip
    assert run.hosts == ("node-1", "node-2") and run.world == 3


def test_single_tree_takes_local_rank_as_global(tmp_path: Path) -> None:
    """With one launcher on one host, local and global ranks are the same number."""
    run = run_of(tmp_path, {"tree/attempt_0/1/stderr.log": steps() + TRACE.format("alone")})
    assert only(run, Kind.EXCEPTION).rank == 1


def test_two_trees_without_a_summary_leave_the_rank_open(tmp_path: Path) -> None:
    """Two launchers have a local rank 0 each; without a map of theirs neither is called global rank 0."""
    run = run_of(tmp_path, {
        "tree_a/attempt_0/0/stderr.log": steps() + TRACE.format("a"),
        "tree_b/attempt_0/0/stderr.log": steps() + TRACE.format("b"),
    })  # fmt: skip
    found = [e for e in run.events if e.kind == Kind.EXCEPTION]
    assert [(e.rank, e.local_rank) for e in found] == [(None, 0), (None, 0)]


def test_pids_collide_on_two_hosts(tmp_path: Path) -> None:
    """Containers on two hosts may share a pid: both exits stay, each with the rank of its own host."""
    run = run_of(tmp_path, {
        "console.node-1.log": FAILED + ENTRY.format(host="node-1", rank=0, local=0, code=-9, pid=77),
        "console.node-2.log": FAILED + ENTRY.format(host="node-2", rank=4, local=0, code=1, pid=77),
    })  # fmt: skip
    exits = [e for e in run.events if e.kind == Kind.EXITED]
    assert sorted((e.host, e.rank, e.attrs["exitcode"]) for e in exits) == [("node-1", 0, -9), ("node-2", 4, 1)]
    assert [(e.host, e.rank) for e in run.events if e.kind == Kind.KILLED] == [("node-1", 0)]


def test_attempts_are_counted_from_the_tree(tmp_path: Path) -> None:
    """Each attempt folder is an attempt of its own, and its events say so."""
    run = run_of(tmp_path, {
        "tree/attempt_0/0/stderr.log": steps() + TRACE.format("before"),
        "tree/attempt_1/0/stderr.log": steps(start=20) + TRACE.format("after"),
    })  # fmt: skip
    assert run.attempts == 2
    assert [(e.attempt, e.text) for e in run.events if e.kind == Kind.EXCEPTION] == [(0, "ValueError: before"), (1, "ValueError: after")]
    assert [key[0] for key in run.processes] == [0, 1]


def test_numbered_file_name_is_an_actor_and_a_logger_name_is_not(tmp_path: Path) -> None:
    """`train-1.log` names a process; a logger called `trainer` inside it does not rename it."""
    folder = write(tmp_path, {"engine_train-1.log": "2026-11-20 12:00:00,000 trainer ERROR: bad\n2026-11-20 12:00:01,000 trainer INFO: step=1 loss=2.0\n"})
    readings, _ = ingest([folder], workers=1)
    assert {w.actor for w in resolve(readings).writers} == {"engine_train-1"}
    assert {e.actor for e in correlate(readings).events} == {"engine_train-1"}


def test_roles_and_hosts_are_read_from_names() -> None:
    """A role is a word in an actor's name, and a host is its first label."""
    assert [role_of(n) for n in ("engine_rollout-0", "train-1", "ref-0", "reward", "dmesg", None)] == ["rollout", "train", "reference", "reward", None, None]
    assert [short(h) for h in ("gn-3.cluster.local", "10.0.0.7", None)] == ["gn-3", "10.0.0.7", None]


SAVE = 'Traceback (most recent call last):\n  File "t.py", line 9, in save\n    main()\nOSError: [Errno 28] No space left on device\n'


def test_task_numbers_are_ranks_where_nothing_else_names_any(tmp_path: Path) -> None:
    """`2: ` before a line is rank 2, unless the lines state ranks of their own."""
    text = "".join(f"{task}: {line}\n" for line in steps().splitlines() for task in range(4)) + "".join(f"2: {line}\n" for line in SAVE.splitlines())
    assert only(run_of(tmp_path / "a", {"job.out": text}), Kind.NO_SPACE).rank == 2
    stated = text + "1: [rank7]: ValueError: x\n"
    assert only(run_of(tmp_path / "b", {"job.out": stated}), Kind.NO_SPACE).rank is None


def test_folders_named_after_nodes_without_numbers(tmp_path: Path) -> None:
    """`node-a` and `node-b` beside one another are hosts."""
    run = run_of(tmp_path, {"node-a/train.log": steps(), "node-b/train.log": steps() + SAVE})
    assert only(run, Kind.NO_SPACE).host == "node-b" and list(run.hosts) == ["node-a", "node-b"]


def test_labels_of_a_shared_console_are_hosts(tmp_path: Path) -> None:
    """Two words that stand before all lines of a console are the hosts that wrote them, numbers or not."""
    lines = [f"{host}: {line}\n" for line in steps().splitlines() for host in ("alpha", "beta")] + [f"beta: {line}\n" for line in SAVE.splitlines()]
    run = run_of(tmp_path, {"job.out": "".join(lines)})
    assert only(run, Kind.NO_SPACE).host == "beta"


def test_a_drivers_report_of_a_remote_exception_names_the_remote_process(tmp_path: Path) -> None:
    """What Ray's driver prints of a task that failed elsewhere is that worker's failure."""
    head = 'Traceback (most recent call last):\n  File "d.py", line 9, in main\n    ray.get(x)\n'
    text = head + "ray.exceptions.RayTaskError(OSError): ray::Worker.step() (pid=77, ip=10.0.0.4, repr=<W>)\n" + SAVE.split("\n", 1)[1]
    event = only(run_of(tmp_path, {"driver.log": steps() + text}), Kind.NO_SPACE)
    assert (event.host, event.pid, event.actor) == ("10.0.0.4", 77, "Worker")


def test_a_world_of_billions_is_not_believed(tmp_path: Path) -> None:
    """A number that no machine has ranks for counts something else, and nothing is listed up to it."""
    line = "hostname=n1 pid=4 rank={rank} world_size=30000000000\n[rank90000000000]: RuntimeError: boom\n"
    assert run_of(tmp_path, {f"rank_{r}.log": line.format(rank=r) for r in (0, 1)}).world == 2


def test_hosts_called_like_workers_are_no_ranks(tmp_path: Path) -> None:
    """`worker-29_server0.log` lies on a host of that name, and `h100-r09: ` is a label of a host in rack 9."""
    files = {"telemetry/worker-29/kern.log": "2026-06-01T00:54:15.104053+08:00 worker-29 kernel: [0.000000] Linux version 5.15.0-105-generic\n",
             "ref/worker-29_server0.log": '2026-06-01 01:00:00,000 ERROR boom\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nIndexError: index out of range in self\n'}  # fmt: skip
    event = next(e for e in run_of(tmp_path, files).events if "IndexError" in e.text)
    assert (event.host, event.rank) == ("worker-29", None)
    assert wrap("h100-r09", True)[2] is None and wrap("n3:r5", True)[2] == 5 and wrap("r5", True)[2] == 5
