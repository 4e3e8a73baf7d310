"""One name per host, whatever tool spells it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from rca.correlate.names import learn
from rca.ingest.line import parse
from rca.ingest.sightings import dump, hosts
from tests.builders import run_of

STEPS = "".join(f"2026-11-20 12:00:{s:02d},000 INFO train: step={s} loss=2.0\n" for s in range(3))
FULL = 'Traceback (most recent call last):\n  File "t.py", line 9, in save\n    main()\nOSError: [Errno 28] No space left on device\n'

ALIASES = [
    ("worker introduction", "train worker 5 pid=24867 host=pod-33 ip=10.10.102.33 port=18005 CUDA_VISIBLE_DEVICES=5", ("pod-33", "10.10.102.33")),
    ("registration", "train/0 registered: http://10.7.156.58:18000 on dgx-a58", ("dgx-a58", "10.7.156.58")),
    ("ping", "PING dgx-a62 (10.7.156.62) 56(84) bytes of data.", ("dgx-a62", "10.7.156.62")),
    ("ping, FQDN", "PING gn7.hpc.example (10.7.1.7) 56(84) bytes of data.", ("gn7.hpc.example", "10.7.1.7")),
    ("traceroute", "traceroute to node-a (10.1.1.1), 30 hops max, 60 byte packets", ("node-a", "10.1.1.1")),
    ("node_exporter", 'node_uname_info{domainname="(none)",instance="10.0.0.9:9100",nodename="gpu-09",release="5.15"} 1', ("gpu-09", "10.0.0.9")),
    ("DCGM range query", '{"metric": {"gpu": "0", "Hostname": "gn87", "instance": "10.2.3.87:9400", "pci_bus_id": "00000000:07:00.0"}}', ("gn87", "10.2.3.87")),
    ("Ray's nodes", "{'NodeID': 'ab', 'Alive': True, 'NodeManagerAddress': '10.0.0.7', 'NodeManagerHostname': 'gpu-7'}", ("gpu-7", "10.0.0.7")),
    ("Slurm's node", "NodeName=cn3 Arch=x86_64 CoresPerSocket=32 NodeAddr=10.8.0.3 NodeHostName=cn3", ("cn3", "10.8.0.3")),
    ("OTLP", '{"key":"host.name","value":{"stringValue":"node-a"}},{"key":"host.ip","value":{"arrayValue":{"values":[{"stringValue":"10.9.0.1"}]}}}', ("node-a", "10.9.0.1")),
    ("NCCL's bootstrap", "gn12:4711:4899 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.12<0>", ("gn12", "10.2.0.12")),
    ("home-grown", "[boot] hostname=kepler-4 ip_addr=192.168.7.4 joined the pool", ("kepler-4", "192.168.7.4")),
    ("a table of one's own", "node_name: trn-08, node_ip: 10.44.0.8, slots: 8", ("trn-08", "10.44.0.8")),
]


@pytest.mark.parametrize(("text", "pair"), [c[1:] for c in ALIASES], ids=[c[0] for c in ALIASES])
def test_a_line_joins_a_name_and_an_address(text: str, pair: tuple[str, str]) -> None:
    """What the tool prints of one machine in one line."""
    found = [tuple(f[k] for k in ("a", "b")) for kind, f in hosts.sight(parse(text), text, text.lower()) if kind == "alias" and not f.get("soft")]
    assert pair in found


@pytest.mark.parametrize("text", [
    "no answer from peer ip=10.0.0.9, asked by host=gn1",
    "step 12 took 3.4 s on 10.0.0.1",
    "listening on 0.0.0.0:30000 on eth0",
    "host=localhost ip=127.0.0.1",
    "connecting to master ip=10.0.0.1 from host=gn2",
    "nfs server 10.92.0.32 mounted, host=gn2",
])  # fmt: skip
def test_look_alikes_join_nobody(text: str) -> None:
    """An address in a line with a host's name may be somebody else's."""
    assert [f for kind, f in hosts.sight(parse(text), text, text.lower()) if kind == "alias" and not f.get("soft")] == []


def test_dumps_of_a_host() -> None:
    """The command before an output is not needed but for `hostname`; bridges of containers are passed over."""
    text = "===== hostname =====\ntrn12\n===== ip addr =====\n2: eth0: <UP>\n    inet 10.3.0.12/24 brd 10.3.0.255 scope global eth0\n    inet 172.17.0.1/16 scope global docker0\n"
    assert [f["name"] for _, f in dump.of_text(text)] == ["trn12", "10.3.0.12"]
    assert [f["name"] for _, f in dump.of_text("root@x:~# hostname -f\ngn4.cluster.local\n")] == ["gn4.cluster.local"]
    assert [f["name"] for _, f in dump.of_text("eth0: flags=4163<UP>  mtu 1500\n        inet 10.3.0.9  netmask 255.255.255.0\n")] == ["10.3.0.9"]


def test_canonical_name() -> None:
    """A node's name before a host's, a host's before an address; FQDN and port do not matter."""
    names = learn([
        ("alias", {"a": "gn7", "b": "10.0.0.7"}, None), ("alias", {"a": "gpu-node-1", "b": "trainer-0", "node": True}, None),
        ("alias", {"a": "gpu-node-1", "b": "10.244.0.9", "node": True}, None), ("own", {"name": "10.9.9.9"}, "gn7.hpc"),
    ])  # fmt: skip
    assert [names.of(n) for n in ("10.0.0.7:2379", "GN7.hpc", "10.9.9.9", "http://10.244.0.9:30001/x", "trainer-0", "gn8.hpc", "10.1.1.1", None)] == [
        "gn7", "gn7", "gn7", "gpu-node-1", "gpu-node-1", "gn8", "10.1.1.1", None,
    ]  # fmt: skip


