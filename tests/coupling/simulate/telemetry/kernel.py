"""Kernel logs: dmesg with clock time, with ISO time, journalctl short, ISO and JSON, and syslog files."""

from __future__ import annotations

import json
import time

from coupling.simulate import real
from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Host


def _lines(rec: Recorder, host: Host, ring: bool = False) -> list[tuple[float, int, str]]:
    """All lines of a host in true time: boot, idle noise, what the run caused. The kernel's own ring buffer begins with the boot, files do not."""
    w, rng = rec.w, rec.rng
    lines = [(host.boot + s, 6, text) for s, text in real.boot_noise(host, rng)]
    lines += [(rng.uniform(host.boot + 3600, w.end), 6, real.idle_noise(rng)) for _ in range(rng.randrange(3, 12))]
    lines += [(t, p, text) for t, h, p, text, _ in w.kernel if h is host]
    return sorted((x for x in lines if not ring or x[0] >= host.boot), key=lambda x: x[0])


def _uptime(host: Host, t: float) -> float:
    """Seconds since the boot that the line belongs to; the boot before the last was 20 days earlier."""
    return t - host.boot if t >= host.boot else t - host.boot + 20 * 86400


def dmesg_clock(rec: Recorder) -> None:
    for host in rec.hosts():
        rec.file(host, "dmesg.txt").extend(f"[{rec.local(host, t, '%a %b %e %H:%M:%S %Y')}] {text}" for t, _, text in _lines(rec, host, ring=True))


def dmesg_iso(rec: Recorder) -> None:
    sign, zone = ("-" if rec.w.tz < 0 else "+"), abs(rec.w.tz) // 3600
    for host in rec.hosts():
        rec.file(host, "dmesg_iso.txt").extend(f"{rec.local(host, t, '%Y-%m-%dT%H:%M:%S')},{int(host.clock(t) % 1 * 1e6):06d}{sign}{zone:02d}:00 {text}" for t, _, text in _lines(rec, host, ring=True))


def journal_short(rec: Recorder) -> None:
    for host in rec.hosts():
        rec.file(host, "journal-k.log").extend(f"{rec.local(host, t, '%b %d %H:%M:%S')} {host.name.split('.')[0]} kernel: {text}" for t, _, text in _lines(rec, host))


def kern_log(rec: Recorder) -> None:
    sign, zone = ("-" if rec.w.tz < 0 else "+"), abs(rec.w.tz) // 3600
    for host in rec.hosts():
        rec.file(host, "kern.log").extend(
            f"{rec.local(host, t, '%Y-%m-%dT%H:%M:%S')}.{int(host.clock(t) % 1 * 1e6):06d}{sign}{zone:02d}:00 {host.name.split('.')[0]} kernel: [{_uptime(host, t):.6f}] {text}" for t, _, text in _lines(rec, host)
        )


def journal_json(rec: Recorder) -> None:
    for host in rec.hosts():
        rec.file(host, "journal.json").extend(
            json.dumps({
                "__REALTIME_TIMESTAMP": str(int(host.clock(t) * 1e6)), "__MONOTONIC_TIMESTAMP": str(int(_uptime(host, t) * 1e6)), "_BOOT_ID": f"{int(host.boot) + (0 if t >= host.boot else 77):032x}", "_HOSTNAME": host.name.split(".")[0], "_TRANSPORT": "kernel",
                "PRIORITY": str(p), "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel", "_SOURCE_MONOTONIC_TIMESTAMP": str(int(_uptime(host, t) * 1e6)), "MESSAGE": text,
            }) for t, p, text in _lines(rec, host)
        )  # fmt: skip


def console_pdsh(rec: Recorder) -> None:
    """`pdsh dmesg -T` into one file: every line behind its host."""
    lines = rec.shared("kernel_all_hosts.txt")
    for host in rec.hosts():
        lines.extend(f"{host.name.split('.')[0]}: [{time.strftime('%a %b %e %H:%M:%S %Y', time.gmtime(host.clock(t) + rec.w.tz))}] {text}" for t, _, text in _lines(rec, host, ring=True))


FORMS = (dmesg_clock, dmesg_iso, journal_short, kern_log, journal_json, console_pdsh)
