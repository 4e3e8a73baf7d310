"""Measurements become events by their change inside the run: on the right host and device, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rca
from rca.model import Event
from rca.taxonomy import Kind
from tests.builders import run_of

BEGAN = 1_795_000_000  # 2026-11-18T11:06:40Z
STEP = 60
POINTS = 40
HOSTS = ("n1", "n2", "n3", "n4")
Course = Callable[[str, int], float]


def job(root: Path) -> None:
    """Logs of a job that writes a step a minute on each host and then just ends."""
    from datetime import UTC, datetime

    for rank, host in enumerate(HOSTS):
        folder = root / host
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{datetime.fromtimestamp(BEGAN + i * STEP, UTC):%Y-%m-%dT%H:%M:%S}.000Z INFO [rank{rank}] step {i} loss: {3 - i / 50:.3f}" for i in range(POINTS)]
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")


def export(root: Path, name: str, course: Course, labels: dict[str, str] | None = None, **more: Any) -> None:
    """A Prometheus range answer with one series per host."""
    result = [
        {"metric": {"__name__": name, "instance": f"10.0.0.{n}:9100", "nodename": host} | (labels or {}), "values": [[BEGAN + i * STEP + 7 + more.get("skew", 0), str(course(host, i))] for i in range(POINTS)]}
        for n, host in enumerate(HOSTS)
    ]  # fmt: skip
    (root / f"{name}.json").write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}, indent=more.get("indent")))


def derived(root: Path) -> list[Event]:
    """The events that no line states, without notes."""
    return [e for e in rca.analyze(root, workers=1).run.events if e.source is None and e.attrs.get("metric")]


CASES: dict[str, tuple[str, dict[str, str], Course, str, dict[str, Any]]] = {
    "retransmissions": ("node_netstat_Tcp_RetransSegs", {}, lambda h, i: 2 * i + (40_000 * max(0, i - 25) if h == "n3" else 0), Kind.PACKET_LOSS, {"host": "n3"}),
    "drops": ("node_network_receive_drop_total", {"device": "ens1"}, lambda h, i: 9000 * max(0, i - 30) if h == "n2" else i // 9, Kind.PACKET_LOSS, {"host": "n2", "nic": "ens1"}),
    "port": ("node_infiniband_port_errors_received_total", {"device": "mlx5_7", "port": "1"}, lambda h, i: 3 + (700 * max(0, i - 33) if h == "n1" else 0), Kind.NIC_ERRORS_ROSE, {"host": "n1", "nic": "mlx5_7"}),
    "ecc": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", {"gpu": "5"}, lambda h, i: float(h == "n4" and i > 20), Kind.DEVICE_MEMORY_ERROR, {"host": "n4", "gpu": 5}),
    "xid": ("DCGM_FI_DEV_XID_ERRORS", {"gpu": "2"}, lambda h, i: 79.0 if h == "n2" and i > 31 else 0.0, Kind.DEVICE_LOST, {"host": "n2", "gpu": 2}),
    "memory": ("node_memory_MemAvailable_bytes", {}, lambda h, i: 9e11 - (2.2e10 * i if h == "n1" else 1e9 * (i % 3)), Kind.MEMORY_GREW, {"host": "n1"}),
    "run queue": ("node_load1", {}, lambda h, i: 600.0 + i if h == "n3" and i > 12 else 20.0 + i % 7, Kind.CPU_STARVED, {"host": "n3"}),
    "read-only": ("node_filesystem_readonly", {"mountpoint": "/ckpt", "fstype": "nfs4", "device": "s:/e"}, lambda h, i: float(h == "n2" and i > 11), Kind.READ_ONLY, {"host": "n2", "path": "/ckpt"}),
    "full": ("node_filesystem_avail_bytes", {"mountpoint": "/local", "fstype": "xfs", "device": "/dev/nvme1"}, lambda h, i: max(0.0, 5e11 - 3e10 * i) if h == "n4" else 5e11, Kind.NO_SPACE, {"host": "n4", "path": "/local"}),
    "dead mount": ("node_filesystem_device_error", {"mountpoint": "/ckpt", "fstype": "nfs", "device": "s:/e"}, lambda h, i: float(h == "n1" and 20 < i < 35), Kind.STORAGE_HANG, {"host": "n1", "path": "/ckpt"}),
    "restart": ("node_boot_time_seconds", {}, lambda h, i: BEGAN + 22 * STEP if h == "n2" and i > 24 else BEGAN - 9e6, Kind.HOST_DOWN, {"host": "n2"}),
    "stall": ("node_pressure_io_stalled_seconds_total", {}, lambda h, i: i * 0.1 + (55.0 * max(0, i - 20) if h == "n3" else 0), Kind.STORAGE_SLOW, {"host": "n3"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_an_event_of_its_host_and_device(case: str, tmp_path: Path) -> None:
    """One event, in time, resting on lines that are in the file."""
    name, labels, course, kind, place = CASES[case]
    job(tmp_path)
    export(tmp_path, name, course, labels, indent=2 if len(case) % 2 else None)
    (event,) = derived(tmp_path)
    assert event.kind == kind
    assert {k: getattr(event, k) for k in place} == place
    text = (tmp_path / f"{name}.json").read_text()
    assert event.also and all(r.text in text[r.offset : r.offset + 300] for r in event.also)
    changed = next(i for i in range(1, POINTS) if course(str(place["host"]), i) != course(str(place["host"]), i - 1))
    assert event.time_ns is not None and event.time_ns >= (BEGAN + (changed - 2) * STEP) * 10**9


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("skew", [-90, 40])
def test_clocks_that_differ_do_not_matter(case: str, skew: int, tmp_path: Path) -> None:
    """The window is wider than the clocks are apart."""
    name, labels, course, kind, place = CASES[case]
    job(tmp_path)
    export(tmp_path, name, course, labels, skew=skew)
    assert [(e.kind, e.host) for e in derived(tmp_path)] == [(kind, place["host"])]


@pytest.mark.parametrize("case", [c for c in CASES if c not in ("memory", "full", "restart")])
def test_what_stood_before_the_run_is_nothing(case: str, tmp_path: Path) -> None:
    """The same values, reached hours before the first line of the job."""
    name, labels, course, _, _ = CASES[case]
    job(tmp_path)
    export(tmp_path, name, course, labels, skew=-6 * 3600)
    assert derived(tmp_path) == []


CALM: dict[str, tuple[str, dict[str, str], Course]] = {
    "everybody sends again a little": ("node_netstat_Tcp_RetransSegs", {}, lambda h, i: 900 * i),
    "a sticky xid": ("DCGM_FI_DEV_XID_ERRORS", {"gpu": "1"}, lambda h, i: 79.0 if h == "n2" else 0.0),
    "an old error count": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", {"gpu": "1"}, lambda h, i: 4.0 if h == "n2" else 0.0),
    "a model is loaded": ("node_memory_MemAvailable_bytes", {}, lambda h, i: 9e11 - 8.2e11 * min(1.0, i / 2)),
    "a cache breathes": ("node_memory_MemAvailable_bytes", {}, lambda h, i: 9e11 - 7e10 * (i % 10)),
    "a busy host": ("node_load1", {}, lambda h, i: 40.0 + 9 * (i % 5)),
    "one spike of load": ("node_load1", {}, lambda h, i: 900.0 if i == 20 else 12.0),
    "a disk fills slowly": ("node_filesystem_avail_bytes", {"mountpoint": "/d", "fstype": "nfs4"}, lambda h, i: 4e13 - 1e9 * i),
    "flush errors of closing peers": ("req_cqe_flush_error", {"device": "mlx5_0"}, lambda h, i: 500.0 * max(0, i - 30)),
    "a counter that was reset": ("node_network_receive_errs_total", {"device": "eth0"}, lambda h, i: 90_000.0 if i < 10 else 0.0),
    "loopback": ("node_network_receive_drop_total", {"device": "lo"}, lambda h, i: 9e5 * i if h == "n1" and i > 20 else 0.0),
}  # fmt: skip


@pytest.mark.parametrize("case", CALM)
def test_ordinary_courses_are_nothing(case: str, tmp_path: Path) -> None:
    """What healthy hosts show."""
    name, labels, course = CALM[case]
    job(tmp_path)
    export(tmp_path, name, course, labels)
    assert [e.text for e in derived(tmp_path) if e.severity != "info"] == []


def test_a_link_that_flapped_once_is_a_note(tmp_path: Path) -> None:
    """Down once, no errors after it, and it sends on."""
    job(tmp_path)
    export(tmp_path, "node_infiniband_link_downed_total", lambda h, i: 2.0 + (h == "n1" and i > 9), {"device": "mlx5_1", "port": "1"})
    export(tmp_path, "node_infiniband_port_data_transmitted_bytes_total", lambda h, i: 1e12 + 1e9 * i, {"device": "mlx5_1", "port": "1"})
    (event,) = derived(tmp_path)
    assert (event.kind, event.severity, event.host, event.nic, event.attrs["recovered"]) == (Kind.LINK_DOWN, "info", "n1", "mlx5_1", True)


def test_a_kill_by_a_group_s_own_limit_is_a_note(tmp_path: Path) -> None:
    """The host has plenty of memory: the counter says nothing of the job."""
    job(tmp_path)
    export(tmp_path, "node_vmstat_oom_kill", lambda h, i: float(h == "n1" and i > 9))
    export(tmp_path, "node_memory_MemAvailable_bytes", lambda h, i: 8e11 + 1e9 * (i % 5))
    (event,) = derived(tmp_path)
    assert (event.kind, event.severity) == (Kind.HOST_OOM, "info")


def test_a_fault_of_the_whole_network_has_no_host(tmp_path: Path) -> None:
    """All hosts send again alike."""
    job(tmp_path)
    export(tmp_path, "node_netstat_Tcp_RetransSegs", lambda h, i: 2 * i + 30_000 * max(0, i - 25))
    (event,) = derived(tmp_path)
    assert (event.kind, event.host) == (Kind.PACKET_LOSS, None)


def test_a_gpu_that_leaves_the_series(tmp_path: Path) -> None:
    """Its siblings of the same host stay."""
    job(tmp_path)
    series = [
        {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "Hostname": host, "gpu": str(gpu)}, "values": [[BEGAN + i * STEP, "90"] for i in range(18 if (host, gpu) == ("n2", 3) else POINTS)]}
        for host in HOSTS for gpu in range(4)
    ]  # fmt: skip
    (tmp_path / "dcgm.json").write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    (event,) = derived(tmp_path)
    assert (event.kind, event.host, event.gpu, event.attrs["reason"]) == (Kind.DEVICE_LOST, "n2", 3, "vanished")


def test_who_measures_the_ways_is_to_blame_where_all_of_them_are_bad(tmp_path: Path) -> None:
    """Echo requests from one host to all others are lost, and those from another host are not."""
    job(tmp_path)
    for observer in ("n1", "n2"):
        for n, target in enumerate(h for h in HOSTS if h != observer):
            lines = [f"PING {target} (10.0.0.{n}) 56(84) bytes of data."]
            lines += [f"[{BEGAN + i * 20}.5] 64 bytes from 10.0.0.{n}: icmp_seq={i + 1} ttl=63 time=0.1{i % 9} ms" for i in range(110) if observer == "n2" or i < 60 or i % 4 == 0]
            (tmp_path / observer / f"ping_{target}.log").write_text("\n".join(lines) + "\n")
    assert [(e.kind, e.host) for e in derived(tmp_path)] == [(Kind.PACKET_LOSS, "n1")]


def service(root: Path, course: Callable[[int], int], form: str) -> None:
    """A controller that prints what its store holds."""
    from datetime import UTC, datetime

    lines = []
    for i in range(POINTS):
        stamp = f"{datetime.fromtimestamp(BEGAN + i * STEP, UTC):%Y-%m-%dT%H:%M:%S}.000Z INFO "
        lines += [f"{stamp}step {i} of 400 done, peak_mem={60 + i % 3}GiB batch_size=512", stamp + form.format(course(i), course(i) / 2**30)]
    (root / "n1" / "controller.log").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("form", ["meta_server health storage_size={0} keys=12", "blob-store-3: heap_used={1:.2f}GiB of 1900 GiB", "worker-2 rss={1:.1f} GiB threads=88"])
def test_a_service_that_holds_more_every_step(form: str, tmp_path: Path) -> None:
    """Whatever it calls it; with the lines as evidence, and a slope."""
    job(tmp_path)
    service(tmp_path, lambda i: (8 + 30 * i) << 30, form)
    (event,) = derived(tmp_path)
    assert (event.kind, event.attrs["of"]) == (Kind.MEMORY_GREW, "service")
    assert abs(event.attrs["slope"] * STEP / 2**30 - 30) < 2
    last = 8 + 30 * (POINTS - 1)
    assert any(str(last) in r.text or str(last << 30) in r.text for r in event.also)


@pytest.mark.parametrize("course", [lambda i: 90 << 30, lambda i: (10 + 9 * (i % 8)) << 30, lambda i: min(200, 40 * i + 4) << 30])
def test_a_service_that_fills_and_empties_is_nothing(course: Callable[[int], int], tmp_path: Path) -> None:
    """A level, a saw, a plateau."""
    job(tmp_path)
    service(tmp_path, course, "meta_server health storage_size={0} keys=12")
    assert derived(tmp_path) == []


def test_the_mean_time_of_operations_from_two_counters(tmp_path: Path) -> None:
    """What node_exporter's mountstats collector gives: operations, and the seconds that they took."""
    job(tmp_path)
    labels = {"export": "10.0.0.9:/e", "mountaddr": "10.0.0.9", "operation": "WRITE"}
    export(tmp_path, "node_mountstats_nfs_operations_requests_total", lambda h, i: 1000.0 * i, labels)
    export(tmp_path, "node_mountstats_nfs_operations_response_time_seconds_total", lambda h, i: 5.0 * i + (4000.0 * max(0, i - 30) if h == "n4" else 0), labels)
    (event,) = derived(tmp_path)
    assert (event.kind, event.host, event.attrs["server"]) == (Kind.STORAGE_SLOW, "n4", "10.0.0.9:/e")


def test_the_host_that_bad_ways_have_in_common_is_to_blame(tmp_path: Path) -> None:
    """Both ends of a lossy way see the loss: the end that all lossy ways share loses the packets."""
    ways = (("gn-1", "gn-2", 26.0), ("gn-1", "gn-3", 16.0), ("gn-2", "gn-1", 15.8), ("gn-3", "gn-1", 27.1), ("gn-2", "gn-3", 0.0), ("gn-3", "gn-2", 0.0))
    said = "PING {0} (10.0.0.{1}) 56(84) bytes of data.\n\n--- {0} ping statistics ---\n100 packets transmitted, {2:.0f} received, {3}% packet loss, time 9900ms\n"
    run = run_of(tmp_path, {f"{observer}/ping_{target}.log": said.format(target, target[-1], 100 - loss, loss) for observer, target, loss in ways})
    events = [e for e in run.events if "packets" in e.text]
    assert events and {e.host for e in events} == {"gn-1"}
