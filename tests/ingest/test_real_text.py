"""Lines as launchers, collectors, terminals and web pages leave them, and look-alikes that must stay what they are.

Times are shown without year where the line states none.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rca.ingest.clean import clean, dirty
from rca.ingest.line import parse, parse_behind
from rca.ingest.margin import margin
from rca.ingest.times import iso

FRAME = '  File "/app/t.py", line 3, in f'
X = "RuntimeError: x"
T = "2026-01-05T10:00:00"
NAMES = ("text", "rank", "local_rank", "host", "level", "step")


def told(text: str) -> dict:
    """What was read from one line: its message and who, where and when it names."""
    line = parse(clean(text))
    found = {name: value for name in NAMES if (value := getattr(line, name)) is not None}
    if line.stamp is not None:
        found["time"] = iso(line.stamp).rstrip("0").rstrip(".").replace("1972-", "")
    return found


def row(text: str, message: str, **fields: object) -> tuple:
    return text, {"text": message, **fields}


MPI = [
    row(f"[1,mpirank:3,algo-1]<stderr>:{X}", X, rank=3, host="algo-1"),
    row(f"[1,mpirank:11,algo-2]<stdout>:{FRAME}", FRAME, rank=11, host="algo-2"),
    row(f"[1,3]<stdout>:{FRAME}", FRAME, rank=3),
    row(f"[1,3]<stderr>: {X}", X, rank=3),
    row(f"[1,3]<stderr>: {FRAME}", FRAME, rank=3),
    row(f"[gn7:12345,1,3]<stderr>:{X}", X, rank=3, host="gn7"),
    row(f"[prterun-gn7-77@1,3]<stderr>: {X}", X, rank=3),
    row(f"Thu Jan  8 10:11:12 2026[1,0]<stderr>:{X}", X, rank=0, time="2026-01-08T10:11:12"),
    row(f"Thu Jan  8 10:11:12 2026<stderr>[1,0]: {X}", X, rank=0, time="2026-01-08T10:11:12"),
    row("[1,2]<stdout>:[2026-01-05 10:00:00,123] [ERROR] boom", "boom", rank=2, level="error", time=f"{T}.123"),
]
LAUNCHERS = [
    row(f"0031: {X}", X),
    row(f"3: {FRAME}", FRAME),
    row(f"gn-3: {X}", X, host="gn-3"),
    row("gn3: torch.distributed.DistBackendError: x", "torch.distributed.DistBackendError: x", host="gn3"),
    row("worker-1: [2026-01-05 10:00:00,123] [INFO] [launch.py:98:main] killing 12", "killing 12", host="worker-1", level="info", time=f"{T}.123"),
    row(f"10.0.0.5: {X}", X, host="10.0.0.5"),
    row("10.0.0.5: Traceback (most recent call last):", "Traceback (most recent call last):", host="10.0.0.5"),
    row(f"[n3:r5] {X}", X, rank=5, host="n3"),
    row(f"[n3:rank5]:{FRAME}", FRAME, rank=5, host="n3"),
    row(f"[trainer/rank12]: {X}", X, rank=12),
    row(f"[default5]:[rank13]: {X}", X, rank=13, local_rank=5),
    row(f"[rank1]: [rank0]: {X}", X, rank=0),
    row(f"(RayTrainWorker pid=123, ip=10.0.0.4) [rank5]: {X} [repeated 7x across cluster]", X, rank=5, host="10.0.0.4"),
    row(f"[36m(RayTrainWorker pid=123, ip=10.0.0.4)[0m {X}", X, host="10.0.0.4"),
    row("(autoscaler +3m2s) Error: No available node types", "Error: No available node types"),
    row(f"704.7s\t1388\t[rank1]: {FRAME}", FRAME, rank=1),
    row(f"algo-1-abcde  | {FRAME}", FRAME, host="algo-1"),
    row(f"algo-2-8gd7b_1  | [rank3]: {X}", X, rank=3, host="algo-2"),
    row("algo-1-abcde  | 2026-01-05 10:00:00,123 sagemaker-training-toolkit ERROR    Reporting", "Reporting", host="algo-1", level="error", time=f"{T}.123"),
    row(f"trainer-1  | {FRAME}", FRAME),
]
COLLECTORS = [
    row(f"[pod/tr-worker-1/pytorch] {FRAME}", FRAME, host="tr-worker-1"),
    row(f"[pod/tr-0/pytorch] {T}.123456789Z [rank0]: {X}", X, rank=0, host="tr-0", time=f"{T}.123456789"),
    row(f"{T}.123456789Z stderr F [rank0]: {X}", X, rank=0, time=f"{T}.123456789"),
    row(f"{T}.123456Z {FRAME}", FRAME, time=f"{T}.123456"),
    row(f"{T}.1234567Z ##[error]exit code 1.", "##[error]exit code 1.", time=f"{T}.1234567"),
    row(f"Jan 05 10:00:00 gpunode train.sh[4242]: {X}", X, host="gpunode", time="01-05T10:00:00"),
    row(f"Jan 05 10:00:00 gpunode python3[4242]: [rank1]: {X}", X, rank=1, host="gpunode", time="01-05T10:00:00"),
    row("Jan  5 10:00:00 gpunode python3[7]: 2026-01-05 10:00:00,123 ERROR boom", "boom", host="gpunode", level="error", time=f"{T}.123"),
    row(f"{T}+0100 gpunode python[4242]: {X}", X, host="gpunode", time="2026-01-05T09:00:00"),
    row(f"<14>Jan  5 10:00:00 gpunode python[4242]: {FRAME}", FRAME, host="gpunode", time="01-05T10:00:00"),
    row(f"<11>1 {T}.123Z gpunode trainer 4242 - - {X}", X, host="gpunode", level="error", time=f"{T}.123"),
    row(f'<165>1 {T}.003+01:00 gn7 trainer 42 ID47 [ex@32473 iut="3"] ready', "ready", host="gn7", level="info", time="2026-01-05T09:00:00.003"),
    row(f"1 {T}Z gpunode kernel - - - NVRM: Xid 79", "NVRM: Xid 79", host="gpunode", time=T),
    row(f"job-7/algo-1-1767607000\t{T}.123Z\t{X}", X, host="algo-1", time=f"{T}.123"),
    row(f"{T}.123000+00:00 job-7/algo-2-1767607000 {FRAME}", FRAME, host="algo-2", time=f"{T}.123"),
    row(f"1767607200123\t{X}", X, time=f"{T}.123"),
    row(f"{T.replace('T', ', ').join(['[', ' UTC]'])} {{pod_manager.py:490}} INFO - [base] [rank0]: {X}", X, rank=0, time=T),
    row(f"[{T}.123+0000] {{subprocess.py:93}} INFO - {FRAME}", FRAME, time=f"{T}.123"),
    row("[2026-01-05, 10:00:00 UTC] {taskinstance.py:1700} ERROR - Task failed", "Task failed", level="error", time=T),
    row(f'{{"log":"[rank0]: {X}\\n","stream":"stderr","time":"{T}.123456789Z"}}', X, rank=0, time=f"{T}.123456789"),
    row(f'{{"textPayload":"{X}","timestamp":"{T}Z","severity":"ERROR","resource":{{"labels":{{"node_name":"gn7"}}}}}}', X, host="gn7", level="error", time=T),
    row(f'{{"jsonPayload":{{"message":"{X}","rank":3}},"timestamp":"{T}Z","severity":"ERROR"}}', X, rank=3, level="error", time=T),
    row(f'{{"line":"[rank3]: {X}","timestamp":"{T}Z","labels":{{"node_name":"gn7"}}}}', X, rank=3, host="gn7", time=T),
    row(f'{{"@timestamp":"{T}Z","message":"{X}","kubernetes":{{"node":{{"name":"gn7"}}}}}}', X, host="gn7", time=T),
    row(f'{{"_index":"k","_source":{{"@timestamp":"{T}Z","message":"{X}","host":{{"name":"gn7"}}}}}}', X, host="gn7", time=T),
    row(f'{{"@timestamp":"{T}Z","log":{{"level":"error"}},"message":"boom","host":{{"hostname":"gn7"}}}}', "boom", host="gn7", level="error", time=T),
    row(f'{{"message":"{{\\"level\\":\\"error\\",\\"msg\\":\\"boom\\",\\"rank\\":3}}","timestamp":"{T}Z"}}', "boom", rank=3, level="error", time=T),
    row(f'{{"short_message":"{X}","timestamp":1767607200.5,"host":"gn7"}}', X, host="gn7", time=f"{T}.5"),
]
LOGGERS = [
    row("[2026-01-05 10:00:00] 2026-01-05 10:00:00,123 - trainer - ERROR - boom", "boom", level="error", time=f"{T}.123"),
    row("2026-01-05T10:00:00Z 2026-01-05 10:00:00,123 ERROR boom", "boom", level="error", time=f"{T}.123"),
    row("[01/05/26 10:00:00] ERROR    disk is full                              train.py:12", "disk is full", level="error", time=T),
    row("[01/05/26 10:00:00] CRITICAL disk is full                              train.py:12", "disk is full", level="critical", time=T),
    row("                    WARNING  slow link                                 net.py:7", "slow link", level="warning"),
    row("2026-01-05 10:00:00 [error    ] boom            step=12", "boom            step=12", level="error", step=12, time=T),
    row("2026-01-05 10:00:00,123 toolkit ERROR    boom", "boom", level="error", time=f"{T}.123"),
    row("E20260105 10:00:00.123456 12 x.cc:3] boom", "boom", level="error", time="01-05T10:00:00.123456"),
    row("2026-01-05 10:00:00 | ERROR | rank 3 | boom", "boom", rank=3, level="error", time=T),
    row("2026-01-05 10:00:00 gn7 rank3 ERROR boom", "boom", rank=3, level="error", time=T),
    row("Rank 3 | boom", "boom", rank=3),
    row("[Rank 3/8] boom", "boom", rank=3),
]
COPIED = [
    row("\ufeff2026-01-05 10:00:00,123 ERROR boom", "boom", level="error", time=f"{T}.123"),
    row("2026-01-05 10:00:00,123 ERROR boom\r", "boom", level="error", time=f"{T}.123"),
    row("2026-01-05\u00a010:00:00,123\u00a0ERROR\u00a0boom", "boom", level="error", time=f"{T}.123"),
    row("\u241b[31mERROR\u241b[0m boom", "boom", level="error"),
    row("^[[31mERROR^[[0m boom", "boom", level="error"),
    row("\\x1b[31mERROR\\x1b[0m boom", "boom", level="error"),
    row("\\u001b[1;31mERROR\\u001b[0m boom", "boom", level="error"),
    row("\\033[31mERROR\\033[0m boom", "boom", level="error"),
    row("#033[31mERROR#033[0m boom", "boom", level="error"),
    row("[31mERROR[0m boom", "boom", level="error"),
    row("[1;31mRuntimeError[0m: x", X),
    row("x &lt;y&gt; &quot;z&quot; it&#39;s &amp;co", "x <y> \"z\" it's &co"),
    row("  File \u201c/app/t.py\u201d, line 3, in f", FRAME),
    row("0it [00:00]#0155it [00:01]", "5it [00:01]"),
    row(f" 12%|\u2588\u258f  | 37/300 [01:02<07:21, 1.68s/it]{X}", X),
    row(f"Epoch 3:  12%|\u2588\u258f  | 37/300 [01:02<07:21, 1.68it/s, loss=2.3][rank2]: {X}", f"[rank2]: {X}"),
]
#: Nothing is read from these but what stands here: the label may as well be the content.
ALIKE = [
    row("rank 3 results: ok", "rank 3 results: ok"),
    row("rank 3 of 8", "rank 3 of 8"),
    row("ranking: 3 items", "ranking: 3 items"),
    row("host: boom", "host: boom"),
    row("warning: boom", "warning: boom"),
    row("note: the rank", "note: the rank"),
    row("layer4: RuntimeError in forward", "layer4: RuntimeError in forward"),
    row("[3] boom", "[3] boom"),
    row("[3/8] boom", "[3/8] boom"),
    row("[GPU 3] boom", "[GPU 3] boom"),
    row("trainer  | boom", "trainer  | boom"),
    row("metric | value", "metric | value"),
    row("12.5s 3 files", "12.5s 3 files"),
    row("rate[5m] of x", "rate[5m] of x"),
    row("a && b; c", "a && b; c"),
    row("C:\\new\\trace", "C:\\new\\trace"),
    row("Epoch 3:  12%|\u2588\u258f  | 37/300 [01:02<07:21, 1.68s/it, loss=2.3]", "Epoch 3:  12%|\u2588\u258f  | 37/300 [01:02<07:21, 1.68s/it, loss=2.3]"),
    row("> 3 retries", "> 3 retries"),
    row("1 2 3", "1 2 3"),
    row("[a:b] x", "[a:b] x"),
    row("a/b\tc\td", "a/b\tc\td"),
    row("node_rank: 1 of 2", "node_rank: 1 of 2"),
]
ROWS = MPI + LAUNCHERS + COLLECTORS + LOGGERS + COPIED + ALIKE


@pytest.mark.parametrize(("text", "expected"), ROWS, ids=[text[:60] for text, _ in ROWS])
def test_line(text: str, expected: dict) -> None:
    """Each shape gives its message and exactly what it states of rank, host, level, time and step."""
    assert told(text) == expected


def test_a_label_of_the_whole_file_is_told_from_content() -> None:
    """`[3] x` alone is content; before every line of two tracebacks it is who wrote the line."""
    body = ["Traceback (most recent call last):", FRAME, "    g()", X]
    found = margin([f"[{n}] {text}" for text in body for n in (1, 2)])
    assert found is not None
    rest, wrap = found.peel(f"[2] {FRAME}")
    assert wrap is not None and (rest, wrap.stream) == (FRAME, "2")
    assert parse_behind("[rank7]: x", wrap)[:4] == ("x", None, None, 7)


LABELS = [
    ("gn{}: ", "gn1"), ("[gn{}] ", "gn1"), ("gn{} | ", "gn1"), ("[gpu-{}]: ", None), ("<rank {}> ", None), ("train-{}-0 pytorch ", None), ("{}| ", None),
    ("(n{}) ", "n1"), ("[stdout:{}] ", None), ("task{}: ", None),
]  # fmt: skip


@pytest.mark.parametrize(("label", "host"), LABELS, ids=[label for label, _ in LABELS])
def test_labels_nobody_has_listed(label: str, host: str | None) -> None:
    """A label that is before every line is taken off, tells the writers apart, and names a host where it looks like one."""
    body = ["Traceback (most recent call last):", FRAME, "    g()", X]
    found = margin([label.format(n) + text for text in body for n in (1, 2)])
    read = []
    for n in (1, 2):
        rest, wrap = found.peel(label.format(n) + FRAME) if found else (label.format(n) + FRAME, None)
        read.append(parse_behind(rest, wrap) if wrap else parse(rest))
    assert read[0].text == FRAME and read[0].stream != read[1].stream
    assert host is None or read[0].host == host


@pytest.mark.parametrize(
    "lines",
    [
        ["loss: 1", "loss: 2", "loss: 3", "loss: 4", "loss: 5"],
        ["wandb: a", "wandb: b", "wandb: ERROR c", "wandb: d"],
        ["| a | b |", "| 1 | 2 |", "| 3 | 4 |", "| 5 | 6 |"],
        ["srun: error: a", "srun: error: b", "srun: error: c", "srun: error: d"],
        ["2026-01-05 10:00:00 a", "2026-01-05 10:00:01 b", "2026-01-05 10:00:02 c", "2026-01-05 10:00:03 d"],
        ["step 1 loss 3", "step 2 loss 3", "step 3 loss 3", "step 4 loss 3"],
        ["/app/a.py:1: x", "/app/a.py:2: y", "/app/a.py:3: z", "/app/a.py:4: w"],
        ["[rank0]: a", "[rank1]: b", "[rank0]: c", "[rank1]: d"],
        ["INFO a", "INFO b", "INFO c", "INFO d", "INFO e"],
    ],
    ids=lambda lines: lines[0],
)
def test_no_label(lines: list[str]) -> None:
    """What programs themselves print before every line is no label."""
    assert margin(lines) is None


PIECES = st.sampled_from(
    ["[1,3]<stderr>:", "[n3:r5] ", "[rank1]: ", "> ", "a: ", "[3] ", "&gt;", "[0m", "[31m", "\x1b[0m", "^[[0m", "\\x1b[0m", "\\n", "\ufeff", "\u00a0", "\t", "#015", "it/s]",
     "%|", "s/it]", "Traceback (most recent call last):", FRAME, X, '{"log":"', '"}', "<11>1 ", f"{T}Z ", "{x.py:3} ", "ERROR    ", "a.py:3", "algo-1-abcde  | ", "boom", "  "]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=10).map("".join)))
@example("[36m" * 2000 + "[0m")
@example("[1,3]<stderr>:" * 2000)
@example("ERROR    " + " " * 60_000 + "a.py:3")
@example("%|" * 20_000 + "it/s]x")
def test_nothing_is_swallowed(text: str) -> None:
    """What was read is a part of the line, unless a record was decoded or a traceback with it."""
    cleaned = clean(text)
    assert text == cleaned or dirty(text.encode("utf-8", "replace")) or text.startswith("[")
    line = parse(cleaned)
    if "{" not in cleaned and "=" not in cleaned and "\x1b" not in cleaned and "\r" not in cleaned:
        assert line.text in cleaned
    assert not re.search(r"[A-Za-z]", cleaned[len(cleaned) - 1 :]) or line.text or "{" in cleaned or "=" in cleaned


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=4).map("".join), max_size=12))
def test_margin_never_raises(lines: list[str]) -> None:
    """Whatever the lines, what is left of each is its end."""
    found = margin(lines)
    for text in lines:
        rest, _ = found.peel(text) if found else (text, None)
        assert text.endswith(rest)
