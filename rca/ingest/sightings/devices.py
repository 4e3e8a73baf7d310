"""Devices: which bus id is which index of `nvidia-smi`, which process uses it, and which adapter is which PCI device.

>>> for text in SAMPLE.splitlines():
...     print([fields for _, fields in sight(Line(text, host="h1"), text, text.lower())])
[{'host': 'h1', 'index': 2, 'bus': '0000:52:00.0'}]
[{'host': 'gn87', 'index': 0, 'bus': '00000000:07:00.0'}]
[{'index': 3, 'uuid': 'GPU-a3385b7b-439b-1e78-7ab4-6807a9daa8d3'}]
[{'index': 1, 'bus': '00000000:0F:00.0'}]
[{'index': 1, 'pid': 45210}]
[{'rdma': 'mlx5_1', 'pci': '0000:3b:00.0'}]
[{'rdma': 'mlx5_0', 'netdev': 'ens1f0'}]
[{'rdma': 'mlx5_5', 'pci': '0000:ab:00.0', 'host': 'h1'}]
[{'host': 'h1', 'index': 0, 'bus': '0000:00:1e.0'}]
[{'bus': '0000:07:00.0'}]

Source: NCCL `init.cc` (Init COMPLETE), DCGM exporter labels, nvidia-smi(1), ibdev2netdev, Linux mlx5_core, TensorFlow gpu_device.cc.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.line import Line

SAMPLE = """\
comm 0x55439145fe33 rank 10 nranks 16 cudaDev 0 nvmlDev 2 busId 52000 commId 0xfd - Init COMPLETE
{"metric": {"gpu": "0", "Hostname": "gn87", "instance": "10.0.0.87:9400", "pci_bus_id": "00000000:07:00.0"}, "values": []}
GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-a3385b7b-439b-1e78-7ab4-6807a9daa8d3)
|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0F:00.0 Off |                    0 |
|    1   N/A  N/A     45210      C   /opt/venv/bin/python                    61330MiB |
lrwxrwxrwx 1 root root 0 mlx5_1 -> ../../devices/pci0000:3b/0000:3b:00.0/infiniband/mlx5_1
mlx5_0 port 1 ==> ens1f0 (Up)
mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE
Created device /job:localhost/replica:0/task:0/device:GPU:0 with 14621 MB memory:  -> device: 0, name: Tesla T4, pci bus id: 0000:00:1e.0, compute capability: 7.5
07:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)"""

LITERALS = (
    b"busid ", b"pci_bus_id", b"00000000:", b"(uuid: gpu-", b"/infiniband/", b" ==> ", b"mlx5_core ", b"3d controller: nvidia", b"pci.bus_id", b"gpu_bus_id", b"n/a  n/a ",
    b"renamed from", b"bus id: ", b"bus_id: ", b"bus_id=",
)  # fmt: skip
BUS = r"[\dA-Fa-f]{4,8}:[\dA-Fa-f]{2}:[\dA-Fa-f]{2}\.\d"
NCCL = re.compile(r"\bcudaDev (\d{1,3})(?: nvmlDev (\d{1,3}))? busId ([\dA-Fa-f]{1,9})\b")
SAID = re.compile(rf"\b(?:gpu|cuda|device)[ :#=]{{1,2}}(\d{{1,3}})\b[^\n]{{0,80}}?\bbus[ _]id[:=] ?({BUS})", re.I)
LABELS = re.compile(r"\{([^{}]{10,1500})\}")
LABEL = re.compile(r"\"?([A-Za-z_][\w.]{0,60})\"?\s?[=:]\s?[\"']([^\"']{1,120})[\"']")
LISTED = re.compile(r"GPU (\d{1,3}): .{3,80}\(UUID: (GPU-[\da-f-]{8,40})\)")
TABLED = re.compile(rf"\|\s{{1,6}}(\d{{1,3}})\s{{1,4}}\S.{{2,60}}\|\s*({BUS})\s")
TABLED_PID = re.compile(r"\|\s{1,6}(\d{1,3})\s{1,6}(?:N/A\s{1,6}N/A|\d{1,3}\s{1,6}\d{1,3})\s{1,12}(\d{1,9})\s{1,8}[CGM+]{1,3}\s")
QUERIED = re.compile(rf"GPU ({BUS})\s*\Z")
INFINIBAND = re.compile(r"([\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d)/infiniband/(\w{2,20})")
IBDEV = re.compile(r"(?:[\da-f:.]{7,12} )?(\w{2,20}) (?:\([^)]{0,80}\) )?(?:port \d{1,2} )?==> (\w[\w.-]{1,20}) \((?:Up|Down)\)", re.I)
MLX = re.compile(r"mlx5_core ([\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d)[ :]{1,2}((?:mlx5_|ib|eth|en[ops])\w{0,16})\b")
LSPCI = re.compile(r"((?:[\da-f]{4}:)?[\da-f]{2}:[\da-f]{2}\.\d) 3D controller: NVIDIA", re.I)
HOST_KEYS = ("Hostname", "hostname", "nodename", "node", "instance", "host")


def bus_of_nccl(text: str) -> str:
    """NCCL prints a bus id as one number: domain, bus, device, function.

    >>> bus_of_nccl("52000"), bus_of_nccl("100000c10")
    ('0000:52:00.0', '1000:00:c1.0')
    """
    number = int(text, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xff:02x}:{number >> 4 & 0xff:02x}.{number & 0xf:x}"


class Table:
    """Rows below the header of `nvidia-smi --query-gpu` or `--query-compute-apps`."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def row(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        """The device of a row; the header is remembered. The time, if it is the first column, may have been peeled off."""
        if "," not in text:
            return []
        cells = [cell.strip() for cell in text.split(",")]
        if "pci.bus_id" in cells or "gpu_bus_id" in cells:
            self.names = [cell.split(" [", 1)[0] for cell in cells]
            return []
        if not self.names or len(cells) not in (len(self.names), len(self.names) - 1):
            return []
        row = dict(zip(self.names[-len(cells) :], cells, strict=True))
        bus = row.get("pci.bus_id") or row.get("gpu_bus_id")
        if bus is None or not re.fullmatch(BUS, bus):
            return []
        fields: dict[str, Any] = {"index": int(row["index"])} if row.get("index", "").isdecimal() else {}
        fields |= {"bus": bus} | ({"uuid": row["uuid"]} if row.get("uuid", "").startswith("GPU-") else {})
        return [("gpu", fields | ({"pid": int(row["pid"])} if row.get("pid", "").isdecimal() else {}))]


def sight(line: Line, raw: str, low: str) -> list[tuple[str, dict[str, Any]]]:
    """The devices that a line names."""
    text = line.text
    here = {"host": line.host} if line.host else {}
    if "busid " in low and (m := NCCL.search(text)):
        index = m[2] or m[1]
        user = {"pid": line.pid} if line.pid is not None else {}
        return [("gpu", {**here, "index": int(index), "bus": bus_of_nccl(m[3]), **user})]
    if ("bus id:" in low or "bus_id:" in low or "bus_id=" in low) and "{" not in raw and (m := SAID.search(text)):
        return [("gpu", {**here, "index": int(m[1]), "bus": m[2], **({"pid": line.pid} if line.pid is not None else {})})]
    if "pci_bus_id" in low or ("gpu" in low and "{" in raw and "uuid" in low):
        found = []
        for block in LABELS.finditer(raw):
            labels = dict(LABEL.findall(block[1]))
            index, bus = labels.get("gpu", labels.get("index", "")), labels.get("pci_bus_id")
            if index.isdecimal() and (bus or labels.get("UUID")):
                host = next((labels[k] for k in HOST_KEYS if labels.get(k)), None)
                more = {k: v for k, v in (("bus", bus), ("uuid", labels.get("UUID"))) if v}
                found.append(("gpu", {**({"host": host} if host else {}), "index": int(index), **more}))
        return found
    if m := LISTED.search(text):
        return [("gpu", {"index": int(m[1]), "uuid": m[2]})]
    if text[:1] == "|":
        if m := TABLED.match(text):
            return [("gpu", {"index": int(m[1]), "bus": m[2]})]
        if m := TABLED_PID.match(text):
            return [("gpu", {"index": int(m[1]), "pid": int(m[2])})]
        return []
    if m := QUERIED.match(text):
        return [("gpu", {"bus": m[1]})]
    if m := LSPCI.match(text):
        return [("gpu", {"bus": m[1] if m[1].count(":") == 2 else f"0000:{m[1]}"})]
    if "/infiniband/" in low and (m := INFINIBAND.search(text)):
        return [("nic", {"rdma": m[2], "pci": m[1]})]
    if " ==> " in text and (m := IBDEV.search(text)):
        return [("nic", {"rdma": m[1], "netdev": m[2]})]
    if "mlx5_core " in low and (m := MLX.search(text)) and m[2] != "mlx5_core":
        return [("nic", {"rdma" if m[2].startswith("mlx5_") else "netdev": m[2], "pci": m[1], **here})]
    return []
