"""Tables that tools print again and again become samples with a time, a host, a device and an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rca.ingest.read import ingest
from rca.model import Reading

MOMENT = 1_795_000_020  # 2026-11-18T11:07:00Z

FILES: dict[str, tuple[str, set[tuple[str, Any, float]]]] = {
    "h1/smi-q.txt": (
        """==============NVSMI LOG==============

Timestamp                                 : Wed Nov 18 11:07:00 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 61810 MiB
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            DRAM Correctable              : 3
            DRAM Uncorrectable            : 2
        Aggregate
            DRAM Uncorrectable            : 9
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 4
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Not Active
""",
        {("gpu.ecc_uncorrected", "00000000:3B:00.0", 2.0), ("gpu.ecc_uncorrected_ever", "00000000:3B:00.0", 9.0), ("gpu.remap_uncorrected", "00000000:3B:00.0", 4.0), ("gpu.remap_pending", "00000000:3B:00.0", 1.0),
         ("gpu.slow_hw", "00000000:3B:00.0", 1.0), ("gpu.mem_used", "00000000:3B:00.0", 61810.0 * 2**20)},
    ),
    "dmon_h1.log": (
        """#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  sbecc  dbecc
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz   errs   errs
 20261118   11:07:00      0    321     52     61     99     40   2619   1980      0      0
 20261118   11:07:00      1    118     39     44      0      0   2619    345      0      1
""",
        {("gpu.ecc_uncorrected", 1, 1.0), ("gpu.sm_clock", 1, 345.0), ("gpu.util", 0, 99.0)},
    ),
    "rdma.txt": (
        """### Wed, 18 Nov 2026 11:07:00 +0000
link mlx5_0/1 rx_write_requests 1 out_of_sequence 5 packet_seq_err 0 local_ack_timeout_err 31
link mlx5_1/1
    rx_write_requests 1
    local_ack_timeout_err 2
""",
        {("rdma.ack_timeout", "mlx5_0", 31.0), ("rdma.sequence", "mlx5_0", 5.0), ("rdma.ack_timeout", "mlx5_1", 2.0)},
    ),
    "ib_counters_20261118_110700.txt": (
        """/sys/class/infiniband/mlx5_4/ports/1/counters/link_downed:3
/sys/class/infiniband/mlx5_4/ports/1/counters/port_rcv_errors:17
/sys/class/infiniband/mlx5_4/ports/1/hw_counters/out_of_sequence:0
/sys/class/infiniband/mlx5_4/ports/1/state:4: ACTIVE
""",
        {("rdma.link_downed", "mlx5_4", 3.0), ("rdma.rx_errors", "mlx5_4", 17.0)},
    ),
    "perfquery_mlx5_2.txt": (
        """# date: 2026-11-18T11:07:00Z
# Port extended counters: Lid 1719 port 1 (CapMask: 0x5300)
PortSelect:......................1
CounterSelect:...................0x0000
PortXmitData:....................4000
SymbolErrorCounter:..............12
LinkDownedCounter:...............1
""",
        {("rdma.symbol_errors", "mlx5_2", 12.0), ("rdma.link_downed", "mlx5_2", 1.0), ("rdma.tx_bytes", "mlx5_2", 16000.0)},
    ),
    "ethtool_ens1f0np0.txt": (
        """==== 2026-11-18 11:07:00 ====
NIC statistics:
     rx_packets: 8123
     rx_discards_phy: 55
     tx_errors: 4
     rx_crc_errors_phy: 9
""",
        {("net.rx_drops", "ens1f0np0", 55.0), ("net.tx_errors", "ens1f0np0", 4.0), ("rdma.rx_errors", "ens1f0np0", 9.0)},
    ),
    "iplink.log": (
        """1795000020
2: ens1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 9000 qdisc mq state DOWN mode DEFAULT group default qlen 1000
    link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
    1234567890 9876543      7       5       0       0
    TX:  bytes packets errors dropped carrier collsns
     987654321 8765432      1       3       2       0
