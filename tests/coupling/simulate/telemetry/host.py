"""CPU and memory: vmstat -t, sar -q -r -u, node_exporter scrapes, Prometheus."""

from __future__ import annotations

from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Host


def _memory(rec: Recorder, host: Host, t: float) -> float:
    """Bytes available; a host has no more than it has."""
    return min(rec.value("mem_avail", host, "", t), host.mem_gb * 0.95e9)


def vmstat(rec: Recorder) -> None:
    zone = "UTC" if not rec.w.tz else "CST" if rec.w.tz > 0 else "PDT"
    for host in rec.hosts():
        lines = rec.file(host, "vmstat.log")
        for n, t in enumerate(rec.times(rec.rng.uniform(0, 9))):
            if n % 20 == 0:
                lines += ["procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu----- -----timestamp-----", f" r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 {zone}"]
            us, wa = min(99.0, rec.value("cpu_user", host, "", t)), rec.value("cpu_iowait", host, "", t)
            kb = _memory(rec, host, t) / 1024
            swap = rec.rng.randrange(9000, 60000) if kb < 2e7 else 0
            lines.append(f"{rec.value('runq', host, '', t):2.0f} {rec.value('blocked', host, '', t):2.0f} {swap * 90:6.0f} {kb * 0.8:.0f} 104332 {kb * 0.2:.0f} {swap // 3:4d} {swap:4d}    40   {rec.rng.randrange(300, 9000)} 90210 120411 {us:2.0f}  3 {max(0, 97 - us - wa):2.0f} {wa:2.0f}  0 {rec.local(host, t, '%Y-%m-%d %H:%M:%S')}")


def sar(rec: Recorder) -> None:
    for host in rec.hosts():
        for day, times in rec.days(host):
            _sar_day(rec, host, day, times)


def _sar_day(rec: Recorder, host: Host, day: str, times: list[float]) -> None:
    lines = rec.file(host, f"sar_{day}.txt")
    first = rec.local(host, times[0], "%H:%M:%S")
    lines += [f"Linux 5.15.0-105-generic ({host.name.split('.')[0]}) \t{rec.local(host, times[0], '%m/%d/%Y')} \t_x86_64_\t({host.cores} CPU)", "", f"{first}        CPU     %user     %nice   %system   %iowait    %steal     %idle"]
    for t in times:
        us, wa = min(99.4, rec.value("cpu_user", host, "", t)), rec.value("cpu_iowait", host, "", t)
        lines.append(f"{rec.local(host, t, '%H:%M:%S')}        all {us:9.2f}      0.00      0.40 {wa:9.2f}      0.00 {max(0.0, 99.6 - us - wa):9.2f}")
    lines += ["", f"{first}    kbmemfree   kbavail kbmemused  %memused kbbuffers  kbcached"]
    for t in times:
        kb, total = _memory(rec, host, t) / 1024, host.mem_gb * 1e9 / 1024
        lines.append(f"{rec.local(host, t, '%H:%M:%S')} {kb * 0.8:12.0f} {kb:9.0f} {total - kb:9.0f} {(total - kb) / total * 100:9.2f}    104332 {kb * 0.2:9.0f}")
    lines += ["", f"{first}      runq-sz  plist-sz   ldavg-1   ldavg-5  ldavg-15   blocked"]
    for t in times:
        load = rec.value("load1", host, "", t)
        lines.append(f"{rec.local(host, t, '%H:%M:%S')} {rec.value('runq', host, '', t):12.0f}      3121 {load:9.2f} {load:9.2f} {load:9.2f} {rec.value('blocked', host, '', t):9.0f}")


NAMES = (("node_memory_MemAvailable_bytes", "mem_avail"), ("node_load1", "load1"), ("node_pressure_cpu_waiting_seconds_total", "psi_cpu"), ("node_procs_blocked", "blocked"), ("node_vmstat_oom_kill", "oom_kill"))


def node_text(rec: Recorder) -> None:
    for host in rec.hosts():
        rec.scrapes(host, "node.prom", [(m, "", s, "") for m, s in NAMES], rec.every)


def node_json(rec: Recorder) -> None:
    rows = [(m, {"instance": f"{host.name}:9100", "job": "node"}, s, host, "") for host in rec.hosts() for m, s in NAMES]
    rows += [("namedprocess_namegroup_memory_bytes", {"instance": f"{h.name}:9256", "groupname": "weight_store", "memtype": "resident"}, "proc_rss", h, s) for (n, h, s) in list(rec.w.series_of) if n == "proc_rss" and h in rec.hosts()]
    rec.prom_json("node_range.json", rows)


FORMS = (vmstat, sar, node_text, node_json)
