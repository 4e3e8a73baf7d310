"""Hosts that processes run on: this machine, or a cluster of its namespaces with links, names and mounts of their own.

    cluster ─ a mount namespace: neutral paths, the storage, /etc/hosts         held by `keeper`
      ├─ switch ─ network namespace with two bridges, br-control and br-data
      ├─ host a ─ host name, network (eth0 on br-control, eth1 on br-data), mounts
      └─ host b …

Processes keep the pids of this machine, so signals and control groups work from outside. All that makes a cluster belongs to processes that end when their
owner does: nothing outlives it, and nothing is changed outside.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rca.errors import RcaError
from rca.replay_trainer import namespaces, programs
from rca.replay_trainer.control_groups import ControlGroup
from rca.replay_trainer.mechanisms import lacking
from rca.replay_trainer.storage import Storage

__all__ = ["Cluster", "Here", "Host", "Inside", "lacking"]

RUN_S = 30.0
A_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123, without dots
MOST_HOSTS = 200
FIRST = 11  # of the last number of an address


class Host(Protocol):
    """What a launcher needs of a host."""

    name: str
    address: str  # of the control network
    data_address: str
    interface: str  # that `address` is on
    data_interface: str

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], log: Path | None = None, within: ControlGroup | None = None, cwd: str | Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program. Its output is added to `log`; it has a session of its own; the pid is the program's own."""

    def run(self, argv: Sequence[str], timeout: float = RUN_S) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. Raises subprocess.TimeoutExpired."""


class Here:
    """This machine as one host."""

    address = data_address = "127.0.0.1"
    interface = data_interface = "lo"

    def __init__(self) -> None:
        self.name = socket.gethostname()

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], log: Path | None = None, within: ControlGroup | None = None, cwd: str | Path | None = None
    ) -> subprocess.Popen[bytes]:
        return _start([*_join(within), *argv], env, log, cwd)

    def run(self, argv: Sequence[str], timeout: float = RUN_S) -> subprocess.CompletedProcess[str]:
        return _run(argv, timeout)


class Inside:
    """A host of a cluster, entered through the namespaces of its holder."""

    interface, data_interface = "eth0", "eth1"

    def __init__(self, cluster: Cluster, name: str, number: int, holder: subprocess.Popen[str]) -> None:
        self.cluster, self.name, self.number, self.holder = cluster, name, number, holder
        self.address, self.data_address = _address(namespaces.CONTROL, number), _address(namespaces.DATA, number)

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], log: Path | None = None, within: ControlGroup | None = None, cwd: str | Path | None = None
    ) -> subprocess.Popen[bytes]:
        move = ["/bin/sh", "-c", 'cd "$0" && unset OLDPWD && exec "$@"', str(cwd)] if cwd is not None else []
        program = _start([*_join(within), *self.enter(), *move, *argv], env, log, None)
        self.cluster.started.append(program)
        return program

    def run(self, argv: Sequence[str], timeout: float = RUN_S) -> subprocess.CompletedProcess[str]:
        return _run([*self.enter(), *argv], timeout)

    def enter(self) -> list[str]:
        return namespaces.enter(self.holder.pid, "uts", "net", "mount")

    def port(self, interface: str) -> str:
        """The other end of a link of this host: the name of the switch's interface."""
        return self.cluster.port(self.number, interface)

    def at_switch(self, argv: Sequence[str]) -> str:
        """Run a program in the switch. Raises RcaError."""
        return programs.call([*namespaces.enter(self.cluster.switch.pid, "net"), *argv])


