"""The sampler: what it writes, what it does to its process, and what the analysis makes of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rca
from rca import cli
from rca.ingest.samples._names import table
from rca.ingest.sources import list_sources, read_range
from rca.ingest.spans import rca_trace
from rca.ingest.spans.table import Table
from rca.trace_inject import guard, recorder, sampler
from tests.trace_inject import stand_in_nvml
from tests.venvs import environment, python_with

NAMES = ("link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards", "symbol_error", "local_link_integrity_errors")
MEMORY_V1 = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recording into a folder of the test's own."""
    for name in ("RANK", "RCA_TRACE_DIR", "RCA_TRACE_OFF"):
        monkeypatch.delenv(name, raising=False)
    guard.faults.clear()
    recorder.start(str(tmp_path / "trace"), {"role": "sampler"})
    yield tmp_path / "trace"
    sampler.stop_sampling()
    recorder.stop()
    recorder._asked = True
    assert guard.faults == []


def records(folder: Path) -> list[dict[str, Any]]:
    """All records but headers."""
    lines = [line for path in sorted(folder.glob("*.rca.jsonl")) for line in path.read_bytes().splitlines() if line]
    assert all(len(line) < recorder.RECORD_MAX for line in lines)
    return [r for r in map(json.loads, lines) if "schema" not in r]


def read(folder: Path) -> list[tuple]:
    """The samples as the analyzer reads them: (host, subject without the tool's name, name, value)."""
    found = Table()
    for source in list_sources([folder]):
        rca_trace.read(source, read_range(source, 0, 4096), found)
    assert found.damaged == 0
    return [(r[1], {k: v for k, v in r[2] if k != "metric"}, r[3], r[4]) for r in found.samples.rows()]


