"""Names of hosts: lines that give an address with the name it belongs to.

>>> for text in SAMPLE.splitlines():
...     print([(kind, *fields.values()) for kind, fields in sight(Line(text), text, text.lower())])
[('alias', 'pod-33', '10.10.102.33')]
[('alias', 'dgx-a58', '10.7.156.58')]
[('alias', 'dgx-a62', '10.7.156.62')]
[('alias', 'gn12', '10.0.0.12', True)]
[('alias', 'gn28', '10.2.0.28')]
[('alias', 'gpu-7', '10.0.0.7')]
[('alias', 'node-a', '10.9.0.1')]
[('alias', 'node-a', '10.9.0.1')]
[('alias', 'gn0028', '10.29.150.28')]
[('own', '10.0.0.5')]
[('own', 'trainer-0')]
[]

Source: node_exporter and DCGM exporter labels, ping(8), scontrol(1), `ray start`, Ray's node table, OpenTelemetry's resource conventions.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.line import Line

SAMPLE = """\
train worker 5 pid=24867 host=pod-33 ip=10.10.102.33 port=18005
train/0 registered: http://10.7.156.58:18000 on dgx-a58
PING dgx-a62 (10.7.156.62) 56(84) bytes of data.
waiting for gn12 (10.0.0.12)
node_netstat_Tcp_RetransSegs{instance="10.2.0.28:9100",nodename="gn28"} 4
[{'NodeManagerAddress': '10.0.0.7', 'NodeManagerHostname': 'gpu-7', 'Alive': True}]
{"key":"host.name","value":{"stringValue":"node-a"}},{"key":"host.ip","value":{"stringValue":"10.9.0.1"}}
{"attributes":{"host.name":"node-a","host.ip":["10.9.0.1"]}}
NodeName=gn0028 Arch=x86_64 NodeAddr=10.29.150.28 NodeHostName=gn0028 Version=23.11
Local node IP: 10.0.0.5
export POD_NAME=trainer-0
peer ip=10.0.0.9 did not answer to host=gn1"""

LITERALS = (
    b" bytes of data", b"traceroute to ", b"registered", b"nodename", b"nodemanagerhostname", b"nodeaddr=", b"host.ip", b"local node ip", b"hostip",
    b"slurmd_nodename", b"pod_ip", b"node_ip", b"pod_name", b"bootstrap : using", b"net/socket : using", b"; oob ", b"nominated node", b"internal-ip", b"exported_pod",
)  # fmt: skip

IP = r"(?:\d{1,3}\.){3}\d{1,3}"
NAME = r"[A-Za-z\d](?:[A-Za-z\d.-]{0,80}[A-Za-z\d])?"
DOTS = 3  # of an address
IS_IP = re.compile(rf"{IP}\Z")
#: An adapter is no host, nor is what stands where a sentence goes on.
NO_NAME = re.compile(r"(?:eth|ens|enp|eno|ib|bond|lo|docker|wlan|mlx5_|hsn|veth|cni|br-)[\w.]{0,12}\Z|(?:port|interface|device|the|all|any|none|null|localhost|host|node|server|worker|default|true|false|tcp|gpu|cpu|rank|address|ip|ipv4|http|https)\Z", re.I)
KEYED_HOST = re.compile(rf"(?<![\w.-])(?:host_?name|host|node_?name|node|server_name|pod_?name)\"?\s?[=:]\s?[\"']?({NAME})", re.I)
KEYED_IP = re.compile(rf"(?<![\w.-])(?:ip|ip_?addr|ip_?address|node_ip|host_ip|pod_ip|addr|address)\"?\s?[=:]\s?[\"']?({IP})(?![\d.])", re.I)
SOMEBODY_ELSE = re.compile(r"\b(?:peer|remote|to|from|target|master|client|server|store|src|dst|endpoint|gateway|nfs|not)\b", re.I)
REGISTERED = re.compile(rf"(?:://|[\s(@]){IP}:\d{{2,5}}\S{{0,40}} (?:on|at) (?:host |node )?({NAME})")
URL_IP = re.compile(rf"({IP}):\d{{2,5}}")
PROBED = re.compile(rf"(?:PING|traceroute to|tracepath to|MTR to|HOST:) ({NAME}) \(({IP})\)", re.I)
BRACKETED = re.compile(rf"(?<![\w./-])({NAME})(?: \(|\(|/)({IP})(?::\d{{2,5}})?(?=[)\s,:]|\Z)")
LABELS = re.compile(r"\{([^{}]{10,1500})\}")
LABEL = re.compile(r"\"?([A-Za-z_][\w.]{0,60})\"?\s?[=:]\s?[\"']([^\"']{1,120})[\"']")
RAY_NODE = re.compile(rf"NodeManagerAddress['\"]: ['\"]({IP})['\"].{{0,80}}?NodeManagerHostname['\"]: ['\"]({NAME})['\"]")
SLURM_NODE = re.compile(rf"NodeName=({NAME})\b.{{0,600}}?NodeAddr=({NAME})")
OTLP = re.compile(r"\"(host\.name|host\.ip|k8s\.node\.name|k8s\.pod\.name|k8s\.pod\.ip)\"(?:,\"value\")?\s?:\s?[^\]}]{0,60}?\"(?!stringValue|values|arrayValue)([\w.-]{1,90})\"")
ENV = re.compile(rf"(?:export |declare -x |\s{{0,4}})?(?:\w{{0,20}}_)?(?:POD_NAME|POD_IP|NODE_NAME|NODE_IP|HOST_IP|HOSTNAME|SLURMD_NODENAME)=[\"']?({NAME})[\"']?\s*\Z")
OWN_IP = re.compile(rf"\b(?:Local node IP|node_ip_address|My IP(?: address)?|local ip(?: address)?)\s?[=:]\s?[\"']?({IP})", re.I)
NCCL_IP = re.compile(rf"(?:Bootstrap : Using|NET/Socket : Using|OOB) [^<]{{0,40}}?({IP})<")
HOST_KEYS = ("Hostname", "hostname", "nodename", "node", "kubernetes_node", "exported_hostname", "host", "host_name")


def ip_of(text: str) -> str | None:
    """An address that another host can have, out of text that may be one.

    >>> ip_of("10.0.0.7"), ip_of("127.0.0.1"), ip_of("10.0.0.777"), ip_of("gn7")
    ('10.0.0.7', None, None, None)
    """
    if not IS_IP.match(text) or any(int(part) > 255 for part in text.split(".")):
        return None
    return None if text.startswith(("127.", "0.", "169.254.", "255.")) or int(text.split(".", 1)[0]) >= 224 else text


def name_of(text: str) -> str | None:
    """A host's name out of text that may be one; None for addresses, adapters and plain words."""
    text = text.strip(".")
    return None if not text or NO_NAME.match(text) or IS_IP.match(text) or text.isdecimal() else text


