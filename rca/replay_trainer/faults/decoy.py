"""What fools a reader of logs and harms nobody. Synthetic: lines in a host's kernel capture (`logs/hosts/<host>/dmesg.log`), or a real flap of a link that nobody uses.

`ecc_corrected`: corrected memory errors of another device, seconds before. `old_boot`: a device that fell off the bus an hour ago, before this job. `other_disk`: a file system
that no path of the job lies on goes read-only. `link_flap`: the data link of a host is down for half a second, in a job whose weights do not use it.
"""

from __future__ import annotations

import time

from rca.errors import RcaError
from rca.replay_trainer import kernel_log
from rca.replay_trainer.faults import Scene, Undo, load

KIND = "synthetic"
NEEDS: tuple[str, ...] = ()
HOUR_US = 3_600_000_000
SECOND_US = 1_000_000
#: Kind -> (µs before now, text). Grammar: NVIDIA's catalog of Xid errors, Linux fs/ext4.
LINES = {
    "ecc_corrected": ((7 * SECOND_US, "NVRM: Xid (PCI:0000:df:00): 92, pid='<unknown>', name=<unknown>, High single-bit ECC error rate"),),
    "old_boot": (
        (HOUR_US, "NVRM: Xid (PCI:0000:c3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        (HOUR_US - 40 * SECOND_US, "nvidia-modeset: Unloading"),
    ),
    "other_disk": ((4 * SECOND_US, "EXT4-fs (sdq1): Remounting filesystem read-only"),),
}
KINDS = (*LINES, "link_flap")


def make(scene: Scene, role: str, rank: int, kind: str = "ecc_corrected") -> Undo | None:
    """Raises RcaError for a kind that does not exist."""
    if kind == "link_flap":
        scene.remember(decoy=kind)
        return load("link_down").make(scene, role=role, rank=rank, interface="eth1", end="switch", seconds=0.5)
    if kind not in LINES:
        raise RcaError(f"no such decoy: `{kind}`", hint=f"there are {', '.join(KINDS)}")
    now_us = time.time_ns() // 1000
    kernel_log.add(scene.logs / "hosts" / scene.host(role, rank).name / "dmesg.log", [kernel_log.written(text, now_us - ago) for ago, text in LINES[kind]])
    scene.remember(decoy=kind)
    return None
