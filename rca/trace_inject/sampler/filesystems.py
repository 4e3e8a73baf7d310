"""Room on local file systems. Those of a network are passed over: asking one that hangs would hang the asker. Source: statvfs(3), proc_mounts(5)."""

from __future__ import annotations

import os

from rca.trace_inject.sampler._place import Place, Values, subject

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"})
HIDDEN = ("/proc", "/sys", "/run", "/dev/pts", "/etc", "/boot", "/snap")
MOST = 24


def read(place: Place) -> Values:
    """Bytes and inodes that users can have."""
    found: Values = {}
    mounts = {}
    for line in place.text("/proc/self/mounts").splitlines():
        words = line.split()
        if len(words) >= 3:
            mounts[words[1]] = words[2]  # of several at one place the last is seen
    for mount in [m for m, kind in mounts.items() if kind in LOCAL and not m.startswith(HIDDEN) and "\\" not in m][:MOST]:
        try:
            said = os.statvfs(place.path(mount))
        except OSError:
            continue
        if said.f_blocks >= 1024:
            about = subject(mount=mount)
            found[about, "fs.avail"], found[about, "fs.size"] = said.f_bavail * said.f_frsize, said.f_blocks * said.f_frsize
            if said.f_files:
                found[about, "fs.files_free"] = said.f_favail
    return found