def _alias(a: str | None, b: str | None, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [("alias", {"a": a, "b": b, **more})] if a and b and a != b else []


def sight(line: Line, raw: str, low: str) -> list[tuple[str, dict[str, Any]]]:
    """The names that a line gives."""
    text = line.text
    found: list[tuple[str, dict[str, Any]]] = []
    if "{" in raw and ("=\"" in raw or "\": \"" in raw or "\":\"" in raw) and ("instance" in low or "hostname" in low or "exported_pod" in low):
        for labels in LABELS.finditer(raw):
            found += _labelled(dict(LABEL.findall(labels[1])))
    if "host.name" in low or "k8s.node.name" in low:
        told = dict(OTLP.findall(raw))
        name = told.get("k8s.node.name") or told.get("host.name")
        for key in ("host.ip", "host.name", "k8s.pod.name", "k8s.pod.ip"):
            found += _alias(name, told.get(key))
    if "nodemanagerhostname" in low:
        found += [s for m in RAY_NODE.finditer(raw) for s in _alias(name_of(m[2]), ip_of(m[1]))]
    if "nodeaddr=" in low and (m := SLURM_NODE.search(raw)):
        found += _alias(name_of(m[1]), ip_of(m[2]) or name_of(m[2]))
    if m := PROBED.match(text):
        return found + _alias(name_of(m[1]), ip_of(m[2]))
    if m := ENV.match(text):
        own = ip_of(m[1]) or name_of(m[1])
        return found + ([("own", {"name": own})] if own else [])
    if text.count(".") < DOTS:  # all that follows is about an address, which few lines hold
        return found
    if (m := OWN_IP.search(text)) and ip_of(m[1]):
        return [*found, ("own", {"name": m[1]})]
    if " NCCL " in raw and (m := NCCL_IP.search(text)) and ip_of(m[1]):
        return found + (_alias(line.host, m[1]) if line.host else [("own", {"name": m[1]})])
    if len({*URL_IP.findall(text)}) == 1 and (m := REGISTERED.search(text)) and (name := name_of(m[1])):
        return found + _alias(name, ip_of(URL_IP.findall(text)[0]))
    hosts, addresses = {*KEYED_HOST.findall(text)}, {*KEYED_IP.findall(text)}
    if len(hosts) == len(addresses) == 1 and not SOMEBODY_ELSE.search(text):
        return found + _alias(name_of(hosts.pop()), ip_of(addresses.pop()))
    for m in BRACKETED.finditer(text):
        found += _alias(name_of(m[1]), ip_of(m[2]), soft=True)
    return found


def _labelled(labels: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """The host of an exporter's labels with the address it was scraped at; a pod beside it runs there."""
    name = next((n for key in HOST_KEYS if key in labels and (n := name_of(labels[key]))), None)
    found: list[tuple[str, dict[str, Any]]] = []
    for key in ("instance", "host_ip", "node_ip", "internal_ip"):
        found += _alias(name, ip_of(labels.get(key, "").rsplit(":", 1)[0]))
    for key in ("exported_pod", "pod"):
        found += _alias(name, name_of(labels.get(key, "")), soft=True) if "exporter" not in labels.get(key, "") else []
    return found
