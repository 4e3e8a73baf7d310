"""NFS as its clients see it: operations, answer times, time-outs, requests sent again. Source: nfs(5), /proc/self/mountstats (statvers 1.0 and 1.1)."""

from __future__ import annotations

import re

from rca.trace_inject.sampler._place import Place, Values, subject

DEVICE = re.compile(r"device (\S{1,200}) mounted on (\S{1,300}) with fstype (\w{1,20})")
OPERATION = re.compile(r"\s+(READ|WRITE|COMMIT|OPEN|GETATTR): (\d[\d ]{8,300})$")


def read(place: Place) -> Values:
    """Counters since the mount, by operation."""
    found: Values = {}
    server = mount = ""
    for line in place.text("/proc/self/mountstats").splitlines():
        if match := DEVICE.match(line):
            server, mount = (match[1], match[2]) if match[3].startswith("nfs") else ("", "")
        elif mount and (match := OPERATION.match(line)):
            numbers = [int(n) for n in match[2].split()]
            if len(numbers) >= 8 and numbers[0]:
                about = subject(mount=mount, server=server, operation=match[1])
                found[about, "nfs.requests"] = numbers[0]
                found[about, "nfs.retrans"] = max(0, numbers[1] - numbers[0])
                found[about, "nfs.timeouts"] = numbers[2]
                found[about, "nfs.response_s"] = numbers[6] / 1e3
    return found
