"""Hosts that are namespaces look like hosts to what runs on them, and leave nothing behind however their owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from replay_trainer.scenes import PATH, alive, need, until

from rca.errors import RcaError
from rca.replay_trainer.hosts import Cluster, Here, lacking
from rca.replay_trainer.storage import Storage

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("network namespaces", "mount namespaces")
LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 29500)) as server:
    print("listening", flush=True)
    peer, (address, _) = server.accept()
    peer.sendall(address.encode())
"""
CONNECT = "import socket, sys; print(socket.create_connection((sys.argv[1], 29500), 5).recv(99).decode())"
OWNER = """
import os, sys, time
from rca.replay_trainer.hosts import Cluster
from rca.replay_trainer.storage import Storage
with Cluster(["trn-1", "trn-2"], storage=Storage(sys.argv[1])) as cluster:
    program = cluster["trn-1"].start(["sh", "-c", "while :; do echo x > /mnt/ckpt/a; done"], env={"PATH": "/usr/bin:/bin"})
    if sys.argv[1] == "ext4":
        cluster.storage.freeze()
    image = os.fstat(cluster.storage._image).st_ino if sys.argv[1] == "ext4" else -1
    print(image, program.pid, cluster.keeper.pid, cluster.switch.pid, *(host.holder.pid for host in cluster), flush=True)
    time.sleep(60)
"""


def test_this_machine_is_a_host(tmp_path: Path) -> None:
    """A program's output is added to its log; its pid is its own; nothing is read from the terminal."""
    log = tmp_path / "log"
    log.write_text("before\n")
    here = Here()
    program = here.start(["sh", "-c", "echo $$; echo $A >&2; pwd; cat"], env={**PATH, "A": "b"}, log=log, cwd=tmp_path)
    assert program.wait(10) == 0
    assert log.read_text().splitlines() == ["before", str(program.pid), "b", str(tmp_path)]
    assert here.run(["echo", "x"]).stdout == "x\n"
    with pytest.raises(RcaError, match="cannot start"):
        here.start(["/no/such/program"], env=PATH)


@pytest.mark.parametrize("names", [(), ("a", "a"), ("A b",), ("a.b",)])
def test_names_of_hosts_are_host_names(names: tuple[str, ...]) -> None:
    """A name that could not be one is refused before anything is made."""
    with pytest.raises(RcaError, match="host names"):
        Cluster(names)


@pytest.mark.real
@pytest.mark.parametrize("target", ["/etc/x", "/srv", "srv/run", "/srv/../etc/x"])
def test_only_neutral_folders_are_bound(target: str, tmp_path: Path) -> None:
    """What programs need cannot be hidden by mistake."""
    need(*NAMESPACES)
    with pytest.raises(RcaError, match="can be given to hosts"), Cluster(["a"], {tmp_path: target}):
        pass


@pytest.mark.real
def test_hosts_have_names_links_and_paths(tmp_path: Path) -> None:
    """A program sees its host's name, its own interfaces and the neutral paths, and reaches another host by name and by both networks."""
    need(*NAMESPACES)
    (tmp_path / "here").write_text("yes")
    with Cluster(["trn-1", "rlt-1"], {tmp_path: "/srv/run", Path("/etc/passwd"): "/opt/rca/users"}, Storage("tmpfs")) as cluster:
        trn, rlt = cluster["trn-1"], cluster["rlt-1"]
        seen = trn.run(["sh", "-c", "hostname; ls /sys/class/net /srv /opt/rca; cat /srv/run/here; cd /mnt; ls; df --output=fstype /mnt/ckpt | tail -1"]).stdout
        assert seen.split() == ["trn-1", "/opt/rca:", "users", "/srv:", "run", "/sys/class/net:", "eth0", "eth1", "lo", "yesckpt", "tmpfs"]
        for asked, peer in (("rlt-1", trn.address), (rlt.address, trn.address), (rlt.data_address, trn.data_address)):
            log = tmp_path / asked
            server = rlt.start([sys.executable, "-c", LISTEN, asked], env=PATH, log=log)
            assert until(lambda log=log: log.exists() and "listening" in log.read_text()), log.read_text()
            assert trn.run([sys.executable, "-c", CONNECT, asked]).stdout.strip() == peer
            server.wait(10)
        program = trn.start(["sh", "-c", "echo $$ $PWD"], env=PATH, log=tmp_path / "log", cwd="/srv/run")
        program.wait(10)
        assert (tmp_path / "log").read_text() == f"{program.pid} /srv/run\n"
        (cluster.root("/mnt/ckpt") / "a").write_text("b")
        assert rlt.run(["cat", "/mnt/ckpt/a"]).stdout == "b"
    assert not list(Path("/srv").glob("run")), "nothing is mounted outside"


