"""RDMA port counters: Prometheus, dated `rdma statistic`, dated sysfs dumps."""

from __future__ import annotations

from coupling.simulate.telemetry import Recorder

NAMES = ("local_ack_timeout_err", "packet_seq_err", "out_of_sequence")
PORT = (("symbol_error", "symbol_error"), ("link_downed", "link_downed"), ("port_xmit_discards", "port_xmit_discards"), ("port_xmit_data", "port_xmit_data"), ("port_rcv_data", "port_rcv_data"))


def prom(rec: Recorder) -> None:
    names = (("node_infiniband_link_downed_total", "link_downed"), ("node_infiniband_symbol_error_total", "symbol_error"), ("node_infiniband_port_discards_transmitted_total", "port_xmit_discards"),
             ("node_infiniband_port_data_transmitted_bytes_total", "port_xmit_data"), ("node_infiniband_local_ack_timeout_err_total", "local_ack_timeout_err"), ("node_infiniband_packet_seq_err_total", "packet_seq_err"))  # fmt: skip
    rec.prom_json("infiniband_range.json", [(m, {"device": d, "port": "1", "instance": f"{host.ip}:9100", "nodename": host.name}, s, host, d) for host in rec.hosts() for d in rec.ports(host) for m, s in names])


def rdma_statistic(rec: Recorder) -> None:
    for host in rec.hosts():
        lines = rec.file(host, "rdma_stat.log")
        for t in rec.times(rec.rng.uniform(0, 9), rec.every * 3):
            lines.append(f"{rec.local(host, t, '%a %b %e %H:%M:%S')} {'UTC' if not rec.w.tz else 'CST' if rec.w.tz > 0 else 'PDT'} {rec.local(host, t, '%Y')}")
            for d in rec.ports(host):
                lines.append(f"link {d}/1 rx_write_requests {int(t - rec.w.start) * 900 + 10**7} rx_read_requests 0 " + " ".join(f"{n} {int(rec.value(n, host, d, t))}" for n in NAMES) + " rnr_nak_retry_err 0 implied_nak_seq_err 0")


def sysfs(rec: Recorder) -> None:
    for host in rec.hosts():
        lines = rec.file(host, "ib_counters.txt")
        for t in rec.times(rec.rng.uniform(0, 9), rec.every * 4):
            lines.append(f"==== {rec.local(host, t, '%Y-%m-%dT%H:%M:%S')} ====")
            for d in rec.ports(host):
                lines += [f"/sys/class/infiniband/{d}/ports/1/counters/{n}:{int(rec.value(s, host, d, t))}" for n, s in PORT]
                lines += [f"/sys/class/infiniband/{d}/ports/1/hw_counters/{n}:{int(rec.value(n, host, d, t))}" for n in NAMES]


FORMS = (prom, rdma_statistic, sysfs)
