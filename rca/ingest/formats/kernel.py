"""The kernel log and syslog in every carrier: dmesg (plain, -T, -x, -r, iso, -e), journalctl short forms, rsyslog files.

Only journal and syslog lines name a host; seconds since boot have no wall clock. A syslog line of another program has its tag as actor.

>>> for text in SAMPLE.splitlines():
...     line = read(text)
...     print(line.shape, line.host, line.actor, line.pid, line.level, line.stamp and (line.stamp.boot, line.stamp.has_zone), line.text[:11])
kernel None None None None (True, False) EXT4-fs (lo
kernel None None None None (False, False) EXT4-fs ext
kernel None None None None (False, True) loop0: dete
kernel None None None error (True, False) msg
kernel None None None error (True, False) msg
kernel host-1 None None None (False, False) mlx5_core 0
kernel host-1 None None None (False, True) NVRM: Xid 7
kernel ip-10-4 None None None (False, False) perf: inter
kernel node-3 None None None (False, False) eth0: renam
kernel None None None None None delta
kernel None None None None (False, False) eth0 up
syslog gn41 nodemon None None (False, False) eth0 carrie
syslog n1 systemd-oomd 812 None (False, False) Killed /x
>>> [read(t) for t in ("Nov is late", "[ 12] x", "2026-11-20T11:50:30 starting worker: 3", "kernel: x", "<html>")]
[None, None, None, None, None]

Source: formats/05-host-telemetry.md 5.1; dmesg(1); journalctl(1); Linux include/linux/kern_levels.h.
"""

from __future__ import annotations

import re

from rca.ingest.formats import HEAD, Line
from rca.ingest.formats.words import level
from rca.ingest.times import CLOCK, MONTH_NAME, WEEKDAY, ZONE, boot, of

SAMPLE = """\
[  983.909497] EXT4-fs (loop0): mounted
[Fri Nov 20 11:24:10 2026] EXT4-fs ext4 error
2026-11-20T11:24:10,907925+00:00 loop0: detected capacity change
kern  :err   : [  983.909497] msg
<3>[  983.909497] msg
Feb 14 05:03:41 host-1 kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE
2026-09-14T20:30:27-0400 host-1 kernel: NVRM: Xid 79
Aug  1 06:23:51 ip-10-4 kernel: [988509.924056] perf: interrupt took too long
5月 27 06:23:51 node-3 kernel: eth0: renamed from veth0
[  +0.000123] delta
[Nov20 11:24] eth0 up
2026-11-20T11:55:58 gn41 nodemon: eth0 carrier=1
Nov 20 11:55:58 n1 systemd-oomd[812]: Killed /x"""

BOOT = r"\[ {0,8}(\d{1,9}\.\d{6})\] "
#: `<3>` is facility * 8 + level; only the level matters.
PRIORITY = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
PLAIN = re.compile(rf"(?:<(\d{{1,3}})>|[a-z]{{2,9}} {{0,4}}:([a-z]{{3,7}}) {{0,4}}: )?(?:{BOOT}|\[({WEEKDAY} {MONTH_NAME} [ \d]\d \d\d:\d\d:\d\d \d{{4}})\] )", re.ASCII)
RELATIVE = re.compile(rf"\[(?: {{0,4}}\+\d{{1,9}}\.\d{{6}}|({MONTH_NAME})([ \d]\d) (\d\d:\d\d))\] ", re.ASCII)
ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d) ", re.ASCII)
SYSLOG = re.compile(
    rf"((?:<\d{{1,3}}>)?)((?:[^\W\d_]{{3,9}}|\d\d?月)\.? [ \d]?\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})?|\d{{4}}-\d\d-\d\d[T ]{CLOCK}{ZONE.replace(chr(92) + ' ', ' ')}?) "
    rf"([A-Za-z\d][\w.-]{{0,80}}) ([A-Za-z][\w./()@-]{{0,60}})(?:\[(\d{{1,9}})\])?:(?: |$)(?:{BOOT})?"
)
#: Daemons whose line is believed to be syslog's even where the word before looks like no host name.
DAEMONS = ("kernel", "systemd", "kubelet", "containerd", "dockerd", "slurmd", "slurmctld", "sshd", "nvidia-fabricmanager", "systemd-logind")
HOST_LIKE = re.compile(r"[\d-]")


def read(text: str) -> Line | None:
    """Read one kernel or syslog line."""
    first = text[:1]
    if first == "[" or first == "<" or text[5:7].strip(" :") == "":
        if first == "[" and text[5:6] == "-":
            return None
        if match := PLAIN.match(text, 0, HEAD):
            number, word, uptime, wall = match.groups()
            name = level(PRIORITY[int(number) % 8] if number else word)
            return Line(text[match.end() :], boot(uptime) if uptime else of(wall), name, shape="kernel", prefixed=True)
        if first == "[" and (match := RELATIVE.match(text, 0, HEAD)):
            month, day, clock = match.groups()
            stamp = of(f"{month} {day} {clock}:00") if month else None
            stamp = stamp._replace(error_ns=30_000_000_000) if stamp else None
            return Line(text[match.end() :], stamp, shape="kernel", prefixed=True)
        if first == "[":
            return None
    if text[10:11] == "T" and (match := ISO.match(text, 0, HEAD)):
        return Line(text[match.end() :], of(match[1]), shape="kernel", prefixed=True)
    match = SYSLOG.match(text, 0, HEAD)
    if match is None:
        return None
    _, when, host, tag, pid, _ = match.groups()
    worded = not when[:1].isdecimal() or "月" in when
    if not worded and tag not in DAEMONS and not ((HOST_LIKE.search(host) or pid) and text[10] == "T"):
        return None
    stamp = of(when)
    if worded and stamp is None:
        return None
    shape = "kernel" if tag == "kernel" else "syslog"
    actor = None if shape == "kernel" else tag
    return Line(text[match.end() :], stamp, None, None, None, host, int(pid) if pid else None, actor, shape=shape, prefixed=True)
