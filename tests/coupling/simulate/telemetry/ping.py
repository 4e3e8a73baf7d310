"""Who could reach whom: ping -D, and mtr reports with their start times."""

from __future__ import annotations

from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Host


def _pairs(rec: Recorder) -> list[tuple[Host, Host]]:
    """From the controller's host to all, and between the others where something happened."""
    hosts = rec.hosts()
    first = hosts[:1]
    return [(a, b) for a in hosts for b in hosts if a is not b and (a in first or ("ping_loss", a, b.name) in rec.w.series_of)]


def ping(rec: Recorder) -> None:
    for a, b in _pairs(rec):
        lines = rec.file(a, f"ping_{b.name.split('.')[0]}.txt")
        lines.append(f"PING {b.ip} ({b.ip}) 56(84) bytes of data.")
        for n, t in enumerate(rec.times(), 1):
            if rec.rng.uniform(0, 100) < rec.value("ping_loss", a, b.name, t):
                if rec.rng.random() < 0.5:
                    lines.append(f"[{a.clock(t) + rec.every * 0.9:.6f}] no answer yet for icmp_seq={n}")
                continue
            lines.append(f"[{a.clock(t):.6f}] 64 bytes from {b.ip}: icmp_seq={n} ttl=62 time={rec.value('ping_rtt', a, b.name, t):.3g} ms")


def mtr(rec: Recorder) -> None:
    zone = f"{'-' if rec.w.tz < 0 else '+'}{abs(rec.w.tz) // 3600:02d}00"
    for a, b in _pairs(rec):
        lines = rec.file(a, f"mtr_{b.name.split('.')[0]}.txt")
        for t in rec.times(0, rec.every * 4):
            loss, rtt = rec.value("ping_loss", a, b.name, t), rec.value("ping_rtt", a, b.name, t)
            lines += [
                f"Start: {rec.local(a, t, '%Y-%m-%dT%H:%M:%S')}{zone}", f"HOST: {a.name.split('.')[0]:<24} Loss%   Snt   Last   Avg  Best  Wrst StDev",
                f"  1.|-- {a.ip.rsplit('.', 1)[0]}.1{'':<14}0.0%    20    0.3   0.3   0.2   0.6   0.1",
                f"  2.|-- {'???':<22}100.0    20    0.0   0.0   0.0   0.0   0.0" if loss >= 99 else f"  2.|-- {b.ip:<22}{min(loss, 99):5.1f}%    20 {rtt:6.1f} {rtt:5.1f} {rtt * 0.8:5.1f} {rtt * 1.6:5.1f} {rtt * 0.2:5.1f}",
            ]  # fmt: skip


FORMS = (ping, mtr)