@pytest.mark.real
def test_a_signal_reaches_the_program_itself() -> None:
    """The pid of what was started is that of the program, on this machine."""
    need(*NAMESPACES)
    with Cluster(["a"]) as cluster:
        program = cluster["a"].start(["sleep", "60"], env=PATH, cwd="/")
        assert until(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "sleep\n")
        os.kill(program.pid, signal.SIGTERM)
        assert program.wait(10) == -signal.SIGTERM


@pytest.mark.real
def test_the_end_of_a_cluster_ends_its_programs() -> None:
    """Programs, stopped ones too, are killed when the block is left, by an error among others."""
    need(*NAMESPACES)
    with pytest.raises(ZeroDivisionError), Cluster(["a", "b"]) as cluster:
        programs = [host.start(["sh", "-c", "sleep 61 & wait"], env=PATH) for host in cluster]
        held = [cluster.keeper.pid, cluster.switch.pid, *(host.holder.pid for host in cluster)]
        assert until(lambda: all(Path(f"/proc/{program.pid}/comm").read_text() == "sh\n" for program in programs))
        early = cluster["a"].start(["sleep", "62"], env=PATH)
        for stopped in (programs[0], early):  # the second one perhaps before it is inside
            os.kill(stopped.pid, signal.SIGSTOP)
        print(1 / 0)
    assert early.wait(5) != 0
    assert [program.wait(5) for program in programs] == [-signal.SIGKILL] * 2
    assert not any(map(alive, held))


@pytest.mark.real
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_owner(kind: str, number: signal.Signals) -> None:
    """The owner is killed, with the storage frozen and a program hanging in it: holders, programs, namespaces and the loop device are gone at once."""
    need(*NAMESPACES, *(("freezable file system",) if kind == "ext4" else ()))
    owner = subprocess.Popen([sys.executable, "-c", OWNER, kind], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    with owner:
        image, *pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 5
        assert all(map(alive, pids))
        time.sleep(0.2)  # the program is in its write now
        owner.send_signal(number)
    assert until(lambda: not any(map(alive, pids))), [pid for pid in pids if alive(pid)]
    assert until(lambda: f"]:{image} (" not in subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout)


@pytest.mark.real
def test_four_hosts_start_fast() -> None:
    """A run begins with its hosts: two seconds would be felt."""
    need(*NAMESPACES)
    began = time.monotonic()
    with Cluster(["a", "b", "c", "d"], storage=Storage("tmpfs")):
        took = time.monotonic() - began
    print(f"4 hosts: {took:.3f} s to start, {time.monotonic() - began - took:.3f} s to end")
    assert took < 2


UNPRIVILEGED = """
import os
from rca.replay_trainer.hosts import Cluster, lacking
from rca.replay_trainer.storage import Storage
assert os.geteuid() == 65534
if reason := lacking(["network namespaces", "mount namespaces", "traffic shaping"]):
    print("lacking", reason)
else:
    with Cluster(["trn-1", "trn-2"], storage=Storage("tmpfs")) as cluster:
        host, storage = cluster["trn-1"], cluster.storage
        print(host.run(["sh", "-c", "hostname; ls /sys/class/net; ip route get 10.78.0.12 | head -1"]).stdout.split()[:6])
        storage.read_only()
        print("Read-only" in host.run(["touch", "/mnt/ckpt/a"]).stderr)
        storage.writable()
        storage.fill()
        print(storage.free_bytes, "no group" in lacking(["memory control groups"]))
"""


@pytest.mark.real
def test_a_user_without_rights_can_have_a_cluster() -> None:
    """Where the machine allows user namespaces, all but control groups and loop devices works without root."""
    if os.geteuid():
        pytest.skip("it takes root to become someone else")
    someone = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", 'exec "$@"', "sh"]  # the shell starts the program with the rights it has
    env = {**PATH, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    for interpreter in (sys.executable, "/usr/bin/python3"):
        check = [*someone, interpreter, "-c", "import sys, rca.replay_trainer.hosts; assert sys.version_info >= (3, 11)"]
        if subprocess.run(check, env=env, cwd="/", capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("nobody may run this interpreter, or read this folder")
    done = subprocess.run([*someone, interpreter, "-c", UNPRIVILEGED], env=env, cwd="/", capture_output=True, text=True, timeout=60)
    if done.stdout.startswith("lacking"):
        pytest.skip(done.stdout)
    assert done.stdout.splitlines() == ["['trn-1', 'eth0', 'eth1', 'lo', '10.78.0.12', 'dev']", "True", "0 True"], done.stderr


def test_a_missing_program_is_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lacking` says why, for a machine without the programs."""
    from rca.replay_trainer import mechanisms, programs

    mechanisms._reason.cache_clear()
    monkeypatch.setattr(programs, "find", lambda name: f"/no/such/{name}")
    try:
        for name in ("network namespaces", "mount namespaces", "loop devices", "traffic shaping", "freezable file system"):
            assert "there is no program" in (lacking([name]) or "")
    finally:
        mechanisms._reason.cache_clear()
