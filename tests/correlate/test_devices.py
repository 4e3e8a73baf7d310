"""Bus ids in every spelling, indexes, users of a device, adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from rca.correlate.devices import Devices, bus_key
from rca.ingest.line import parse
from rca.ingest.sightings import devices
from tests.builders import run_of

SMI = [
    ("NCCL", "gn1:46677:46858 [2] NCCL INFO comm 0x55 rank 10 nranks 16 cudaDev 0 nvmlDev 2 busId 52000 commId 0xfd - Init COMPLETE", {"index": 2, "bus": "0000:52:00.0", "pid": 46677}),
    ("DCGM text", 'DCGM_FI_DEV_GPU_UTIL{gpu="3",UUID="GPU-96be",pci_bus_id="00000000:08:00.0",device="nvidia3",Hostname="gn1"} 0', {"index": 3, "bus": "00000000:08:00.0"}),
    ("nvidia-smi -L", "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-a3385b7b-439b-1e78-7ab4-6807a9daa8d3)", {"index": 3}),
    ("table", "|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0F:00.0 Off |                    0 |", {"index": 1, "bus": "00000000:0F:00.0"}),
    ("processes", "|    1   N/A  N/A     45210      C   python                    61330MiB |", {"index": 1, "pid": 45210}),
    ("nvidia-smi -q", "GPU 00000000:1B:00.0", {"bus": "00000000:1B:00.0"}),
]


@pytest.mark.parametrize(("text", "want"), [c[1:] for c in SMI], ids=[c[0] for c in SMI])
def test_tools_name_devices(text: str, want: dict) -> None:
    """Every tool has its own spelling of one device."""
    fields = next(f for kind, f in devices.sight(parse(text), text, text.lower()) if kind == "gpu")
    assert {k: fields.get(k) for k in want} == want


def test_csv_rows() -> None:
    """The header names the columns, with or without the time that was peeled off the rows."""
    table = devices.Table()
    assert table.row("timestamp, index, pci.bus_id, utilization.gpu [%]") == []
    assert table.row("2, 00000000:43:00.0, 97 %") == table.row("2026/11/20 12:00:00.000, 2, 00000000:43:00.0, 97 %") == [("gpu", {"index": 2, "bus": "00000000:43:00.0"})]
    assert table.row("loss, 3, 4") == [] and devices.Table().row("a, b") == []


def test_spellings_of_one_bus_id() -> None:
    """Four or eight digits of domain, no function, the kernel's prefix."""
    assert len({bus_key(s) for s in ("0000:3b:00.0", "00000000:3B:00.0", "PCI:0000:3b:00", "3b:00.0", "0000:3b:00")}) == 1
    assert bus_key("mlx5_0") is None and bus_key(None) is None


def test_order_of_bus_ids_is_that_of_indexes() -> None:
    """A full listing without indexes gives them; one device alone does not."""
    known = Devices()
    for bus in ("0000:0f:00.0", "0000:07:00.0", "0000:47:00.0"):
        known.said({"bus": bus}, "h")
    assert [known.index("h", b) for b in ("0000:07:00", "0000:0f:00", "0000:47:00", "0000:99:00")] == [0, 1, 2, None]
    alone = Devices()
    alone.said({"bus": "0000:07:00.0"}, "h")
    assert alone.index("h", "0000:07:00.0") is None


def test_names_of_an_adapter() -> None:
    """RDMA name, interface and PCI device are one adapter."""
    known = Devices()
    known.said_nic({"rdma": "mlx5_3", "pci": "0000:5e:00.0"}, "h")
    known.said_nic({"rdma": "mlx5_3", "netdev": "ib3"}, "h")
    assert known.nic("h", "ib3") == known.nic("h", "0000:5e:00.0") == {"rdma": "mlx5_3", "pci": "0000:5e:00.0", "netdev": "ib3"}
    assert known.nic("g", "ib3") is None


def test_an_xid_has_its_index_and_users(tmp_path: Path) -> None:
    """The kernel names a bus id, NCCL the index and the pid behind it."""
    run = run_of(tmp_path, {
        "gn1.dmesg.txt": "[Fri Nov 20 12:00:01 2026] NVRM: Xid (PCI:0000:52:00): 48, pid=9, name=python, Ch 00000008\n",
        "rank2.log": "2026-11-20 12:00:00,000 INFO hostname=gn1 pid=46677 rank=2 world_size=4\ngn1:46677:46858 [2] NCCL INFO comm 0x55 rank 2 nranks 4 cudaDev 2 nvmlDev 2 busId 52000 commId 0xfd - Init COMPLETE\n"
        "2026-11-20 12:00:00,000 INFO train: step=1 loss=2.0\n",
    })  # fmt: skip
    xid = next(e for e in run.events if e.kind == "device.memory_error")
    assert (xid.host, xid.gpu) == ("gn1", 2) and [u["rank"] for u in xid.attrs["users"]] == [2]
