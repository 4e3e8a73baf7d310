"""Signatures: every phrase takes its own line, leaves its look-alike, and stays out of the way of healthy runs."""

import dataclasses
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from rca.errors import RcaError
from rca.ingest.signatures import best, load
from rca.model import Event
from rca.taxonomy import QUIET_KINDS

SIGNATURES = load()
CASES = Path(__file__).parents[3] / "shared" / "cases"
COLUMNS = {"path", "pid", "rank", "local_rank", "host", "gpu", "bus_id", "nic", "step", "stage", "group", "signal", "exitcode"}
# Attributes that the reader, the fold or a detector sets itself: a group of that name would be lost or misread.
RESERVED = {"seq", "first", "raw", "stream", "of", "document", "traceback", "exception", "frames", "chain", "thread", "loader", "signature"} | {
    field.name for field in dataclasses.fields(Event)
}
NORMAL = """\
2026-01-06 09:00:01,203 INFO trainer.py:412] [rank 3] step=120 loss=2.3145 lr=2.9871e-04 grad_norm=0.931 step_time=1.021s tokens/s=411223 mem=61.2GiB
 [2026-01-06 09:00:01] iteration      120/  500000 | consumed samples: 411223 | lm loss: 2.31E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |
step:118 - global_seqlen/mean:258048.0 - actor/entropy:0.3300 - actor/pg_loss:0.02003 - actor/grad_norm:0.4148 - timing_s/save_checkpoint:3.1
[titan] 2025-01-01 00:00:00,123 - root - INFO - step:  1  loss: 12.1234  grad_norm:  1.2  memory: 40.1GiB(50.0%)  tps: 5,000  mfu: 41.2%
{'loss': 0.1, 'grad_norm': 0.7, 'learning_rate': 1e-06, 'epoch': 0.01}
[2026-11-20 11:32:06] [INFO] [train.py:80] [Rank 1] error_count=0 failed_requests=0 timeout=1800s nan_skipped=0
2026-01-06T09:00:01Z INFO telemetry gpu_util=97 temp=61C power=688W ecc_errors=0 pcie_replays=0 xid_errors=0 rank=3
2026-01-06T09:00:01Z WARNING data.client transient slow read shard-12 took 1.203s, will not retry
node-7:811:2311 [4] NCCL INFO Channel 03/08 : 0 1 2 3 4 5 6 7 [send] via NET/IB/3/GDRDMA
node-7:811:2311 [4] NCCL INFO comm 0x55d0c3 rank 3 nranks 64 cudaDev 3 busId 9b000 commId 0x4546f737 - Init COMPLETE
[rank3]:I0106 09:00:01.203 811 ProcessGroupNCCL.cpp:2311] [PG ID 0 PG GUID 0(default_pg) Rank 3] last enqueued work: 120, last completed work: 119
(AReaL) 20260821-21:04:43.666 RPCClient INFO: Async calling method 'upload_weights' on worker 'actor/4' (attempt 1), url: http://10.4.7.22:18000/call
(AReaL) 20260821-21:04:59.034 areal.extension.asystem.remote_hybrid_inference_worker INFO: update weights finished, version: 1, cost 15.23s
INFO:     10.0.0.1:1234 - "POST /update_weights_from_distributed HTTP/1.1" 200 OK
[W1120 11:56:11.555230119 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3
UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. Failure to do this will result in PyTorch skipping the first value
mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:803:(pid 10318): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3), syndrome (0x6c4d48), err(-22)
EXT4-fs (dm-0): mounted filesystem with ordered data mode. Opts: (null). Quota mode: none.
"""
STEP_LINES = 11  # of those come again and again
SLOWEST_MS = 40  # for one search of a hostile line of 16 KB: a linear regex takes under 5 ms, a quadratic one seconds
SAVES_MAX = 60  # lines per file on which a quiet mark (a save, a load, a link that came up) may occur in a healthy run
HITS_MAX = 10  # the same for anything else


def named(text):
    """The signatures that the scanner would offer for a line."""
    low = text.lower()
    return [s for s in SIGNATURES if any(word.lower() in low for word in s.literals)]


def write(folder, body, name="mine.toml"):
    """A folder with one signature file."""
    (folder / name).write_text(body, encoding="utf-8")
    return folder