def tree(root: Path, files: dict[str, str]) -> None:
    """SYNTHETIC: files as the kernel would show them."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def ports(link_downed: int, port_rcv_errors: int = 0) -> dict[str, str]:
    """SYNTHETIC: two adapters, of which the second says this."""
    found = {}
    for device, (downed, errors) in {"mlx5_0": (0, 0), "mlx5_1": (link_downed, port_rcv_errors)}.items():
        here = f"sys/class/infiniband/{device}/ports/1"
        found |= {f"{here}/state": "4: ACTIVE\n", f"{here}/phys_state": "5: LinkUp\n", f"{here}/counters/link_downed": f"{downed}\n", f"{here}/counters/port_rcv_errors": f"{errors}\n",
                  f"{here}/counters/port_xmit_data": "1000\n", f"{here}/hw_counters/local_ack_timeout_err": "0\n"}  # fmt: skip
    return found


def test_this_host(folder: Path) -> None:
    """Everything it writes here has a name that the analyzer knows, and says what the host is."""
    sampler.Sampler(folder=str(folder)).sample()
    found = {(tuple(s.items()), n): v for _, s, n, v in read(folder)}
    assert {n for _, n in found} <= set(table()) and len({n for _, n in found}) >= 8
    assert found[(), "mem.total"] > 1 << 28 and 0 < found[(), "mem.available"] <= found[(), "mem.total"]
    assert found[(), "cpu.cores"] == os.cpu_count()


def test_every_quantity_has_a_name_of_the_table() -> None:
    """Also those of hosts that this one is not."""
    here = Path(sampler.__file__).parent
    used = {name for path in here.glob("*.py") for name in re.findall(r'"((?:mem|gpu|rdma|net|fs|nfs|disk|psi|cpu|proc)\.\w+)"', path.read_text())}
    assert len(used) > 50 and used <= set(table())


def test_only_what_changes_and_when_it_began(folder: Path, tmp_path: Path) -> None:
    """All once, nothing while nothing moves, and with the first change the last calm value."""
    tree(tmp_path, {"proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n", "proc/vmstat": "pgfault 3\noom_kill 2\n", "proc/loadavg": "0.5 0.4 0.3 1/99 4\n"})
    found = sampler.Sampler(str(tmp_path), str(folder))
    assert found.sample() == 1
    assert [found.sample() for _ in range(3)] == [0, 0, 0]
    tree(tmp_path, {"proc/vmstat": "oom_kill 3\n", "proc/loadavg": "0.6 0.4 0.3 1/99 4\n"})
    assert found.sample() == 2
    whole, calm, change = records(folder)
    assert (whole["n"], calm["n"], change["n"]) == ("all", "before", "changes")
    assert (calm["a"], change["a"]) == ({"": {"mem.oom_kills": 2}}, {"": {"mem.oom_kills": 3}})
    assert whole["t"] < calm["t"] < change["t"]
    found._whole_ns -= sampler.WHOLE_NS
    assert found.sample() == 1 and records(folder)[-1]["a"].keys() == whole["a"].keys()


def test_many_devices_take_several_lines(folder: Path, tmp_path: Path) -> None:
    """SYNTHETIC: none longer than a record may be, none lost."""
    tree(tmp_path, {f"sys/class/infiniband/mlx5_{d}/ports/1/counters/{name}": "1\n" for d in range(24) for name in NAMES})
    assert sampler.Sampler(str(tmp_path), str(folder)).sample() > 1
    assert sum(n.startswith("rdma.") for _, _, n, _ in read(folder)) == 24 * len(NAMES)


def test_numbers_of_the_kernel(folder: Path, tmp_path: Path) -> None:
    """SYNTHETIC: NFS, disks, pressure, TCP and control groups of both versions."""
    tree(tmp_path, {
        "proc/self/mountstats": "device rootfs mounted on / with fstype rootfs\ndevice 10.0.0.5:/x mounted on /data with fstype nfs4 statvers=1.1\n\tper-op statistics\n\t       WRITE: 100 104 3 1 1 12 9000 9100 0\n",
        "proc/diskstats": " 259 0 nvme0n1 10 0 80 20 10 0 80 40 0 50 60\n 259 1 nvme0n1p1 5 0 80 20 10 0 80 40 0 50 60\n",
        "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=7000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5000000\n",
        "proc/net/snmp": "Ip: A B\nIp: 1 2\nTcp: RtoMin RetransSegs\nTcp: 200 17\n",
        "proc/self/cgroup": "5:memory:/job/step\n4:cpu,cpuacct:/\n0::/new\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "900\n", "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
        "sys/fs/cgroup/memory/job/step/memory.usage_in_bytes": "900\n", "sys/fs/cgroup/memory/job/step/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/unified/new/memory.current": "70\n", "sys/fs/cgroup/unified/new/memory.max": "80\n", "sys/fs/cgroup/unified/new/memory.events": "low 0\noom 1\noom_kill 1\n",
        "sys/fs/cgroup/unified/new/cpu.stat": "usage_usec 5\nthrottled_usec 2500000\n",
    })  # fmt: skip
    found = sampler.Sampler(str(tmp_path), str(folder))
    found.sample()
    tree(tmp_path, {"proc/diskstats": " 259 0 nvme0n1 20 0 80 520 20 0 80 540 0 1050 60\n"})
    found.sample()
    values = {(*(f"{k}={v}" for k, v in s.items()), n): v for _, s, n, v in read(folder)}
    assert values["mount=/data", "server=10.0.0.5:/x", "operation=WRITE", "nfs.timeouts"] == 3
    assert values["mount=/data", "server=10.0.0.5:/x", "operation=WRITE", "nfs.response_s"] == 9
    assert values["device=nvme0n1", "disk.await_ms"] == 50 and not any("nvme0n1p1" in k[0] for k in values)
    assert (values["psi.mem_full_s",], values["net.retransmits",]) == (5, 17)
    assert [values["group=/job", f"mem.{n}"] for n in ("group_used", "group_limit", "oom_kills")] == [900, 1000, 4]
    assert [values["group=/new", n] for n in ("mem.group_used", "mem.group_limit", "mem.oom_kills", "cpu.throttled_s")] == [70, 80, 1, 2.5]
    assert ("group=/job/step", "mem.group_used") not in values


def test_gpus(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SYNTHETIC: what NVML would say, an Xid, and a device that supports less."""
    monkeypatch.setitem(sys.modules, "pynvml", stand_in_nvml)
    monkeypatch.setattr(stand_in_nvml, "ecc", {0: 0, 1: 0})
    found = sampler.Sampler(str(tmp_path), str(folder))
    found.sample()
    stand_in_nvml.ecc[0] = 3
    stand_in_nvml.xids.append((0, 48))
    monkeypatch.setitem(stand_in_nvml.reasons, 1, 0x40)
    found.sample()
    first = {"gpu": 0, "bus_id": "00000000:40:00.0"}
    rows = read(folder)
    assert [v for _, s, n, v in rows if n == "gpu.ecc_uncorrected" and s == first] == [0, 3]
    assert [v for _, s, n, v in rows if n == "gpu.xid" and s == first] == [0, 48]
    assert [v for _, s, n, v in rows if n == "gpu.slow_mask" and s["gpu"] == 1] == [0, 0x40]
    assert not [v for _, s, n, v in rows if n == "gpu.ecc_uncorrected" and s["gpu"] == 1]
    assert {v for _, s, n, v in rows if n == "gpu.nvlink_errors" and s["counter"] == "crc_data"} == {4}
    cause = rca.analyze(folder).document["hypotheses"][0]
    assert (cause["cause"], cause["entity"]["gpu"], cause["entity"]["bus_id"]) == ("gpu.ecc", 0, "00000000:40:00.0")


