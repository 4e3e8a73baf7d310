"""What this machine allows: each mechanism is tried once, in namespaces that end with the trial."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

from rca.errors import RcaError
from rca.replay_trainer import control_groups, namespaces, programs

IMAGE = 8 << 20  # bytes


def _in_namespaces(script: str, *kinds: str) -> None:
    programs.call(["unshare", *namespaces.USER, *(f"--{kind}" for kind in kinds), "sh", "-ec", script])


def _network() -> None:
    script = "ip link add end0 type veth peer name end1; ip link add br0 type bridge; ip link set end0 master br0; mount -t sysfs none /sys; hostname probe; test -e /sys/class/net/end1"
    _in_namespaces(script, "net", "mount", "uts")


def _mount() -> None:
    _in_namespaces("mount -t tmpfs none /mnt; mkdir /mnt/a /mnt/b; mount --bind /mnt/a /mnt/b; nsenter --mount --target $$ true", "mount")


def _group(controller: str) -> None:
    if controller not in control_groups.parents():
        raise RcaError("no group can be made: it takes root, or a delegated group of version 2")


def _loop(then: str = "") -> None:
    image = os.memfd_create("probe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(image, IMAGE)
        path = f"/proc/{os.getpid()}/fd/{image}"
        programs.call(["mkfs.ext4", "-q", "-F", path])
        _in_namespaces(f"mount -o loop {path} /mnt; {then} umount /mnt", "mount")
    finally:
        os.close(image)


def _freeze() -> None:
    _loop("fsfreeze --freeze /mnt && fsfreeze --unfreeze /mnt;")


def _shaping() -> None:
    _in_namespaces("tc qdisc add dev lo root tbf rate 1mbit burst 4kb limit 8kb", "net")


def _kernel_log() -> None:
    from rca.replay_trainer import kernel_log

    kernel_log.mark()


PROBES: dict[str, Callable[[], None]] = {
    "network namespaces": _network,
    "mount namespaces": _mount,
    "memory control groups": lambda: _group("memory"),
    "cpu control groups": lambda: _group("cpu"),
    "loop devices": _loop,
    "traffic shaping": _shaping,
    "kernel log": _kernel_log,
    "freezable file system": _freeze,
}


@functools.cache
def _reason(mechanism: str) -> str | None:
    try:
        PROBES[mechanism]()
    except (RcaError, OSError, AttributeError) as error:  # AttributeError: a system without memory files
        return getattr(error, "message", None) or str(error)
    return None


def lacking(needs: Sequence[str]) -> str | None:
    """The first of these mechanisms that this machine does not allow, and why; None when it allows them all. Raises KeyError for one that does not exist."""
    return next((f"{need}: {reason}" for need in needs if (reason := _reason(need)) is not None), None)
