"""Lines in a program's own words get the kind they speak of; harmless ones, settings and what a signature knows are left alone."""

import time
from pathlib import Path

import pytest
from builders import run_of

from rca.ingest import generic
from rca.ingest.generic import MOST, lexicon, meaning
from rca.ingest.generic.text import alike
from rca.ingest.line import parse
from rca.model import Graph
from rca.rules.chain import load_rules
from rca.rules.judge import judge
from rca.taxonomy import Kind

STATED = [
    ("storage.no_space", "state dump stopped halfway: no bytes of room remain, the scratch volume is full"),
    ("storage.no_space", "group quota on /proj/llm is used up, put refused"),
    ("storage.read_only", "the target mount became read-only while the job ran"),
    ("storage.permission", "AccessForbidden: service account may not write objects below s3://bucket/run7"),
    ("storage.hang", "fsync on the nfs mount has been stuck for 900 s"),
    ("checkpoint.invalid", "shard 7 of the snapshot is truncated, its digest does not match the manifest"),
    ("checkpoint.mismatch", "restored weights have 12 layers, the model declares 24 layers"),
    ("memory.exhausted", "container hit its memory limit and was killed"),
    ("memory.shm_exhausted", "no space in /dev/shm for a 2 GiB batch"),
    ("device.out_of_memory", "HbmArenaError: arena for layer 3 exhausted, GPU memory is full"),
    ("device.memory_error", "gpu 4 saw an uncorrectable memory fault"),
    ("device.lost", "accelerator 2 vanished from the PCI bus"),
    ("device.link_error", "NVLink lane 3 between GPU 0 and GPU 1 is down"),
    ("nic.fault", "HCA mlx5_2: queue pair went to error state after the retry count was exceeded"),
    ("link.down", "port eth1/3 lost carrier and came back twice"),
    ("address.in_use", "cannot listen: port 29500 is taken by another process"),
    ("address.unresolved", "head node's hostname does not resolve"),
    ("rendezvous.timeout", "only 14 of 16 nodes joined the rendezvous before the deadline"),
    ("scheduler.stop", "this instance will be reclaimed by the provider in 120 s, node is preempted"),
    ("limit.reached", "cannot open another socket, the process ran into its limit of file descriptors"),
    ("driver.mismatch", "installed driver is too old for this CUDA runtime"),
    ("import.failed", "extension 'fast_norm' cannot be imported: undefined symbol"),
    ("numeric.non_finite", "gradients contain NaN, run stopped"),
    ("data.shape_mismatch", "ShapeError: tensors disagree in dimension 1, (8, 512) against (8, 511)"),
]
HARMLESS = [
    "/venv/lib/python3.11/site-packages/torch/_subclasses/functional_tensor.py:368: UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally at tensor_numpy.cpp:84.)",
    "no errors, 0 corrupt shards, disk is not full",
    "connection refused, retrying in 5 s (attempt 2)",
    "--on-nan stop    what to do when the loss is NaN",
    "{max_gpu_errors: 4, on_disk_full: stop, oom_score: 3}",
    "NCCL_IB_TIMEOUT=22 kill_on_oom=true ecc_errors=0",
    "test_lost_gpu (tests.Faults) ... ok",
    "iteration 12 | loss 2.1 | number of nan iterations: 3 | number of skipped iterations: 1 |",
    "frame #3: <unknown function> + 0x7f12 (0x55d0 in /opt/lib/libtorch.so)",
    "    raise CheckpointCorrupt('snapshot is damaged')",
    "first write failed, second attempt succeeded",
    "node_filesystem_readonly{device=\"/dev/sda1\"} 0",
    "drill: one GPU lost on purpose, job recovered in 12 s",
]


@pytest.mark.parametrize(("kind", "text"), STATED, ids=[t[:30] for _, t in STATED])
def test_a_line_of_its_own_wording_means_what_it_says(kind: str, text: str) -> None:
    """The words of a subject and of its state are enough, in whatever sentence."""
    found = generic.sense(parse(f"2026-11-20 12:00:00,000 ERROR trainer: {text}"), text)
    assert found is not None and found.kind == kind


@pytest.mark.parametrize("text", HARMLESS, ids=[t[:30] for t in HARMLESS])
def test_a_harmless_line_states_nothing(text: str) -> None:
    """Negations, settings, help, tests, tables, code and what was dealt with are no failures."""
    assert generic.sense(parse(text), text) is None


def test_an_info_line_must_be_plain() -> None:
    """The calmer the level, the more a line has to say."""
    text = "the lock is held by pid 7"
    assert meaning(text, "error").kind == Kind.LOCKED
    assert meaning(text, "info") is None
    assert meaning("gpu 3 fell off the PCIe bus", "info").kind == Kind.DEVICE_LOST


def test_numbers_that_have_names() -> None:
    """errno, exit codes, HTTP statuses and Xids mean the same in every wrapper."""
    assert meaning("store.write failed with errno=28", "error").kind == Kind.NO_SPACE
    assert meaning("PUT /runs/7 -> 403", "error").kind == Kind.PERMISSION
    assert meaning("gpumon: xid=79 seen", "error").kind == Kind.DEVICE_LOST