@pytest.mark.parametrize(("change", "kind"), [({"link_downed": 2}, "link.down"), ({"link_downed": 0, "port_rcv_errors": 900}, "nic.errors_rose")])
def test_a_port_that_changes_is_seen_by_the_analysis(change: dict[str, int], kind: str, folder: Path, tmp_path: Path) -> None:
    """SYNTHETIC: the detectors of counters judge what the sampler wrote."""
    found = sampler.Sampler(str(tmp_path), str(folder))
    for i in range(12):
        tree(tmp_path, ports(**change) if i >= 8 else ports(0))
        found.sample()
        time.sleep(0.02)
    lines = {e["kind"] for e in rca.analyze(folder).document["timeline"]}
    assert kind in lines or any(kind in str(n) for n in rca.analyze(folder).document["hypotheses"]), lines


def test_a_thread_that_no_child_inherits(folder: Path) -> None:
    """In the background it writes, forks go on meanwhile, a child has no such thread and may start its own."""
    assert sampler.sample_in_background(0.05) and sampler.sample_in_background(0.05)
    assert sum(t.name == "rca-sampler" for t in threading.enumerate()) == 1
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            fine = not any(t.name == "rca-sampler" for t in threading.enumerate()) and sampler.sample_in_background(0.05)
            for _ in range(500):
                if list(folder.glob(f"*-{os.getpid()}.rca.jsonl")):
                    break
                time.sleep(0.01)
            os._exit(0 if fine and guard.faults == [] else 1)
        until = time.monotonic() + 20
        done = (0, 0)
        while done[0] == 0 and time.monotonic() < until:
            done = os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)
        if done[0] == 0:
            os.kill(pid, signal.SIGKILL)
        assert done[1] == 0 and done[0]
    sampler.stop_sampling()
    assert len(list(folder.glob("*.rca.jsonl"))) == 21
    assert all(r["e"] == "sample" for r in records(folder))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sample, or until it is told to end; rank variables of a launcher say nothing about it."""
    done = subprocess.run([sys.executable, "-m", "rca", "sample", "--once", "-o", str(tmp_path / "a")], env=environment(RANK="3"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and [r["n"] for r in records(tmp_path / "a")] == ["all"]
    assert [p.name.split("-")[:2] for p in (tmp_path / "a").iterdir()] == [["sampler", "x"]]
    running = subprocess.Popen([sys.executable, "-m", "rca", "sample", "--interval", "0.1", "-o", str(tmp_path / "b")], env=environment(), stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None and "sampling to" in running.stderr.readline()
    time.sleep(0.5)
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 0 and records(tmp_path / "b")[0]["n"] == "all"
    (tmp_path / "file").write_text("")
    done = subprocess.run([sys.executable, "-m", "rca", "sample", "--once", "-o", str(tmp_path / "file" / "x")], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 4 and "Traceback" not in done.stderr
    assert cli.main(["sample", "--interval", "x"]) == 2


@pytest.mark.real
def test_the_real_nvml_package(tmp_path: Path) -> None:
    """Every function and constant that is asked for exists in nvidia-ml-py; without a driver there is no GPU and no complaint."""
    text = (Path(sampler.__file__).parent / "nvml.py").read_text()

    used = set(re.findall(r"nvml[A-Z]\w+|NVML_FI_\w+L\b|NVML_TEMPERATURE_GPU|NVML_CLOCK_SM", text)) - {"nvmlClocksEventReason", "nvmlReturn"}
    program = (
        f"import pynvml\nprint([n for n in {sorted(used)!r} if not hasattr(pynvml, n)])\n"
        "assert all(hasattr(pynvml, n) for n in ('NVML_MEMORY_ERROR_TYPE_UNCORRECTED', 'NVML_MEMORY_ERROR_TYPE_CORRECTED', 'NVML_VOLATILE_ECC', 'NVML_AGGREGATE_ECC'))\n"
        "from rca.trace_inject.sampler import nvml, _place\n"
        "assert {n for n, _ in pynvml.c_nvmlValue_t._fields_} >= set(nvml.VALUES) and {'nvmlReturn', 'valueType', 'value'} <= {n for n, _ in pynvml.c_nvmlFieldValue_t._fields_}\n"
        "assert isinstance(nvml.read(_place.Place()), dict)"
    )
    done = subprocess.run([python_with("nvidia-ml-py"), "-c", program], env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[]\n")


VICTIM = """
import os, sys, time
open(sys.argv[2], "w").write(str(os.getpid()))
from rca import trace_inject as rt
rt.install(sys.argv[1], role="train", rank=0, run="r1")
held = []
for step in range(2000):
    with rt.step(step), rt.stage("train"), rt.span("load_batch"):
        print(f"step {step} loss 1.0", flush=True)
        held.append(os.urandom(1 << 20) * 4)
        time.sleep(0.12)