ENTRY = """
[[signature]]
id = "mine/slow_disk"
literal = ["disk is slow"]
regex = 'disk is slow: (?P<path>/\\S+)'
kind = "storage.slow"
severity = "warning"
true = "WARNING disk is slow: /scratch"
miss = "no disk is slow"
"""


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.id)
def test_takes_its_true_line_and_leaves_its_miss(signature):
    """Every signature is offered for its `true` line, speaks for it against all others, and leaves its `miss`."""
    assert signature in named(signature.true)
    assert signature.pattern.search(signature.true)
    assert signature.frames or best(signature.true, named(signature.true))[0].id == signature.id
    assert not signature.pattern.search(signature.miss)


def test_group_names_are_columns_or_free_attributes():
    """A named group is an event column or an attribute that nothing else writes."""
    clashes = {(s.id, group) for s in SIGNATURES for group in s.pattern.groupindex if group in RESERVED - COLUMNS}
    assert clashes == set()


def test_ids_are_unique_and_many():
    """Ids are unique, sorted, and there are the signatures a torchrun job needs."""
    ids = [s.id for s in SIGNATURES]
    assert ids == sorted(set(ids))
    assert len(ids) >= 200


def test_rank_of_needs_a_rank():
    """A signature that says whose rank it names does name one."""
    assert [s.id for s in SIGNATURES if s.rank_of and "rank" not in s.pattern.groupindex] == []


def test_step_lines_stop_no_scan():
    """No literal occurs in a line that a healthy run prints at every step: each hit costs time, and decoding what surrounds it."""
    assert [(s.id, line) for line in NORMAL.splitlines()[:STEP_LINES] for s in named(line)] == []


def test_normal_lines_stay_silent():
    """No signature takes a line of a normal run."""
    taken = [(hit[0].id, line) for line in NORMAL.splitlines() if (hit := best(line, named(line)))]
    assert taken == []


@pytest.mark.parametrize(
    "line",
    [
        "a" * 16_000,
        "1" * 16_000,
        "/x " * 5_000,
        "[rank 1]: " * 1_600,
        "stage=x rpc /a to b " * 800,
        "10.0.0.1:80 " * 1_300,
        "save " * 3_200,
        "https://a " * 1_600,
    ],
    ids=["letters", "digits", "paths", "brackets", "words", "addresses", "saves", "urls"],
)
def test_regexes_are_linear(line):
    """No regex takes long on a hostile line."""
    slow = []
    for signature in SIGNATURES:
        best_ms = float("inf")
        for _ in range(3):  # the best of three, in CPU time: a busy machine is no slow regex
            start = time.process_time()
            signature.pattern.search(line)
            best_ms = min(best_ms, (time.process_time() - start) * 1e3)
            if best_ms < SLOWEST_MS:
                break
        else:
            slow.append((signature.id, round(best_ms)))
    assert slow == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: unable to allocate shared memory(shm) for file </torch_30_3>: No space left on device (28)", "memory.shm_exhausted"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_1'", "memory.shm_exhausted"),
        ("OSError: [Errno 28] No space left on device", "storage.no_space"),
        ("could not import flash_attn (No module named 'flash_attn'), falling back to SDPA; this is not an error", "run.retried"),
        ("HEAD https://hub.internal/models/tiny failed: Connection refused, retrying in 1s (attempt 1/5)", "run.retried"),
        ("request to http://127.0.0.1:18002/rollout failed: [Errno 111] Connection refused", "rpc.refused"),
        ("rpc /save to train-0 failed: Status code: 500, EngineError: SaveError: OSError: [Errno 28] No space left on device", "rpc.error_reply"),
        (
            "[PG 0 Rank 7] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
            "device.illegal_access",
        ),
        ("NVRM: Xid (PCI:0000:4e:00): 74, pid=81733, NVLink: fatal error detected on link 5", "device.link_error"),
        ("NVRM: Xid (PCI:0000:4e:00): 45, pid=81733, name=python, Ch 00000008", "device.fault_echo"),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory",
            "memory.shm_exhausted",
        ),
        ("RuntimeError: DataLoader worker (pid 25999) exited unexpectedly with exit code 3. Details are lost due to multiprocessing.", "loader.worker_died"),
        (
            "TCP client failed to connect/validate to host n1:29600 - retrying (try=0): The client socket has timed out after 15000ms while trying to connect to (n1, 29600).",
            "rendezvous.unreachable",
        ),
        ("[c10d] The IPv6 network addresses of (nohost, 29611) cannot be retrieved (gai error: -2 - Name or service not known).", "address.unresolved"),
        ("Memory cgroup out of memory: Killed process 2343 (python3) total-vm:31kB, anon-rss:13kB", "process.killed_by_kernel"),
        ("CUDA out of memory in compute_log_prob for one micro batch, emptying cache and retrying", "run.retried"),
        ("InferenceEngineError: UpdateWeightError: Failed to update weights: NCCL timeout", "weights.update_failed"),
        ("slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "host.down"),
    ],
)
def test_the_more_telling_signature_wins(line, kind):
    """Where several phrases stand in one line, the event is the one that says most."""
    assert best(line, named(line))[0].kind == kind