""",
        {("net.carrier", "ens1", 0.0), ("net.rx_errors", "ens1", 7.0), ("net.tx_drops", "ens1", 3.0)},
    ),
    "procnetdev.txt": (
        """Wed Nov 18 11:07:00 UTC 2026
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0: 99999    1234    8   21    0     0          0         5    88888    1200    2    6    0     0       0          0
""",
        {("net.rx_errors", "eth0", 8.0), ("net.rx_drops", "eth0", 21.0), ("net.tx_errors", "eth0", 2.0)},
    ),
    "netstat-s.txt": (
        """Wed Nov 18 11:07:00 UTC 2026
Ip:
    Forwarding: 1
    123456 total packets received
Tcp:
    120 active connection openings
    4711 segments retransmitted
TcpExt:
    TCPTimeouts: 38
""",
        {("net.retransmits", None, 4711.0), ("net.tcp_timeouts", None, 38.0)},
    ),
    "nstat.log": ("[2026-11-18T11:07:00Z] #kernel\nTcpRetransSegs                  99                 0.0\nTcpExtTCPTimeouts               3                  0.0\n", {("net.retransmits", None, 99.0), ("net.tcp_timeouts", None, 3.0)}),
    "snmp.txt": ("# 2026-11-18T11:07:00Z\nTcp: RtoAlgorithm RtoMin RetransSegs InErrs\nTcp: 1 200 512 0\n", {("net.retransmits", None, 512.0)}),
    "mtr.txt": (
        """Start: 2026-11-18T11:07:00+0000
HOST: h1                          Loss%   Snt   Last   Avg  Best  Wrst StDev
  1.|-- 10.0.0.254                80.0%    50    0.3   0.4   0.2   1.1   0.1
  2.|-- h9                         6.0%    50    0.5   3.4   0.2   9.1   0.1
""",
        {("net.loss_percent", None, 6.0)},
    ),
    "mountstats.txt": (
        """Wed Nov 18 11:07:00 UTC 2026
device rootfs mounted on / with fstype rootfs
device proc mounted on /proc with fstype proc
device 10.0.0.5:/exp mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1,rsize=1048576
\tage:\t5119
\tevents:\t1 2 3 4 5
\txprt:\ttcp 0 0 1 0 0 123 123 0 124 0 2 0 1
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 10 10 0 1400 99 1 20 21 0
\t       WRITE: 100 108 6 9999 99 7 90000 91000 1
""",
        {("nfs.timeouts", "/data", 6.0), ("nfs.retrans", "/data", 8.0), ("nfs.response_s", "/data", 90.0), ("nfs.requests", "/data", 10.0)},
    ),
    "rpc_nfs.txt": ("1795000020\nnet 0 0 0 0\nrpc 90909 31 0\nproc4 2 1 1\n", {("nfs.retrans", None, 31.0)}),
    "iostat.log": (
        """Linux 5.15.0 (h7) \t11/18/2026 \t_x86_64_\t(192 CPU)

11/18/2026 11:06:00 AM
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           9.00    0.00    1.00    0.00    0.00   90.00

Device            r/s     rkB/s   r_await     w/s     wkB/s   w_await  aqu-sz  %util
nvme0n1          1.00      9.00      0.20    9.00     99.00      0.30    0.00   0.10

11/18/2026 11:07:00 AM
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           3.00    0.00    1.00   60.00    0.00   36.00

Device            r/s     rkB/s   r_await     w/s     wkB/s   w_await  aqu-sz  %util
nvme0n1          1.00      9.00      0.20    9.00     99.00   4812.00   90.00  99.10
""",
        {("disk.await_ms", "nvme0n1", 4812.0), ("cpu.idle", None, 36.0)},
    ),
    "sar-q.txt": (
        """Linux 5.15.0 (h8) \t11/18/2026 \t_x86_64_\t(192 CPU)