class Cluster:
    """Hosts by name, while the `with` block lasts.

    `binds` says what of this machine is seen where: real path -> a path below /mnt, /opt or /srv; nothing else is there. `storage` is mounted at /mnt/ckpt on all.
    Raises RcaError where the machine does not allow it; ask `lacking` first.
    """

    def __init__(self, names: Sequence[str], binds: Mapping[Path, str] | None = None, storage: Storage | None = None, owner: str | None = None) -> None:
        if not names or len(names) > MOST_HOSTS or len(set(names)) != len(names) or not all(A_NAME.fullmatch(name) for name in names):
            raise RcaError(f"a cluster needs 1 to {MOST_HOSTS} different host names of letters, digits and hyphens: `{', '.join(names)}`")
        self.names, self.binds, self.storage = tuple(names), dict(binds or {}), storage
        self.owner = re.sub(r"\W", "", owner or "")[:6] or uuid.uuid4().hex[:6]  # in the names of the switch's ports, which the kernel log shows
        self.hosts: dict[str, Inside] = {}
        self.started: list[subprocess.Popen[bytes]] = []
        self._held: list[subprocess.Popen[str]] = []  # the keeper first

    def __enter__(self) -> Cluster:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Inside:
        return self.hosts[name]

    def __iter__(self) -> Iterator[Inside]:
        return iter(self.hosts.values())

    def close(self) -> None:
        """End every process in the cluster and all that it was made of."""
        for process in self._held:  # the keeper first: it kills what still runs before the namespaces go
            _end(process)
        for program in self.started:
            if program.poll() is None:  # it was stopped on its way into the namespaces, where the keeper does not see it
                program.kill()
        self._held.clear()
        self.started.clear()
        self.hosts.clear()
        if self.storage is not None:
            self.storage.detach()

    def root(self, path: str) -> Path:
        """A path of the hosts as this process can open it."""
        return Path(f"/proc/{self.keeper.pid}/root") / path.lstrip("/")

    def port(self, number: int, interface: str) -> str:
        return f"{self.owner}-{number}{'c' if interface == Inside.interface else 'd'}"

    def _build(self) -> None:
        self.keeper = self._hold(namespaces.keeper())
        enter = namespaces.enter(self.keeper.pid, "mount")
        with tempfile.TemporaryDirectory(prefix="rca-") as scratch:
            table = "127.0.0.1 localhost\n" + "".join(f"{_address(namespaces.CONTROL, number)} {name}\n" for number, name in enumerate(self.names))
            programs.call([*enter, "sh", "-ec", namespaces.mounts(Path(scratch), self.binds, table, self.storage.mounting() if self.storage else None)])
        if self.storage is not None:
            self.storage.attach(self.keeper.pid)
            self._tell(f"thaw {Storage.PLACE}")
        self.switch = self._hold([*enter, *namespaces.switch()], wait=False)
        holders = [self._hold([*enter, *namespaces.host(name)], wait=False) for name in self.names]
        for holder in (self.switch, *holders):
            _await_ready(holder)
            self._tell(f"net {os.stat(f'/proc/{holder.pid}/ns/net').st_ino}")
        pairs = [(self.port(number, name), name, holder.pid) for number, holder in enumerate(holders) for name in (Inside.interface, Inside.data_interface)]
        programs.call([*namespaces.enter(self.switch.pid, "net"), "ip", "-batch", "-"], namespaces.wiring(pairs))
        for number, (name, holder) in enumerate(zip(self.names, holders, strict=True)):
            host = self.hosts[name] = Inside(self, name, number, holder)
            links = {"eth0": host.address, "eth1": host.data_address}
            programs.call([*namespaces.enter(holder.pid, "net"), "ip", "-batch", "-"], namespaces.addresses(links))

    def _tell(self, line: str) -> None:
        assert self.keeper.stdin
        self.keeper.stdin.write(line + "\n")
        self.keeper.stdin.flush()

    def _hold(self, argv: list[str], wait: bool = True) -> subprocess.Popen[str]:
        """A process that lives until the pipe to it is closed, by us or by our end."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=programs.ENVIRONMENT, cwd="/", start_new_session=True)
        self._held.append(process)
        if wait:
            _await_ready(process)
        return process


def _address(network: str, number: int) -> str:
    return f"{network}.{FIRST + number}"


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout and process.stderr
    if process.stdout.readline() != "ready\n":
        raise RcaError(f"a namespace could not be made: {' '.join(process.stderr.read().split()) or 'no reason given'}", hint="`lacking` tells what is missing")


def _end(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(timeout=programs.PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _join(group: ControlGroup | None) -> list[str]:
    """The shell that enters a control group and then becomes the program, so that not one page is counted elsewhere."""
    if group is None:
        return []
    lines = [f"echo $$ > {shlex.quote(str(file))}" for file in group.entrances]
    return ["/bin/sh", "-c", " && ".join(["unset PWD OLDPWD", *lines, 'exec "$@"']), "sh"]  # PWD would tell the program of a folder it does not see


def _start(argv: Sequence[str], env: Mapping[str, str], log: Path | None, cwd: str | Path | None) -> subprocess.Popen[bytes]:
    with contextlib.ExitStack() as files:
        out = files.enter_context(log.open("ab")) if log is not None else subprocess.DEVNULL
        try:
            return subprocess.Popen(argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise RcaError(f"cannot start `{argv[0]}`: {error.strerror}") from error


def _run(argv: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout, env=programs.ENVIRONMENT)
    except OSError as error:
        raise RcaError(f"cannot run `{argv[0]}`: {error.strerror}") from error