def test_an_operators_folder_comes_on_top(tmp_path):
    """Signatures of an extra folder are loaded beside our own."""
    signatures = load(write(tmp_path, ENTRY))
    assert len(signatures) == len(SIGNATURES) + 1
    assert best("WARNING disk is slow: /scratch", signatures)[1]["path"] == "/scratch"


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("storage.slow", "storage.slwo", "unknown event kind: `storage.slwo`", "did you mean `storage.slow`?"),
        ('severity = "warning"', 'severity = "warn"', "unknown severity: `warn`", "did you mean `warning`?"),
        ("regex =", "regexp =", "unknown field: `regexp`", "did you mean `regex`?"),
        ('miss = "no disk is slow"', "", "missing field: `miss`", "every signature has"),
        ('["disk is slow"]', '["disk"]', "bad literal: `['disk']`", "at least 5 bytes"),
        ("mine/slow_disk", "other/slow_disk", "signature id does not match its file", "begin it with `mine/`"),
        ("mine/slow_disk", 'mine/slow_disk"\nrank_of = "me', "unknown rank_of: `me`", "use `peer`"),
        ("(?P<path>", "(?P<path", "bad regular expression", "disk is slow"),
        ('miss = "no disk is slow"', 'miss = "disk is slow: /a"', "takes its `miss` line", ""),
        ('["disk is slow"]', '["slow disk"]', "no literal occurs in its `true` line", ""),
        ("[[signature]]", "[[signatures]]", "unexpected `signatures`", "a list of `[[signature]]` tables"),
        ('severity = "warning"', "severity = warning", "not valid TOML", ""),
    ],
)
def test_a_broken_file_is_explained(tmp_path, old, new, message, hint):
    """A malformed entry is reported with its file and what to write instead."""
    assert old in ENTRY
    with pytest.raises(RcaError) as caught:
        load(write(tmp_path, ENTRY.replace(old, new, 1)))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "mine.toml" in (caught.value.where or "")


def test_a_taken_id_is_refused(tmp_path):
    """An extra folder cannot redefine a signature."""
    with pytest.raises(RcaError, match="signature id is taken"):
        load(write(tmp_path, ENTRY.replace("mine/slow_disk", "gloo/peer_closed"), "gloo.toml"))


def healthy_files():
    """The log files of shared cases whose run did not fail."""
    for truth in sorted(CASES.rglob("truth.json")) if CASES.is_dir() else ():
        if json.loads(truth.read_text(encoding="utf-8")).get("verdict_expected") == "healthy":
            yield from (p for p in sorted(truth.parent.rglob("*")) if p.is_file() and p.name != truth.name)


def test_healthy_runs_cost_little():
    """No literal occurs on more than a handful of lines of one file of a healthy run."""
    files = list(healthy_files())
    if not files:
        pytest.skip("no shared cases here")
    often = {}
    for path in files:
        lines = path.read_bytes().lower().split(b"\n")
        text = b"\n".join(lines)
        for signature in SIGNATURES:
            for word in () if signature.frames else signature.literals:
                key = word.lower().encode()
                count = sum(key in line for line in lines) if text.count(key) > HITS_MAX else 0
                if count > (SAVES_MAX if signature.kind in QUIET_KINDS else HITS_MAX):
                    often[signature.id, word] = (count, path.name)
    assert often == {}


def test_speakers_are_documented():
    """Every file says in its head who speaks there and where the phrases come from."""
    counts = Counter(s.path for s in SIGNATURES)
    heads = {path.name: path.read_text(encoding="utf-8").partition("[[signature]]")[0] for path in counts}
    assert [name for name, head in heads.items() if not (head.startswith("# ") and "# Source: " in head)] == []
