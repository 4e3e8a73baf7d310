"""Ethernet and TCP counters: node_exporter scrapes, Prometheus, sar -n DEV,EDEV,ETCP, and dated `ip -s link` with `nstat`."""

from __future__ import annotations

import itertools

from coupling.simulate.telemetry import Recorder
from coupling.simulate.world import Host


def _rows(rec: Recorder, host: Host) -> list[tuple[str, str, str]]:
    """(metric, series, device)."""
    names = (("node_network_transmit_bytes_total", "tx_bytes"), ("node_network_receive_bytes_total", "rx_bytes"), ("node_network_transmit_drop_total", "tx_drop"), ("node_network_receive_drop_total", "rx_drop"),
             ("node_network_receive_errs_total", "rx_err"), ("node_network_carrier_changes_total", "carrier_changes"))  # fmt: skip
    return [(m, s, d) for m, s in names for d in rec.nics(host)] + [("node_netstat_Tcp_RetransSegs", "tcp_retrans", ""), ("node_netstat_Tcp_OutSegs", "tcp_out", "")]


def node_text(rec: Recorder) -> None:
    for host in rec.hosts():
        rec.scrapes(host, "node_net.prom", [(m, f'device="{d}"' if d else "", s, d) for m, s, d in _rows(rec, host)], rec.every)


def node_json(rec: Recorder) -> None:
    rec.prom_json("network_range.json", [(m, {"instance": f"{host.name}:9100", "job": "node", **({"device": d} if d else {})}, s, host, d) for host in rec.hosts() for m, s, d in _rows(rec, host)])


def sar(rec: Recorder) -> None:
    for host in rec.hosts():
        for day, times in rec.days(host):
            _sar_day(rec, host, day, times)


def _sar_day(rec: Recorder, host: Host, day: str, times: list[float]) -> None:
    lines = rec.file(host, f"sar_net_{day}.txt")
    lines += [f"Linux 5.15.0-105-generic ({host.name.split('.')[0]}) \t{rec.local(host, times[0], '%m/%d/%Y')} \t_x86_64_\t({host.cores} CPU)", ""]
    first = rec.local(host, times[0], "%H:%M:%S")

    def rate(name: str, device: str, a: float, b: float) -> float:
        return max(0.0, rec.value(name, host, device, b) - rec.value(name, host, device, a)) / (b - a)

    pairs = list(itertools.pairwise(times))
    lines.append(f"{first}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s   rxcmp/s   txcmp/s  rxmcst/s   %ifutil")
    for a, b in pairs:
        for d in rec.nics(host):
            rx, tx = rate("rx_bytes", d, a, b), rate("tx_bytes", d, a, b)
            lines.append(f"{rec.local(host, b, '%H:%M:%S')}  {d:>11} {rx / 1400:9.2f} {tx / 1400:9.2f} {rx / 1024:9.2f} {tx / 1024:9.2f}      0.00      0.00      0.00      0.70")
    lines += ["", f"{first}        IFACE   rxerr/s   txerr/s    coll/s  rxdrop/s  txdrop/s  txcarr/s  rxfram/s  rxfifo/s  txfifo/s"]
    for a, b in pairs:
        for d in rec.nics(host):
            lines.append(f"{rec.local(host, b, '%H:%M:%S')}  {d:>11} {rate('rx_err', d, a, b):9.2f}      0.00      0.00 {rate('rx_drop', d, a, b):9.2f} {rate('tx_drop', d, a, b):9.2f}      0.00      0.00      0.00      0.00")
    lines += ["", f"{first}     atmptf/s  estres/s retrans/s isegerr/s   orsts/s"]
    for a, b in pairs:
        lines.append(f"{rec.local(host, b, '%H:%M:%S')}         0.10      0.05 {rate('tcp_retrans', '', a, b):9.2f}      0.00      0.30")


def ip_link(rec: Recorder) -> None:
    for host in rec.hosts():
        lines = rec.file(host, "netcounters.log")
        for t in rec.times(rec.rng.uniform(0, 9), rec.every * 3):
            lines.append(f"### {rec.local(host, t, '%Y-%m-%d %H:%M:%S')}")
            for i, d in enumerate(rec.nics(host)):
                v = {n: int(rec.value(n, host, d, t)) for n in ("rx_bytes", "tx_bytes", "rx_err", "rx_drop", "tx_drop")}
                lines += [
                    f"{i + 2}: {d}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000", f"    link/ether 0c:42:a1:{i:02x}:5e:10 brd ff:ff:ff:ff:ff:ff",
                    "    RX:     bytes   packets errors dropped  missed   mcast", f"    {v['rx_bytes']} {v['rx_bytes'] // 1400} {v['rx_err']} {v['rx_drop']} 0 118",
                    "    TX:     bytes   packets errors dropped carrier collsns", f"    {v['tx_bytes']} {v['tx_bytes'] // 1400} 0 {v['tx_drop']} 0 0",
                ]  # fmt: skip
            lines += ["#kernel", f"TcpOutSegs                      {int(rec.value('tcp_out', host, '', t))}             0.0", f"TcpRetransSegs                  {int(rec.value('tcp_retrans', host, '', t))}               0.0"]


FORMS = (node_text, node_json, sar, ip_link)
