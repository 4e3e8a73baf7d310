"""Ports of RDMA adapters: state and counters. Source: Documentation/ABI/stable/sysfs-class-infiniband, and the hw_counters of mlx5."""

from __future__ import annotations

from rca.trace_inject.sampler._place import Place, Values, subject

SYS = "/sys/class/infiniband"
FILES = {
    "state": "rdma.state", "phys_state": "rdma.phys_state",
    "counters/link_downed": "rdma.link_downed", "counters/link_error_recovery": "rdma.link_recovery", "counters/port_rcv_errors": "rdma.rx_errors",
    "counters/port_xmit_discards": "rdma.tx_discards", "counters/symbol_error": "rdma.symbol_errors", "counters/local_link_integrity_errors": "rdma.integrity",
    "hw_counters/local_ack_timeout_err": "rdma.ack_timeout", "hw_counters/packet_seq_err": "rdma.sequence", "hw_counters/req_cqe_error": "rdma.request_errors",
}  # fmt: skip
WORDS = 4  # `port_xmit_data` counts words of four bytes
MOST = 32


def read(place: Place) -> Values:
    """Counters since the driver was loaded, and states."""
    found: Values = {}
    for device in place.names(SYS)[:MOST]:
        for port in place.names(f"{SYS}/{device}/ports"):
            here, about = f"{SYS}/{device}/ports/{port}", subject(device=device, port=port)
            for file, quantity in FILES.items():
                value = place.number(f"{here}/{file}")
                if value is not None:
                    found[about, quantity] = value
            if (sent := place.number(f"{here}/counters/port_xmit_data")) is not None:
                found[about, "rdma.tx_bytes"] = sent * WORDS
    return found
