"""Which change of a quantity is worth a line: of a counter any, of a level only what is more than its usual trembling."""

from __future__ import annotations

#: Levels of which a share must change.
SHARES = {"mem.available": 0.01, "mem.free": 0.05, "mem.shared": 0.02, "mem.group_used": 0.02, "mem.process": 0.02, "gpu.mem_used": 0.01, "fs.avail": 0.005, "fs.files_free": 0.005}
#: Levels and times of which that much must change.
STEPS = {
    "gpu.util": 20, "gpu.temperature": 3, "gpu.sm_clock": 100, "cpu.load1": 1.0, "cpu.runnable": 4, "cpu.blocked": 2, "disk.await_ms": 20, "disk.io_time_s": 1.0,
    "psi.mem_full_s": 0.05, "psi.io_full_s": 0.2, "cpu.waiting_s": 0.5, "cpu.throttled_s": 0.1, "net.rx_drops": 10, "rdma.tx_bytes": 1 << 20,
}  # fmt: skip
#: What is told at each sample for as long as it lasts: its writer may be the next that hangs, and how long it lasted is the news.
WHILE = frozenset({"proc.stuck_threads"})
NOISE_BYTES = 8 << 20  # of a level in bytes, however small it is


def matters(name: str, before: float, now: float) -> bool:
    """Whether a value has changed enough since it was written.

    >>> matters("mem.oom_kills", 0, 1), matters("gpu.util", 90, 97), matters("mem.available", 8e10, 7.9e10), matters("mem.process", 1e6, 2e6)
    (True, False, True, False)
    >>> matters("proc.stuck_threads", 1, 1), matters("proc.stuck_threads", 1, 0), matters("proc.stuck_threads", 0, 0)
    (True, True, False)
    """
    if now and name in WHILE:
        return True
    change = abs(now - before)
    if name in SHARES:
        return change >= max(SHARES[name] * abs(before), NOISE_BYTES if name != "fs.files_free" else 1)
    return change >= STEPS.get(name, 1e-9)