def test_lines_that_differ_in_idle_numbers_are_read_once() -> None:
    """Numbers that mean nothing are masked before a line is read, and what it states does not change by that."""
    logs = [p for p in sorted((Path(__file__).parents[1] / "blind" / "cases").rglob("*")) if p.is_file()]
    texts = {parse(line[:2000]).text for p in logs for line in p.read_text("utf-8", "replace").splitlines()}
    masked = [(text, alike(text)) for text in sorted(texts) if lexicon.alarm(text.lower())]
    assert [text for text, same in masked if generic._meaning.__wrapped__(text, "error") != generic._meaning.__wrapped__(same, "error")] == []
    assert len({same for _, same in masked}) < len(masked)
    assert alike("7 retries, 77 failed") == alike("7 retries, 99 failed") != alike("7 retries, 0 failed")


def test_advice_is_no_statement() -> None:
    """What one could do about something does not name it."""
    assert meaning("step took 40 s; if the disk is full, free space", "error") is None


def test_words_are_well_formed() -> None:
    """Loading checks every kind and concept; most kinds of failure can be said in plain words."""
    assert len(lexicon.meanings()) > 60
    kinds = {known.kind for known in lexicon.meanings()}
    assert kinds <= {k.value for k in Kind} and len(kinds) > 30


def test_scanned_words_are_bytes_that_the_scanner_takes() -> None:
    """Each is long enough not to hit by chance, in lower case, and plain ASCII."""
    assert all(len(word) >= 5 and word.isascii() and word == word.lower() for word in lexicon.scanned())


def test_a_signature_outranks_plain_words(tmp_path: Path) -> None:
    """A known phrase is an event of its signature, without the mark of a guess."""
    run = run_of(tmp_path, "2026-11-20 12:00:00,000 ERROR trainer: OSError: [Errno 28] No space left on device: '/ckpt/a'\n")
    event = next(e for e in run.events if e.kind == Kind.NO_SPACE)
    assert event.attrs["signature"] == "storage/no_space" and "generic" not in event.attrs


def test_an_unknown_exception_is_placed_and_stays_an_exception(tmp_path: Path) -> None:
    """Its words name the cause; that it is merely an exception of one rank remains the second reading."""
    trace = 'Traceback (most recent call last):\n  File "t.py", line 3, in save\n    put(x)\nacme.VolumeFull: snapshot volume is full, 0 bytes left\n'
    run = run_of(tmp_path, trace)
    event = next(e for e in run.events if e.attrs.get("traceback"))
    assert event.kind == Kind.NO_SPACE and event.attrs["generic"]
    assert [h.cause for h in judge(run, load_rules(), Graph(())).hypotheses][:2] == ["fs.full", "sw.rank_exception"]


def test_a_notebook_names_its_exception_above_the_frames(tmp_path: Path) -> None:
    """The end of such a traceback may be cut off; its heading has said what was raised."""
    trace = "-----------------\nPermissionError                           Traceback (most recent call last)\n<ipython-input-2-3f> in <module>\n----> 1 start()\n"
    event = next(e for e in run_of(tmp_path, trace).events if e.attrs.get("traceback"))
    assert (event.kind, event.attrs["exception"]) == (Kind.PERMISSION, "PermissionError")


def test_guesses_are_bounded(tmp_path: Path) -> None:
    """A file full of alarming lines gives a bounded number of guesses, and loses no error."""
    lines = "".join(f"2026-11-20 12:00:00,000 ERROR a{i}b: volume number {chr(97 + i % 26) * (i % 50 + 1)} is full\n" for i in range(3 * MOST))
    run = run_of(tmp_path, lines)
    assert sum(e.count for e in run.events if e.attrs.get("generic")) <= MOST
    assert sum(e.count for e in run.events if e.kind == Kind.LOGGED_ERROR) == 2 * MOST


@pytest.mark.parametrize("line", ["a" * 16_000, "a_" * 8_000, "/x " * 5_000, "1.2." * 4_000, "disk full " * 1_600, "0x" * 8_000, "a=b:c{" * 2_600, "not " * 4_000])
def test_a_hostile_line_costs_little(line: str) -> None:
    """Only the beginning of a line is read, and no pattern is quadratic."""
    took = []
    for _ in range(3):  # of processor time, and the least: the machine has others to serve
        start = time.process_time()
        meaning(line, "error")
        took.append(time.process_time() - start)
    assert min(took) < 0.25


def test_a_calm_line_costs_one_search() -> None:
    """Lines without a word of trouble, nearly all of a log, are dismissed in microseconds."""
    text = "2026-01-06 09:00:01,203 INFO trainer.py:412] [rank 3] samples=120 lr=2.9871e-04 tokens/s=411223 mem=61.2GiB"
    line = parse(text)
    generic.sense(line, text)
    best = min(_timed(line, text) for _ in range(5))
    assert best < 20e-6


def _timed(line, text) -> float:
    start = time.process_time()
    for _ in range(200):
        generic.sense(line, text)
    return (time.process_time() - start) / 200
