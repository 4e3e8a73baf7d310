"""Synthetic: the NVIDIA driver's report of an error, written into the host's kernel capture (`logs/hosts/<host>/dmesg.log`) among its real lines. Nothing else happens.

Grammar and texts: NVIDIA's catalog of Xid errors and public reports; a bus id has no function there, and the pid is `<unknown>` where no channel is at fault.
"""

from __future__ import annotations

import time

from rca.errors import RcaError
from rca.replay_trainer import kernel_log
from rca.replay_trainer.device import BUSES
from rca.replay_trainer.faults import Scene, noted

KIND = "synthetic"
NEEDS = ()
#: Xid -> whether the driver knows whose channel it was, and what it says.
TEXTS = {
    13: (True, "Graphics SM Warp Exception on (GPC 4, TPC 2, SM 0): Out Of Range Address"),
    31: (True, "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f2a_41c00000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"),
    43: (True, "Ch 00000010"),
    45: (True, "Ch 00000010"),
    48: (False, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 6, subpartition 0."),
    63: (True, "Row Remapper: New row marked for remapping, reset gpu to activate."),
    64: (True, "Row Remapper Error: (0x00000005d28c03a0) - All reserved rows for bank are remapped"),
    74: (False, "NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
    79: (False, "GPU has fallen off the bus."),
    94: (True, "Contained: SM (0x1). RST: No, D-RST: No"),
    95: (False, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No"),
    119: (True, "Timeout after 6s of waiting for RPC response from GPU{index} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20803032 0x588)."),
}


def make(scene: Scene, role: str, rank: int, xid: int = 94, index: int = 0, name: str = "python", after: tuple[int, ...] = ()) -> None:
    """`index` is the device's place in its host, `name` what the kernel calls the process; `after` are further Xid of the same device that follow within a millisecond."""
    unknown = [str(number) for number in (xid, *after) if number not in TEXTS]
    if unknown or not 0 <= index < len(BUSES):
        raise RcaError(f"there is no text for Xid {', '.join(unknown)}" if unknown else f"a host has {len(BUSES)} devices: `{index}`", hint=f"there is one for {', '.join(map(str, TEXTS))}")
    host, pid, now_us = scene.host(role, rank), scene.pid(role, rank), time.time_ns() // 1000
    bus = f"0000:{BUSES[index]}:00"
    texts = []
    for number in (xid, *after):
        owned, text = TEXTS[number]
        owner = f"pid={pid}, name={name[:15]}" if owned else "pid='<unknown>', name=<unknown>"
        texts.append(f"NVRM: Xid (PCI:{bus}): {number}, {owner}, {text.format(index=index)}")
        if number == 79:
            texts.append(f"NVRM: GPU {bus}.0: GPU has fallen off the bus.")
    lines = [kernel_log.written(text, now_us + 170 * step) for step, text in enumerate(texts)]
    kernel_log.add(scene.logs / "hosts" / host.name / "dmesg.log", lines)
    noted(scene, synthetic=True, host=host.name, pid=pid, xid=xid, bus_id=bus, device=index)
