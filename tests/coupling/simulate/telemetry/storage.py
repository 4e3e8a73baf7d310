"""Mounts: dated nfsiostat, mountstats snapshots with df, and node_exporter's file-system and mountstats series."""

from __future__ import annotations

from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Host

SIZE = 4.0e13


def _df(rec: Recorder, host: Host, t: float) -> list[str]:
    avail = rec.value("fs_avail", host, "", t)
    used = SIZE - avail
    return ["Filesystem           1K-blocks        Used   Available Use% Mounted on", f"{rec.w.export} {SIZE / 1024:.0f} {used / 1024:.0f} {avail / 1024:.0f} {used / SIZE * 100:.0f}% {rec.w.mount}", "/dev/nvme0n1p2 937284472 311284100 578318432  35% /"]


def _mode(rec: Recorder, host: Host, t: float) -> str:
    return "ro" if rec.value("fs_readonly", host, "", t) >= 0.5 else "rw"


def nfsiostat(rec: Recorder) -> None:
    for host in rec.hosts():
        lines = rec.file(host, "nfsiostat.txt")
        for t in rec.times(rec.rng.uniform(0, 9), rec.every * 2):
            rtt = rec.value("nfs_rtt", host, "", t)
            retrans = max(0.0, rec.value("nfs_retrans", host, "", t) - rec.value("nfs_retrans", host, "", t - rec.every * 2))
            slow = rtt > 1000
            ops = 0.4 if slow else rec.rng.uniform(20, 90)
            lines += [
                rec.local(host, t, "%Y-%m-%d %H:%M:%S"), f"{rec.w.export} mounted on {rec.w.mount}:", "", "           ops/s       rpc bklog", f"{ops:16.3f} {9.3 if slow else 0:15.3f}", "",
                "read:              ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)          errors",
                f"{ops / 3:20.3f} {ops * 180:15.3f} {512.0:15.3f}        0 (0.0%) {rtt:15.3f} {rtt * 1.1:15.3f} {0.02:15.3f}        0 (0.0%)",
                "write:             ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)          errors",
                f"{ops / 2:20.3f} {ops * 510:15.3f} {1024.0:15.3f} {retrans:8.0f} ({min(100, retrans * 2):.1f}%) {rtt:15.3f} {rtt * 1.3:15.3f} {rtt * 0.2:15.3f}        0 (0.0%)", "",
            ]  # fmt: skip
        df = rec.file(host, "df.txt")
        for t in rec.times(rec.rng.uniform(0, 9), rec.every * 4):
            df += [f"## {rec.local(host, t, '%F %T')}", *_df(rec, host, t), f"{rec.w.export} {rec.w.mount} nfs4 {_mode(rec, host, t)},relatime,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,retrans=2 0 0"]


def mountstats(rec: Recorder) -> None:
    for host in rec.hosts():
        lines = rec.file(host, "mountstats.log")
        for t in rec.times(rec.rng.uniform(0, 9), rec.every * 4):
            v = {n: int(rec.value(n, host, "", t)) for n in ("nfs_ops", "nfs_timeouts", "nfs_retrans", "nfs_errors")}
            rtt = rec.value("nfs_rtt", host, "", t)
            lines += [
                f"# {rec.local(host, t, '%Y-%m-%dT%H:%M:%S')} cat /proc/self/mountstats; df", "device /dev/nvme0n1p2 mounted on / with fstype ext4",
                f"device {rec.w.export} mounted on {rec.w.mount} with fstype nfs4 statvers=1.1", f"\topts:\t{_mode(rec, host, t)},vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2",
                f"\tage:\t{int(t - host.boot)}", "\tper-op statistics", f"\t        READ: {v['nfs_ops'] // 3} {v['nfs_ops'] // 3} 0 61000000 910000000000 2100 {int(v['nfs_ops'] * 0.7)} {int(v['nfs_ops'] * 0.8)} 0",
                f"\t       WRITE: {v['nfs_ops']} {v['nfs_ops'] + v['nfs_retrans']} {v['nfs_timeouts']} 980000000000 70000000 {int(rtt * 90)} {int(v['nfs_ops'] * rtt)} {int(v['nfs_ops'] * rtt * 1.2)} {v['nfs_errors']}",
                *_df(rec, host, t),
            ]  # fmt: skip


def node(rec: Recorder) -> None:
    fs, op = (lambda h: {"device": rec.w.export, "mountpoint": rec.w.mount, "fstype": "nfs4", "instance": f"{h.name}:9100"}), (lambda h: {"export": rec.w.export, "operation": "WRITE", "protocol": "tcp", "instance": f"{h.name}:9100"})
    rows = []
    for host in rec.hosts():
        rows += [("node_filesystem_avail_bytes", fs(host), "fs_avail", host, ""), ("node_filesystem_readonly", fs(host), "fs_readonly", host, "")]
        rows += [("node_mountstats_nfs_operations_major_timeouts_total", op(host), "nfs_timeouts", host, ""), ("node_mountstats_nfs_operations_requests_total", op(host), "nfs_ops", host, ""), ("node_nfs_rpc_retransmissions_total", {"instance": f"{host.name}:9100"}, "nfs_retrans", host, "")]
    rec.prom_json("filesystem_range.json", rows)


FORMS = (nfsiostat, mountstats, node)