11:06:00 AM   runq-sz  plist-sz   ldavg-1   ldavg-5  ldavg-15   blocked
11:07:00 AM       380      4100    391.20    120.00     60.00        12
Average:          380      4100    391.20    120.00     60.00        12
""",
        {("cpu.runnable", None, 380.0), ("cpu.load1", None, 391.2), ("cpu.blocked", None, 12.0)},
    ),
    "pressure.txt": (
        "2026-11-18 11:07:00\n/proc/pressure/io:some avg10=0.86 avg60=0.34 avg300=0.64 total=6408823\n/proc/pressure/io:full avg10=0.86 avg60=0.34 avg300=0.64 total=5000000\n/proc/pressure/cpu:some avg10=99.00 avg60=0.34 avg300=0.64 total=7000000\n",
        {("psi.io_full_s", None, 5.0), ("cpu.waiting_s", None, 7.0)},
    ),
    "free.log": (
        "Wed Nov 18 11:07:00 UTC 2026\n$ free -m\n              total        used        free      shared  buff/cache   available\nMem:        2063879     1900000       80000        1000       83879       96000\nSwap:             0           0           0\n",
        {("mem.available", None, 96000.0 * 2**20), ("mem.total", None, 2063879.0 * 2**20)},
    ),
    "meminfo_1795000020.txt": ("MemTotal:       2113412345 kB\nMemFree:         113412345 kB\nMemAvailable:    413412345 kB\nBuffers:            12345 kB\nActive(anon):       99 kB\nHugePages_Total:       0\n", {("mem.available", None, 413412345.0 * 1024)}),
    "top.txt": (
        """# 2026-11-18T11:07:00Z
top - 11:07:00 up 20 days,  3:02,  2 users,  load average: 391.20, 220.18, 90.12
Tasks: 2100 total, 390 running, 1710 sleeping,   0 stopped,   0 zombie
%Cpu(s): 97.0 us,  3.0 sy,  0.0 ni,  0.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st
MiB Mem : 2063879.4 total,  80000.0 free, 1900000.0 used,  83879.4 buff/cache
MiB Swap:      0.0 total,      0.0 free,      0.0 used.  96000.0 avail Mem

    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
  23790 root      20   0  812.3g 611.2g  55120 S  99.0  30.1  81:02.11 python -m meta
     77 root      20   0   12312   1200    120 S   0.0   0.0   0:02.11 sshd
""",
        {("cpu.load1", None, 391.2), ("cpu.idle", None, 0.0), ("mem.available", None, 96000.0 * 2**20), ("mem.process", "23790", 611.2 * 2**30)},
    ),
    "df.log": (
        "==== Wed Nov 18 11:07:00 2026 ====\nFilesystem            1K-blocks        Used Available Use% Mounted on\n/dev/nvme0n1p2        960000000   960000000         0 100% /local\ntmpfs                1056706172           0 1056706172   0% /dev/shm\n10.0.0.5:/exp       40000000000 10000000000 30000000000  25% /data\n",
        {("fs.avail", "/local", 0.0), ("fs.avail", "/data", 3e10 * 1024)},
    ),
    "df-i.txt": ("# 2026-11-18T11:07:00Z\nFilesystem       Inodes    IUsed     IFree IUse% Mounted on\n/dev/sda1     122000000 122000000        0  100% /work\n", {("fs.files_free", "/work", 0.0)}),
    "loadavg.log": ("2026-11-18T11:07:00Z 391.20 120.18 90.12 380/4100 11206\n", {("cpu.load1", None, 391.2)}),
    "uptime.log": ("2026-11-18T11:07:00Z\n 11:07:00 up 20 days,  3:02,  2 users,  load average: 391.20, 220.18, 90.12\n", {("cpu.load1", None, 391.2)}),
    "memory.txt": ("1795000020\n/sys/fs/cgroup/kubepods/pod1/memory.current:68719476736\n/sys/fs/cgroup/kubepods/pod1/memory.max:68719476736\n/sys/fs/cgroup/kubepods/pod1/memory.events:oom_kill 2\n", {("mem.group_used", "/sys/fs/cgroup/kubepods/pod1", 68719476736.0), ("mem.oom_kills", "/sys/fs/cgroup/kubepods/pod1", 2.0)}),
    "vmstat.log": (
        """procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu----- -----timestamp-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 UTC
 1  0      0    111      2     33    0    0     1     2    3    4  5  6 89  0  0 2026-11-18 11:06:00