"""


@pytest.mark.real
def test_a_real_kill_at_a_real_limit(tmp_path: Path) -> None:
    """A process that grows until its control group's limit kills it, with `rca sample` beside it: the samples name the cause."""
    group = MEMORY_V1 / f"rca-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(160 << 20))
    except OSError as error:
        pytest.skip(f"no control group of version 1 may be made here: {error}")
    try:
        beside = subprocess.Popen([sys.executable, "-m", "rca", "sample", "--interval", "0.1", "-o", str(tmp_path / "trace")], env=environment(), stderr=subprocess.PIPE, text=True)
        assert beside.stderr is not None and "sampling" in beside.stderr.readline()
        with open(tmp_path / "rank0.log", "w") as out:
            died = subprocess.run([sys.executable, "-c", VICTIM, str(tmp_path / "trace"), str(group / "cgroup.procs")], env=environment(), stdout=out, stderr=out, timeout=60).returncode
        time.sleep(0.5)
        beside.send_signal(signal.SIGTERM)
        assert beside.wait(20) == 0 and died == -signal.SIGKILL
    finally:
        group.rmdir()
    document = rca.analyze(tmp_path).document
    first = document["hypotheses"][0]
    assert (document["verdict"], first["cause"], first["entity"]["rank"], first["entity"]["role"]) == ("failed", "host.oom", 0, "train")
    cited = [e for e in first["evidence"] if "sampler-" in e["file"]]
    assert any("mem.oom_kills" in e["text"] for e in cited) and any("mem.group_used" in e["text"] for e in cited)
    assert {"memory.exhausted", "memory.grew"} <= {e["kind"] for e in first["evidence"]}
