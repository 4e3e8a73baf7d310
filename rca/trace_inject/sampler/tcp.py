"""TCP segments sent again, and time-outs: /proc/net/snmp, /proc/net/netstat. Source: proc(5), RFC 4022 (tcpRetransSegs)."""

from __future__ import annotations

from rca.trace_inject.sampler._place import Place, Values

FILES = (("/proc/net/snmp", "Tcp:", "RetransSegs", "net.retransmits"), ("/proc/net/netstat", "TcpExt:", "TCPTimeouts", "net.tcp_timeouts"))


def read(place: Place) -> Values:
    """Counters since boot, of this network namespace."""
    found: Values = {}
    for path, table, column, name in FILES:
        rows = [line.split() for line in place.text(path).splitlines() if line.startswith(table)]
        if len(rows) == 2 and column in rows[0]:
            found["", name] = int(rows[1][rows[0].index(column)])
    return found