396 24     0    111      2     33    0    0     1     2    3    4 97  3  0  0  7 2026-11-18 11:07:00
""",
        {("cpu.runnable", None, 396.0), ("cpu.blocked", None, 24.0), ("cpu.steal", None, 7.0)},
    ),
    "ping.txt": (
        "PING h5 (10.0.0.5) 56(84) bytes of data.\n[1795000018.10] 64 bytes from h5 (10.0.0.5): icmp_seq=1 ttl=63 time=0.157 ms\n[1795000019.10] no answer yet for icmp_seq=2\n[1795000020.0] 64 bytes from h5 (10.0.0.5): icmp_seq=4 ttl=63 time=812 ms\n",
        {("net.rtt_ms", None, 812.0), ("net.ping_lost", None, 2.0)},
    ),
    "scrape.prom": (
        '# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n# TYPE DCGM_FI_DEV_XID_ERRORS gauge\nDCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-1",device="nvidia3",Hostname="h3"} 0 1795000000000\n'
        'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-1",device="nvidia3",Hostname="h3",err_msg="a \\"quoted\\" } word"} 79 1795000020000\n',
        {("gpu.xid", 3, 79.0)},
    ),
}  # fmt: skip
KEYS = ("bus_id", "gpu", "device", "mount", "pid", "group")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reading]:
    """The readings of all files, read at once."""
    root = tmp_path_factory.mktemp("tables")
    for name, (text, _) in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return {r.source: r for r in ingest([root], workers=1)[0]}


@pytest.mark.parametrize("name", FILES)
def test_a_table_is_read(name: str, read: dict[str, Reading]) -> None:
    """Values with their time, their device, and an address at which they stand."""
    text, wanted = FILES[name]
    assert read[name].facts.get("measured") is not None, read[name].format
    found = read[name].facts["samples"]
    about = {(r[3], next((dict(r[2])[k] for k in KEYS if k in dict(r[2])), None), round(r[4], 1)) for r in found}
    assert {(n, d, round(v, 1)) for n, d, v in wanted} <= about
    assert {r[0] for r in found if (r[3], round(r[4], 1)) in {(n, round(v, 1)) for n, _, v in wanted}} <= {MOMENT * 10**9}
    lines = text.splitlines()
    assert all(r[7] and r[7] in lines[r[5] - 1] for r in found)
    assert all(text[r[6] : r[6] + len(r[7])] == r[7] for r in found)


def test_a_table_that_is_cut_anywhere_is_no_traceback(tmp_path: Path) -> None:
    """Whatever is left of it, and odd things behind."""
    for name, (text, _) in FILES.items():
        for cut in range(0, len(text), max(1, len(text) // 25)):
            (tmp_path / f"{cut}-{Path(name).name}").write_text(text[:cut] + "\ufffd{] 1e999 NaN -\n")
    readings, _ = ingest([tmp_path], workers=1)
    assert [r.source for r in readings if r.format == "skipped"] == []


def test_what_only_begins_like_a_table_is_read_as_a_log(tmp_path: Path) -> None:
    """A job that prints the state of its devices first."""
    head = FILES["vmstat.log"][0]
    steps = "".join(f"2026-11-18 11:{10 + i // 60}:{i % 60:02d},000 INFO step {i} loss: 2.{i:03d}\n" for i in range(200))
    (tmp_path / "train.log").write_text(head + steps)
    (reading,), _ = ingest([tmp_path], workers=1)
    assert reading.facts.get("measured") is None
    assert any(info["steps"] for info in reading.facts["streams"].values())


def test_other_files_are_not_ours(tmp_path: Path) -> None:
    """Words that some tool begins with too."""
    for i, text in enumerate(
        ["name, age\nbob, 3\n", "index, loss\n1, 2.0\n", '{"status": "ok"}\n{"status": "fine"}\n', "link to the paper\n", "top - level config\nlr: 3\n", "# gpu count: 8\nstep 1 loss 2\n", "Filesystem cache enabled\n"]
    ):  # fmt: skip
        (tmp_path / f"{i}.log").write_text(text)
    assert [r.source for r in ingest([tmp_path], workers=1)[0] if r.facts.get("measured") is not None] == []
