"""Each fault does what its docstring says, to a real program on a real host, and its undo mends it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from replay_trainer.scenes import GROWS, OneProgram, alive, need, python, state, until

from rca.errors import RcaError
from rca.replay_trainer import faults
from rca.replay_trainer.control_groups import ControlGroup
from rca.replay_trainer.hosts import Cluster, Here, lacking
from rca.replay_trainer.mechanisms import PROBES
from rca.replay_trainer.storage import Storage

SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 29500), 5) as peer:
    peer.settimeout(20)
    for _ in range(int(sys.argv[2])):
        peer.sendall(b"x" * 10000)
        time.sleep(float(sys.argv[3]))
    peer.shutdown(socket.SHUT_WR)
    print(peer.recv(99).decode())
"""
TAKE = """
import socket, sys
with socket.create_server((sys.argv[1], 29500)) as server:
    print("listening", flush=True)
    peer = server.accept()[0]
    got = 0
    while data := peer.recv(1 << 16):
        got += len(data)
        print(got, flush=True)
    peer.sendall(str(got).encode())
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    need("network namespaces", "mount namespaces")
    with Cluster(["trn-1", "rlt-1"], storage=Storage("tmpfs", 4 << 20)) as made:
        yield made


def listening(cluster: Cluster, tmp_path: Path) -> Path:
    """The log of a program on rlt-1 that counts what it gets over the data network."""
    log = tmp_path / "taken"
    python(cluster["rlt-1"], TAKE, cluster["rlt-1"].data_address, log=log)
    assert until(lambda: log.exists() and "listening" in log.read_text())
    return log


def retransmitted(cluster: Cluster) -> int:
    """TCP segments that trn-1 has sent again."""
    head, row = [line.split() for line in cluster["trn-1"].run(["cat", "/proc/net/snmp"]).stdout.splitlines() if line.startswith("Tcp:")]
    return int(dict(zip(head, row, strict=True))["RetransSegs"])


@pytest.mark.parametrize("name", faults.names())
def test_every_fault_says_what_it_is(name: str) -> None:
    """A docstring, its kind, and needs that `lacking` knows."""
    fault = faults.load(name)
    assert fault.__doc__ and len(fault.__doc__) > 80
    assert fault.KIND in ("real", "synthetic")
    assert isinstance(fault.NEEDS, tuple) and set(fault.NEEDS) <= set(PROBES)
    lacking(fault.NEEDS)
    assert callable(fault.make)
    assert (fault.KIND == "synthetic") == ("Synthetic:" in fault.__doc__), "what is not real says so"


def test_a_fault_that_does_not_exist() -> None:
    """The nearest name is offered."""
    with pytest.raises(RcaError) as raised:
        faults.load("link_dwon")
    assert raised.value.hint == "did you mean `link_down`?"


def test_an_undo_happens_once() -> None:
    """By time or by hand, whichever is first."""
    done: list[str] = []
    undo = faults.for_a_while(lambda: done.append("x"), 0.05)
    assert until(lambda: done)
    undo()
    undo = faults.for_a_while(lambda: done.append("y"), 60)
    undo()
    undo()
    assert done == ["x", "y"]


@pytest.mark.real
@pytest.mark.parametrize("end", ["host", "switch"])
def test_link_down(cluster: Cluster, end: str, tmp_path: Path) -> None:
    """What is sent does not arrive until the link is back; the other network is untouched; the interface itself tells."""
    log = listening(cluster, tmp_path)
    scene = OneProgram(tmp_path, host=cluster["trn-1"])
    sent = tmp_path / "sent"
    sender = python(cluster["trn-1"], SEND, cluster["rlt-1"].data_address, "20", "0.05", log=sent)
    assert until(lambda: len(log.read_text().split()) > 3)
    undo = faults.load("link_down").make(scene, "train", 0, end=end)
    time.sleep(0.3)
    got = log.read_text()
    read = ["sh", "-c", "cd /sys/class/net; cat eth1/operstate eth0/operstate eth1/carrier_changes"]
    down, up, changes = cluster["trn-1"].run(read).stdout.split()
    assert (down in ("down", "lowerlayerdown"), up) == (True, "up")
    time.sleep(0.3)
    assert log.read_text() == got, "nothing arrives"
    assert cluster["trn-1"].run(["sh", "-c", "ip route get 10.77.0.12"]).returncode == 0
    undo()
    if end == "switch":  # at the host's end every route is gone, and the sender is told so at once
        assert sender.wait(20) == 0
        assert sent.read_text() == "200000\n"
    assert int(cluster["trn-1"].run(read).stdout.split()[2]) > int(changes)
    assert scene.truth["interface"] == "eth1" and re.fullmatch(r"[\d-]{10}T[\d:.]{12}\+00:00", scene.truth["fault_time_utc"])


@pytest.mark.real
def test_a_link_that_flaps(cluster: Cluster, tmp_path: Path) -> None:
    """With `seconds` the link comes back by itself, also where it is taken away in the host."""
    scene = OneProgram(tmp_path, host=cluster["trn-1"])
    faults.load("link_down").make(scene, "train", 0, interface="eth0", seconds=0.3)
    up = ["cat", "/sys/class/net/eth0/operstate"]
    assert cluster["trn-1"].run(up).stdout == "down\n"
    assert until(lambda: cluster["trn-1"].run(up).stdout == "up\n")
    listening(cluster, tmp_path)
    assert python(cluster["trn-1"], SEND, cluster["rlt-1"].data_address, "1", "0").wait(10) == 0


@pytest.mark.real
def test_congested_link(cluster: Cluster, tmp_path: Path) -> None:
    """Packets are dropped and sent again, everything comes late, and nothing is lost."""
    need("traffic shaping")
    log = listening(cluster, tmp_path)
    scene = OneProgram(tmp_path, host=cluster["trn-1"])
    undo = faults.load("congested_link").make(scene, "train", 0, kbit=1000)
    sent, began, before = tmp_path / "sent", time.monotonic(), retransmitted(cluster)
    sender = python(cluster["trn-1"], SEND, cluster["rlt-1"].data_address, "25", "0", log=sent)
    assert sender.wait(30) == 0
    assert sent.read_text() == "250000\n" and log.read_text().split()[-1] == "250000"
    assert time.monotonic() - began > 1.5
    assert retransmitted(cluster) - before >= 3
    assert re.search(r"dropped [1-9]", cluster["trn-1"].run(["tc", "-s", "qdisc", "show", "dev", "eth1"]).stdout)
    undo()
    assert "tbf" not in cluster["trn-1"].run(["tc", "qdisc"]).stdout


@pytest.mark.parametrize("name", ["link_down", "congested_link"])
def test_the_links_of_this_machine_are_not_touched(name: str, tmp_path: Path) -> None:
    """They are not ours to break."""
    with pytest.raises(RcaError, match="not ours"):
        faults.load(name).make(OneProgram(tmp_path), "train", 0)


def test_process_stopped_and_killed(tmp_path: Path) -> None:
    """Stopped, going on by itself, killed."""
    program = python(Here(), "import time; time.sleep(60)")
    scene = OneProgram(tmp_path, program.pid)
    faults.load("process_stopped").make(scene, "rollout", 1, seconds=0.2)
    assert until(lambda: state(program.pid) == "T")
    assert until(lambda: state(program.pid) == "S")
    undo = faults.load("process_stopped").make(scene, "rollout", 1)
    faults.load("process_killed").make(scene, "rollout", 1)
    assert program.wait(5) == -9
    undo()
    assert scene.truth["pid"] == program.pid and "synthetic" not in scene.truth


def test_memory_limit(tmp_path: Path) -> None:
    """The process lives until it grows; the limit can be lifted before."""
    need("memory control groups")
    want = tmp_path / "want"
    want.write_text("10")
    with ControlGroup("test-low") as group:
        program = python(Here(), GROWS, str(want), within=group)
        assert until(lambda: group.memory_bytes > 10 << 20)
        scene = OneProgram(tmp_path, program.pid, group=group)
        faults.load("memory_limit").make(scene, "rollout", 0)()
        want.write_text("20")
        assert until(lambda: group.memory_bytes > 20 << 20)
        time.sleep(0.5)  # it has grown as far as it was told to
        faults.load("memory_limit").make(scene, "rollout", 0)
        time.sleep(0.2)
        assert alive(program.pid)
        want.write_text("40")
        assert program.wait(10) == -9
        assert scene.truth["limit_bytes"] < 30 << 20


def test_a_memory_limit_leaves_no_room_in_the_page_cache(tmp_path: Path) -> None:
    """What a program has written to files is given up before it is killed: it is no memory that it may still grow by."""
    need("memory control groups")
    want, written = tmp_path / "want", tmp_path / "written"
    want.write_text("10")
    with ControlGroup("test-cache") as group:
        program = python(Here(), f"open({str(written)!r}, 'wb').write(bytes(40 << 20))\n{GROWS}", str(want), within=group)
        assert until(lambda: group.cache_bytes > 30 << 20 and group.memory_bytes > 50 << 20)
        time.sleep(0.5)
        scene = OneProgram(tmp_path, program.pid, group=group)
        faults.load("memory_limit").make(scene, "rollout", 0, slack_bytes=4 << 20)
        assert scene.truth["limit_bytes"] < 40 << 20
        time.sleep(0.2)
        assert alive(program.pid)
        want.write_text("20")
        assert program.wait(10) == -9


def test_memory_eaten(tmp_path: Path) -> None:
    """Another one grows, this one is killed."""
    need("memory control groups")
    want = tmp_path / "want"
    want.write_text("30")
    with ControlGroup("test-eaten") as group:
        group.limit(memory_bytes=80 << 20)
        program = python(Here(), GROWS, str(want), within=group)
        assert until(lambda: group.memory_bytes > 30 << 20)
        scene = OneProgram(tmp_path, program.pid, group=group)
        undo = faults.load("memory_eaten").make(scene, "rollout", 0, eaten_bytes=60 << 20)
        assert program.wait(15) == -9
        assert alive(scene.truth["eater_pid"])
        undo()
        assert not alive(scene.truth["eater_pid"])


def test_cpu_starved(tmp_path: Path) -> None:
    """The process all but stands still, and goes on."""
    need("cpu control groups")

    def busy() -> float:
        """The share of a core that the program has got."""

        def ticks() -> int:
            return sum(map(int, Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

        before, began = ticks(), time.monotonic()
        time.sleep(1.0)
        return (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)

    with ControlGroup("test-starved") as group:
        program = python(Here(), "while True: pass", within=group)
        undo = faults.load("cpu_starved").make(OneProgram(tmp_path, program.pid, group=group), "rollout", 0)
        time.sleep(0.2)
        assert busy() < 0.1
        undo()
        assert until(lambda: busy() > 0.15)
        program.kill()
        program.wait()


@pytest.mark.real
@pytest.mark.parametrize(("name", "says"), [("disk_full", "No space left on device"), ("disk_read_only", "Read-only file system")])
def test_disk_full_and_read_only(cluster: Cluster, name: str, says: str, tmp_path: Path) -> None:
    """A write on any host fails with the real error, and no longer after the undo."""
    scene = OneProgram(tmp_path, storage=cluster.storage)
    write = ["sh", "-c", "echo x > /mnt/ckpt/a"]
    assert cluster["rlt-1"].run(write).returncode == 0
    undo = faults.load(name).make(scene)
    for host in cluster:
        assert says in host.run(["dd", "if=/dev/zero", "of=/mnt/ckpt/b", "count=9"]).stderr
    undo()
    assert cluster["rlt-1"].run(write).returncode == 0
    with pytest.raises(RcaError, match="no storage"):
        faults.load(name).make(OneProgram(tmp_path))


@pytest.mark.real
def test_disk_frozen_then_broken(tmp_path: Path) -> None:
    """A writer hangs until it thaws by itself; after the device is broken a flush is an I/O error."""
    need("network namespaces", *faults.load("disk_frozen").NEEDS)
    with Cluster(["a"], storage=Storage("ext4", 16 << 20)) as cluster:
        scene = OneProgram(tmp_path, storage=cluster.storage)
        faults.load("disk_frozen").make(scene, seconds=1.0)
        began = time.monotonic()
        write = ["dd", "if=/dev/zero", "of=/mnt/ckpt/a", "count=9", "conv=fsync"]
        assert cluster["a"].run(write).returncode == 0
        assert 0.5 < time.monotonic() - began < 10
        faults.load("disk_errors").make(scene)
        assert "Input/output error" in cluster["a"].run(write).stderr
        assert scene.truth["device"] == cluster.storage.device if cluster.storage else False


def test_xid_is_written_among_the_real_lines(tmp_path: Path) -> None:
    """In the driver's grammar, in order of time, and named synthetic."""
    scene = OneProgram(tmp_path, 4711)
    capture = tmp_path / "logs" / "hosts" / Here().name / "dmesg.log"
    capture.parent.mkdir(parents=True)
    capture.write_text("2020-01-01T00:00:00,000000+00:00 old\n2099-01-01T00:00:00,000000+00:00 new\n")
    faults.load("xid").make(scene, "train", 0, xid=79, index=1, after=(45,))
    texts = [line.partition(" ")[2] for line in capture.read_text().splitlines()]
    assert texts == [
        "old",
        "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: GPU 0000:43:00.0: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:43:00): 45, pid=4711, name=python, Ch 00000010",
        "new",
    ]
    assert scene.truth["synthetic"] is True and scene.truth["xid"] == 79
    with pytest.raises(RcaError, match="no text for Xid 1"):
        faults.load("xid").make(scene, "train", 0, xid=1)


@pytest.mark.parametrize("event", ["link_down", "link_flap", "packet_loss", "health"])
def test_rdma_counters_before_and_after(event: str, tmp_path: Path) -> None:
    """Two readings with their times, of which the second has more; kernel lines where the driver writes some."""
    scene = OneProgram(tmp_path)
    faults.load("rdma_counters").make(scene, "train", 0, event=event)
    folder = tmp_path / "logs" / "hosts" / Here().name
    first, second = re.findall(r"^link mlx5_0/1 (.*)$", (folder / "rdma_statistic.log").read_text(), re.M)
    assert [a <= b for a, b in zip(*([int(word) for word in row.split() if word.isdigit()] for row in (first, second)), strict=True)] == [True] * 6
    assert first != second
    assert (folder / "dmesg.log").exists() == (event != "packet_loss")
    assert scene.truth["synthetic"] is True
