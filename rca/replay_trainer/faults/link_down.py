"""A host loses a network link: `ip link set … down`, in the host or, like a pulled cable, at the switch's end (the host then sees its carrier go)."""

from __future__ import annotations

from rca.errors import RcaError
from rca.replay_trainer import programs
from rca.replay_trainer.faults import Scene, Undo, for_a_while, in_namespaces, noted

KIND = "real"
NEEDS = ("network namespaces", "mount namespaces")
ENDS = ("host", "switch")


def make(scene: Scene, role: str, rank: int, interface: str = "eth1", end: str = "host", seconds: float | None = None) -> Undo:
    """`eth1` is the data network, `eth0` the control network. With `seconds` the link comes back by itself: a flap."""
    host = in_namespaces(scene, role, rank)
    if interface not in (host.interface, host.data_interface) or end not in ENDS:
        raise RcaError(f"a host has the links {host.interface} and {host.data_interface}, which go down at {' or '.join(ENDS)}: `{interface}`, `{end}`")

    def turn(state: str) -> None:
        if end == "host":
            programs.call([*host.enter(), "ip", "link", "set", interface, state])
        else:
            host.at_switch(["ip", "link", "set", host.port(interface), state])

    turn("down")
    noted(scene, host=host.name, interface=interface)
    return for_a_while(lambda: turn("up"), seconds)
