"""Samples of host monitors: lines of `key=value` with the kernel's own counter names.

Whatever program wrote them, `carrier`, `RetransSegs` or `nr_throttled` mean what the kernel means by them. Samples are only
collected here; whether one changed inside the run's window is judged in correlate. A sample is
`(time_ns, host, subject, name, value)`; the subject is the device or pid the line speaks of.

>>> samples("nodemon: eth0 carrier=0 operstate=down tcp_retrans=12 rx_bytes=7")
[('eth0', 'carrier', 0), ('eth0', 'retransmits', 12)]
>>> samples("cgroup-exporter: pod=p1 pids=15155 nr_periods=46 nr_throttled=44 throttled_time=48801150873")
[('15155', 'throttled', 44), ('15155', 'throttled_ns', 48801150873)]
>>> samples("nodemon: pid0=16676:D:percpu_rwsem_wait pid1=16677:S:futex_do_wait")
[('16676', 'state_d', 'percpu_rwsem_wait')]
>>> samples("64 rows from anchor-1 (524288 bytes)")
[('# rows from anchor-1 (# bytes)', 'handed', 64)]

Source: Linux `Documentation/ABI/testing/sysfs-class-net`, `Documentation/admin-guide/cgroup-v2.rst`, `proc(5)`.
"""

from __future__ import annotations

import re

from rca.ingest.blocks import sizes

#: Names under which exporters print one counter -> our name.
NAMES = {
    "carrier": "carrier", "tcp_retrans": "retransmits", "retranssegs": "retransmits", "tcp_retranssegs": "retransmits",
    "tcp_timeouts": "tcp_timeouts", "tcptimeouts": "tcp_timeouts", "rx_dropped": "drops", "tx_dropped": "drops", "drops": "drops",
    "nr_throttled": "throttled", "throttled_time": "throttled_ns", "throttled_usec": "throttled_us",
    "oom_kill": "oom_kill", "carrier_changes": "carrier_changes", "carrier_down_count": "carrier_changes",
    "symbol_error": "symbol_errors", "link_downed": "link_downed", "port_rcv_errors": "port_errors",
}  # fmt: skip
#: Literals by which the scanner finds such lines; they do not occur in training programs' step lines.
PAIR = re.compile(r"(?<![\w.])([A-Za-z_]\w*)=(-?\d+)(?![\w.:])")
STATE = re.compile(r"(?<![\w.])(?:pid\w*=)?(\d{2,8}):D:(\w[\w.]*)")
DEVICE = re.compile(r"(?<![\w.])((?:eth|en[opsx]|ib|bond|mlx5_|veth)\w*)(?![\w=])|\b(?:device|dev|iface|interface|nic)=(\w+)")
#: How many pieces of work a worker made or handed over; the rest of the line is the name of that count.
HANDED = re.compile(r"(?<![\w./:=-])(\d{1,7}) (?:rows|samples|responses|completions|trajectories|条)(?![\w/])|\bout=\((\d{1,7}),")
RATE = re.compile(r"\bloss\b|/s\b|consumed|elapsed")
NUMBER = re.compile(r"(?<![\w.-])\d[\d.]*")
PIDS = re.compile(r"\bpids?=(\d+)")


def may_hold(low: str) -> bool:
    """Whether a line, given in lower case, may hold samples: to be asked first, of every line, because it costs little."""
    if " rows" in low or " samples" in low or "out=(" in low or " 条" in low or " responses" in low or " completions" in low or " trajectories" in low:
        return True
    if "=" not in low:
        return ":d:" in low
    return (
        "carrier" in low or "retrans" in low or "throttled" in low or ":d:" in low or "oom_kill" in low or "tcp_timeouts" in low or "link_downed" in low
        or "symbol_error" in low or "drop" in low or "tcptimeouts" in low or "port_rcv_errors" in low
    )  # fmt: skip


def sampled(low: str) -> bool:
    """Whether a line, given in lower case, may hold samples or sizes."""
    return may_hold(low) or ("=" in low and sizes.may_hold(low))


def samples(text: str, raw: str | None = None) -> list[tuple[str | None, str, int | str]]:
    """The known counters of one line as `(subject, name, value)`; empty for any other line. `raw` is the line with its header."""
    if (handed := HANDED.search(text)) and not RATE.search(text):
        return [(NUMBER.sub("#", text)[:160], "handed", int(handed[1] or handed[2]))]
    found: list[tuple[str | None, str, int | str]] = [(m[1], "state_d", m[2]) for m in STATE.finditer(text)]
    pairs = [(NAMES[m[1].lower()], int(m[2])) for m in PAIR.finditer(text) if m[1].lower() in NAMES]
    if not pairs:
        return found + sizes.samples(raw or text)
    device, pid = DEVICE.search(text), PIDS.search(text)
    subject = (device[1] or device[2]) if device else pid[1] if pid else None
    return found + [(subject, name, value) for name, value in pairs]
