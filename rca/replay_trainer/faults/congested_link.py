"""A link of a host is congested: token buckets with a small rate and a short queue at both its ends, so that packets are really dropped and TCP really sends again."""

from __future__ import annotations

import contextlib

from rca.errors import RcaError
from rca.replay_trainer import programs
from rca.replay_trainer.faults import Scene, Undo, for_a_while, in_namespaces, noted

KIND = "real"
NEEDS = ("network namespaces", "mount namespaces", "traffic shaping")
FRAMES = 3  # of full size fit into bucket and queue: less, and not even a handshake gets through


def make(scene: Scene, role: str, rank: int, interface: str = "eth1", kbit: int = 512, seconds: float | None = None) -> Undo:
    """`kbit` a second pass, each way."""
    host = in_namespaces(scene, role, rank)
    bucket = f"rate {kbit}kbit burst {FRAMES * 1540} limit {FRAMES * 1540}".split()
    programs.call([*host.enter(), "tc", "qdisc", "replace", "dev", interface, "root", "tbf", *bucket])
    host.at_switch(["tc", "qdisc", "replace", "dev", host.port(interface), "root", "tbf", *bucket])
    noted(scene, host=host.name, interface=interface)

    def undo() -> None:
        with contextlib.suppress(RcaError):
            programs.call([*host.enter(), "tc", "qdisc", "del", "dev", interface, "root"])
        with contextlib.suppress(RcaError):
            host.at_switch(["tc", "qdisc", "del", "dev", host.port(interface), "root"])

    return for_a_while(undo, seconds)
