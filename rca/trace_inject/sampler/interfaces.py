"""Ethernet interfaces: carrier, and frames lost or damaged. Source: Documentation/ABI/testing/sysfs-class-net, sysfs-class-net-statistics."""

from __future__ import annotations

from rca.trace_inject.sampler._place import Place, Values, subject

SYS = "/sys/class/net"
FILES = {
    "carrier": "net.carrier", "carrier_changes": "net.carrier_changes", "statistics/rx_errors": "net.rx_errors", "statistics/tx_errors": "net.tx_errors",
    "statistics/rx_dropped": "net.rx_drops", "statistics/tx_dropped": "net.tx_drops",
}  # fmt: skip
VIRTUAL = ("lo", "veth", "docker", "br-", "cali", "cni", "flannel", "dummy", "tun", "tap", "sit", "ip6tnl")
MOST = 32


def read(place: Place) -> Values:
    """Counters since boot, and states."""
    found: Values = {}
    for name in [n for n in place.names(SYS) if not n.startswith(VIRTUAL)][:MOST]:
        if place.number(f"{SYS}/{name}/flags") is None and not place.text(f"{SYS}/{name}/flags"):
            continue
        for file, quantity in FILES.items():
            value = place.number(f"{SYS}/{name}/{file}")
            if value is None and file == "carrier" and place.text(f"{SYS}/{name}/operstate").strip() == "down":
                value = 0  # of an interface that was switched off the kernel does not give its carrier
            if value is not None:
                found[subject(device=name), quantity] = value
    return found
