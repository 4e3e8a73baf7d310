"""What the labels of a Prometheus series speak of: the host, the device, the mount."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rca.ingest.samples._collect import Subject

#: Labels that name the host, best first: those that a scrape configuration adds, then what an exporter calls itself, then the address scraped.
HOSTS = ("nodename", "node_name", "kubernetes_node", "node", "exported_node", "Hostname", "hostname", "host", "exported_instance", "instance")
EXPORTER = re.compile(r"(?:dcgm|node|nvidia|gpu)[-_]?(?:dcgm|gpu|node)?[-_]?exporter", re.I)  # a pod of that name is no host
NOWHERE = re.compile(r"^(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|::1|)$", re.I)
ADDRESS = re.compile(r"^\d{1,3}(?:\.\d{1,3}){3}$")
PORT = re.compile(r":\d{1,5}$")
PLAIN = ("port", "fstype", "operation", "pod", "exported_pod", "container", "exported_container", "controller", "interface")


def host_of(labels: Mapping[str, str]) -> str | None:
    """The host that a series is about, without its port; None where the labels do not say.

    >>> host_of({"Hostname": "gn7", "instance": "10.0.0.7:9400"}), host_of({"instance": "10.0.0.7:9400"}), host_of({"instance": "localhost:9100"})
    ('gn7', '10.0.0.7', None)
    """
    for label in HOSTS:
        value = PORT.sub("", labels.get(label) or "")
        if value and not NOWHERE.match(value) and not EXPORTER.search(value):
            return value[:120]
    return None


def address_of(labels: Mapping[str, str]) -> str | None:
    """The address under which that host was scraped, if it is an IP address."""
    value = PORT.sub("", labels.get("instance") or "")
    return value if ADDRESS.match(value) and not NOWHERE.match(value) else None


def subject_of(labels: Mapping[str, str]) -> Subject:
    """The device, port, mount or process of a series as pairs.

    >>> subject_of({"gpu": "3", "device": "nvidia3", "pci_bus_id": "00000000:47:00.0", "modelName": "H100"})
    (('gpu', 3), ('bus_id', '00000000:47:00.0'))
    >>> subject_of({"device": "10.0.0.1:/x", "mountpoint": "/data", "fstype": "nfs4"})
    (('mount', '/data'), ('server', '10.0.0.1:/x'), ('fstype', 'nfs4'))
    """
    found: list[tuple[str, Any]] = []
    gpu, device = labels.get("gpu") or labels.get("minor_number") or "", labels.get("device") or ""
    if gpu.isdecimal() and len(gpu) < 4:
        found.append(("gpu", int(gpu)))
    if bus := labels.get("pci_bus_id") or labels.get("pci_bus_ID"):
        found.append(("bus_id", bus[:40]))
    elif (uuid := labels.get("UUID") or labels.get("uuid")) and not found:
        found.append(("uuid", uuid[:60]))
    if labels.get("GPU_I_ID"):
        found.append(("mig", labels["GPU_I_ID"][:10]))
    if mount := labels.get("mountpoint"):
        found.append(("mount", mount[:300]))
        if device:
            found.append(("server", device[:200]))
    elif device and not gpu:
        found.append(("device", device[:60]))
    if export := labels.get("export"):
        found.append(("server", export[:200]))
    if xid := labels.get("xid"):
        found.append(("xid", xid[:6]))
    if job := labels.get("job") if not (gpu or device or mount) else None:
        found.append(("job", job[:60]))
    found += [(name, labels[name][:80]) for name in PLAIN if labels.get(name)]
    return tuple(found)
