"""The commands that make a cluster of hosts out of namespaces: mounts, links and names, as argument lists, shell scripts and batches of `ip`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from rca.errors import RcaError
from rca.replay_trainer import programs

CONTROL, DATA = "10.77.0", "10.78.0"  # the first three numbers of the two networks
BRIDGES = {"eth0": "br-control", "eth1": "br-data"}
TOPS = ("mnt", "opt", "srv")  # folders that every machine has and no program of ours needs
STORAGE = "/mnt/ckpt"
KEEPER = Path(__file__).with_name("keeper.py")
#: Without root, one user namespace gives the right to make the others.
USER = ("--user", "--map-root-user") if os.geteuid() else ()


def enter(pid: int, *kinds: str) -> list[str]:
    """The command that puts a program into namespaces of a process, and keeps its pid."""
    user = ["--user", "--preserve-credentials"] if USER else []
    return [programs.find("nsenter"), "--target", str(pid), *user, *(f"--{kind}" for kind in kinds)]


def keeper() -> list[str]:
    return [programs.find("unshare"), *USER, "--mount", "--propagation", "private", sys.executable, "-I", "-S", str(KEEPER)]


def switch() -> list[str]:
    return [programs.find("unshare"), "--net", "sh", "-ec", "echo ready; exec cat"]


def host(name: str) -> list[str]:
    """A holder: it has a name and a /sys that shows its own interfaces, and ends when its input does."""
    script = f"""
        hostname {shlex.quote(name)}
        exec 3</sys/fs/cgroup
        mount -t sysfs none /sys
        mount --no-canonicalize --rbind /proc/self/fd/3 /sys/fs/cgroup
        exec 3<&-
        echo ready
        exec cat"""
    return [programs.find("unshare"), "--uts", "--net", "--mount", "sh", "-ec", script]


def mounts(scratch: Path, binds: Mapping[Path, str], hosts_table: str, storage: str | None) -> str:
    """The script that builds the neutral folders in `scratch` and puts them in place.

    They are built aside since what is bound may itself lie below a folder that will be hidden. `storage` are the words of `mount` that precede the mount point.
    """
    base = shlex.quote(str(scratch))
    lines = [f"mount -t tmpfs -o mode=755,size=4m none {base}", f"printf %s {shlex.quote(hosts_table)} > {base}/hosts"]
    lines += [f"mkdir {base}/{top}" for top in TOPS]
    for source, target in sorted(binds.items(), key=lambda bind: bind[1]):  # a folder before what lies in it
        parts = PurePosixPath(target).parts
        if len(parts) < 3 or parts[0] != "/" or parts[1] not in TOPS or ".." in parts:
            raise RcaError(f"only folders below /{', /'.join(TOPS)} can be given to hosts: `{target}`")
        if not source.exists():
            raise RcaError(f"there is nothing to show at `{target}`", where=str(source))
        place = base + shlex.quote(target)
        lines.append(f"mkdir -p {place}" if source.is_dir() else f"mkdir -p $(dirname {place}); touch {place}")
        lines.append(f"mount --bind {shlex.quote(str(source.resolve()))} {place}")
    if storage is not None:
        lines += [f"mkdir -p {base}{STORAGE}", f"mount {storage} {base}{STORAGE}"]
    lines += [f"mount --rbind {base}/{top} /{top}" for top in TOPS]
    lines += [f"mount --bind {base}/hosts /etc/hosts", f"umount --lazy {base}"]
    return "\n".join(lines)


def wiring(pairs: Iterable[tuple[str, str, int]]) -> str:
    """The batch that builds the switch: (its port, the host's interface, pid of the host's holder) -> both ends."""
    lines = [f"link add {bridge} type bridge\nlink set {bridge} addrgenmode none\nlink set {bridge} up" for bridge in BRIDGES.values()]
    for port, interface, pid in pairs:
        lines.append(f"link add {port} type veth peer name {interface} netns {pid}")
        lines.append(f"link set {port} addrgenmode none\nlink set {port} master {BRIDGES[interface]}\nlink set {port} up")
    return "\n".join(lines) + "\n"


def addresses(links: Mapping[str, str]) -> str:
    """The batch that brings up a host's own interfaces: name -> address."""
    lines = ["link set lo up"]
    for interface, address in links.items():
        lines.append(f"link set {interface} addrgenmode none\naddr add {address}/24 dev {interface}\nlink set {interface} up")
    return "\n".join(lines) + "\n"
