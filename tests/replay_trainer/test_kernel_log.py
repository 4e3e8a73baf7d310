"""Of all that the kernel says, a capture holds what concerns its own processes and devices, whole and in order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from replay_trainer.scenes import GROWS, need, python, until

from rca.replay_trainer import kernel_log
from rca.replay_trainer.control_groups import ControlGroup
from rca.replay_trainer.hosts import Here

OOM = """\
python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
CPU: 1 UID: 0 PID: 17268 Comm: python Not tainted 6.18.44 #1 PREEMPT(none)
Call Trace:
 <TASK>
 dump_stack_lvl+0x57/0x80
 </TASK>
memory: usage 163840kB, limit 163840kB, failcnt 94
Memory cgroup stats for /rca-9-trn:
cache 0
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[  17268]     0 17268    44339    43182    41582     1600         0   397312        0             0 python
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/rca-9-trn,task_memcg=/rca-9-trn,task=python,pid=17268,uid=0
Memory cgroup out of memory: Killed process 17268 (python) total-vm:177356kB, anon-rss:166328kB, file-rss:6400kB, shmem-rss:0kB, UID:0 pgtables:388kB oom_score_adj:0""".splitlines()
OTHER_OOM = [line.replace("17268", "99").replace("rca-9-trn", "rca-8-trn") for line in OOM]
HUNG = """\
INFO: task python:4711 blocked for more than 120 seconds.
      Not tainted 6.18.44 #1
"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
task:python          state:D stack:0     pid:4711  tgid:4711  ppid:1      task_flags:0x400100 flags:0x00000002
Call Trace:
 <TASK>
 __schedule+0x3f0/0xbd0
RIP: 0033:0x7f2cb6c46011
RSP: 002b:00007ffd765882f0 EFLAGS: 00000202 ORIG_RAX: 0000000000000101
RAX: ffffffffffffffda RBX: 0000000000000241 RCX: 00007f2cb6c46011
R13: 00007ffd76588fc9 R14: 0000000000000001 R15: 0000000000000200
 </TASK>""".splitlines()
OTHER_HUNG = [line.replace("4711", "47110") for line in HUNG]
DISK = ["I/O error, dev loop0, sector 4711 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2", "EXT4-fs (loop0): Remounting filesystem read-only"]
OTHER_DISK = [line.replace("loop0", "loop10") for line in DISK]


def stamped(lines: list[str]) -> list[str]:
    return [f"2026-11-22T01:19:{n // 60 % 60:02d},{n:06d}+00:00 {line}" for n, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([17268], OOM),
        (["rca-9-trn"], OOM),
        ([99], OTHER_OOM),
        ([4711], HUNG),
        ([47110], OTHER_HUNG),
        (["loop0"], DISK),
        (["loop10", "rca-9-trn"], OTHER_DISK + OOM),
        (["rca-9", "loop", 172, 4, 0], []),
    ],
)
def test_only_whole_reports_that_name_ours(words: list[str | int], expected: list[str]) -> None:
    """A report is taken whole or not at all; a pid is only what is called one; a name is no part of a longer name."""
    lines = stamped([*OTHER_OOM, *OTHER_DISK, *OOM, *HUNG, *OTHER_HUNG, *DISK])
    assert [line.partition(" ")[2] for line in kernel_log.about(lines, words)] == expected


def test_a_line_that_falls_into_a_report_is_no_part_of_it() -> None:
    """Disks and links speak while another processor prints a stack: neither goes with the other."""
    torn = stamped([*OOM[:4], DISK[0], *OOM[4:9], *OTHER_DISK[:1], *OOM[9:]])
    assert [line.partition(" ")[2] for line in kernel_log.about(torn, [17268])] == OOM
    assert [line.partition(" ")[2] for line in kernel_log.about(torn, ["loop0"])] == DISK[:1]


def test_a_report_without_its_end_does_not_swallow_the_next() -> None:
    """The ring lost the end of one report: the next begins anew."""
    lines = stamped([*OTHER_OOM[:8], *OOM])
    assert [line.partition(" ")[2] for line in kernel_log.about(lines, [17268])] == OOM


@pytest.mark.parametrize(
    ("style", "pattern"),
    [
        ("iso", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}\+00:00 "),
        ("ctime", r"\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "),
        ("boot", r"\[ *\d+\.\d{6}\] "),
    ],
)
def test_lines_are_written_as_dmesg_does(style: str, pattern: str) -> None:
    """The three formats; the time is that of this machine's own `dmesg` to within a second or so."""
    need("kernel log")
    lines = kernel_log.since(0, style)
    assert lines and all(re.match(pattern, line) for line in lines)
    option = {"iso": ["--time-format", "iso"], "ctime": ["-T"], "boot": []}[style]
    theirs = subprocess.run(["dmesg", *option], capture_output=True, text=True, env={"PATH": "/bin:/usr/bin", "TZ": "UTC", "LC_ALL": "C"}).stdout.splitlines()
    cut = {"iso": 18, "ctime": 18, "boot": 99}[style]
    ours = [line[:cut] for line in lines[-50:]]
    assert len(set(ours) & {line[:cut] for line in theirs}) >= len(set(ours)) - 3


def test_a_real_kill_is_found_by_pid_and_by_group(tmp_path: Path) -> None:
    """The kernel's own report of an out-of-memory kill, whole, and nothing from before the mark."""
    need("kernel log", "memory control groups")
    want = tmp_path / "want"
    want.write_text("99")
    mark = kernel_log.mark()
    with ControlGroup("test-log") as group:
        group.limit(memory_bytes=48 << 20)
        program = python(Here(), GROWS, str(want), within=group)
        assert program.wait(15) == -9
    assert until(lambda: kernel_log.about(kernel_log.since(mark), [program.pid]))
    report = kernel_log.about(kernel_log.since(mark), [program.pid])
    assert report == kernel_log.about(kernel_log.since(mark), [group.name])
    assert "invoked oom-killer" in report[0]
    assert f"Killed process {program.pid} (" in report[-1]
    assert len([line for line in report if "oom-kill:constraint=CONSTRAINT_MEMCG" in line]) == 1
    assert not kernel_log.since(kernel_log.mark())


@pytest.mark.parametrize("style", kernel_log.STYLES)
def test_a_capture_is_kept_in_order_of_time(style: str, tmp_path: Path) -> None:
    """What is added later may be older; equal times keep their order; a line without a time follows its predecessor."""
    day_us = 86_400_000_000
    path = tmp_path / "hosts" / "a" / "dmesg.log"

    def line(text: str, day: int) -> str:
        return kernel_log.written(text, 1795310375775230 + day * day_us, style, day * day_us)

    kernel_log.add(path, [line("two", 20), line("four", 40), "of four"])
    kernel_log.add(path, [line("one", 9), line("three", 30), line("four again", 40)])
    assert [text.split("] ")[-1].split("+00:00 ")[-1] for text in path.read_text().splitlines()] == ["one", "two", "three", "four", "of four", "four again"]