def test_an_address_that_several_claim_is_nobodys() -> None:
    """A service's address, or a bridge that every host has."""
    names = learn([("alias", {"a": h, "b": "10.0.0.1"}, None) for h in ("a1", "b2")] + [("own", {"name": "192.168.0.1"}, h) for h in ("a1", "b2", "c3")])
    assert names.of("10.0.0.1") == "10.0.0.1" and names.of("192.168.0.1") == "192.168.0.1"


def test_the_form_of_a_line_speaks_for_known_hosts_only() -> None:
    """`gn12 (10.0.0.12)` is a host and its address if gn12 is a host at all."""
    said = [("alias", {"a": "gn12", "b": "10.0.0.12", "soft": True}, None), ("alias", {"a": "shard-3", "b": "10.0.0.13", "soft": True}, None)]
    names = learn(said, Counter({"gn12": 1}))
    assert (names.of("10.0.0.12"), names.of("10.0.0.13")) == ("gn12", "10.0.0.13")


def test_a_name_that_says_its_address() -> None:
    """Clouds name hosts after their addresses."""
    assert learn([], Counter({"ip-10-4-7-17": 1})).of("10.4.7.17") == "ip-10-4-7-17"


def test_every_source_of_a_run_uses_one_name(tmp_path: Path) -> None:
    """A Ray folder named by address, a kernel log named by node, a pod's console: one host in events and coverage."""
    pods = {"items": [{"kind": "Pod", "metadata": {"name": "trainer-0"}, "spec": {"nodeName": "gn28"}, "status": {"podIP": "10.29.1.28", "hostIP": "10.29.1.28"}}]}
    run = run_of(tmp_path, {
        "k8s/pods.json": json.dumps(pods),
        "ray/10.29.1.28/logs/worker.err": STEPS + FULL,
        "kernel/gn28.dmesg.txt": "[Fri Nov 20 12:00:01 2026] nfs: server 10.92.0.32 not responding, still trying\n",
        "trainer-0.log": "2026-11-20 12:00:00,000 INFO hostname=trainer-0 pid=4 rank=0 world_size=1\n" + STEPS,
    })  # fmt: skip
    assert run.hosts == ("gn28",)
    assert {e.host for e in run.events if e.host} == {"gn28"} and {h for _, h in run.coverage if h} == {"gn28"}


def test_collected_output_of_several_hosts_is_of_none(tmp_path: Path) -> None:
    """One file with the `hostname` of two machines: their addresses are not joined."""
    text = "$ hostname\ngn1\n$ hostname -I\n10.0.0.1\n$ hostname\ngn2\n$ hostname -I\n10.0.0.2\n"
    run = run_of(tmp_path, {"all.txt": text, "gn1.log": STEPS, "gn2.log": STEPS + "connect to 10.0.0.1 failed\n"})
    assert set(run.hosts) <= {"gn1", "gn2"}
