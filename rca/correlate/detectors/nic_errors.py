"""An RDMA port whose error counters rise inside the run, or whose link went down: which device of which host.

A link that went down once and counts no further errors came up again. Errors that rise when any peer closes (flush errors) and receivers that were not
ready say nothing of the port. Source: formats of rdma-statistic(8), perfquery(8), sysfs-class-infiniband.
"""

from __future__ import annotations

from collections import defaultdict

from rca.correlate.rises import Rise, rise
from rca.correlate.tracks import Track, Tracks, derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

#: Quantity -> what the least rise is that is more than the odd bit error.
ERRORS = {
    "rdma.rx_errors": 20, "rdma.tx_discards": 50, "rdma.symbol_errors": 20, "rdma.integrity": 5, "rdma.link_recovery": 2, "rdma.ack_timeout": 5,
    "rdma.sequence": 50, "rdma.request_errors": 2,
}  # fmt: skip
ACTIVE = 4  # state of a port


def detect(view: View) -> list[Event]:
    """Events of ports whose errors rose, and of links that were down."""
    known = tracks(view)
    rose: dict[tuple, list[Rise]] = defaultdict(list)
    downs: dict[tuple, Rise] = {}
    for name, least in ERRORS.items():
        for track in known.of(name):
            if found := rise(track, known, least):
                rose[_port(track)].append(found)
    for track in known.of("rdma.link_downed"):
        if found := rise(track, known, 1, factor=0.0):
            downs[_port(track)] = found
    events = [_errors(port, found) for port, found in sorted(rose.items(), key=lambda kv: str(kv[0]))]
    events += [_down(port, found, rose.get(port), known) for port, found in sorted(downs.items(), key=lambda kv: str(kv[0]))]
    return events + _states(known)


def _port(track: Track) -> tuple:
    return (track.host, track.about.get("device"), track.about.get("port"))


def _errors(port: tuple, found: list[Rise]) -> Event:
    first = min(found, key=lambda r: (r.at.time_ns if r.at.time_ns is not None else 0, -r.grown))
    worst = max(found, key=lambda r: r.grown)
    what = ", ".join(f"{r.track.metric} +{r.grown:.0f}" for r in sorted(found, key=lambda r: -r.grown)[:4])
    over = all(r.recovered for r in found)
    return derived(
        Kind.NIC_ERRORS_ROSE, f"error counters of {port[1] or 'a port'} on {port[0] or 'a host'} rose: {what}", first.track, first.at, first.before, worst.last,
        severity="warning", attrs={"grown": sum(r.grown for r in found), "counters": sorted({r.track.name for r in found}), "recovered": over, "seconds": max(r.seconds for r in found),
                                   "port": port[2]}, also=tuple(r.at.record for r in found[:3]),
    )  # fmt: skip


def _down(port: tuple, found: Rise, errors: list[Rise] | None, known: Tracks) -> Event:
    lasting = bool(errors) and not all(r.recovered for r in errors or ())
    stopped = _stopped(port, found, known)
    up = not lasting and not stopped
    text = f"the link of {port[1] or 'a port'} on {port[0] or 'a host'} went down" + (f" {found.grown:.0f} times" if found.grown > 1 else "") + (" and came up again" if up else "")
    return derived(
        Kind.LINK_DOWN, text, found.track, found.at, found.before, found.last,
        severity="info" if up and found.grown < 3 else "warning", attrs={"recovered": up, "times": int(found.grown), "port": port[2]},
    )  # fmt: skip


def _stopped(port: tuple, found: Rise, known: Tracks) -> bool:
    """Whether the port sent nothing any more after it went down."""
    for track in known.of("rdma.tx_bytes"):
        if _port(track) == port and found.at.time_ns is not None:
            later = [p.value for p in track.points if p.time_ns is not None and p.time_ns >= found.at.time_ns]
            return len(later) > 2 and later[-1] <= later[0]
    return False


def _states(known: Tracks) -> list[Event]:
    """Ports that were active and are not any more."""
    events = []
    for track in known.of("rdma.state", "net.carrier", "net.up"):
        good = ACTIVE if track.name == "rdma.state" else 1
        points = track.points
        if track.name == "net.carrier" and (track.about.get("device") or "").startswith(("lo", "docker", "veth", "virbr", "br-")):
            continue
        down = next((i for i in range(1, len(points)) if points[i].value != good and points[i - 1].value == good and known.inside(track, points[i])), None)
        if down is None:
            continue
        up = next((p for p in points[down:] if p.value == good), None)
        text = f"the link of {track.about.get('device') or 'a port'} on {track.host or 'a host'} went down" + (" and came up again" if up else "")
        events.append(derived(Kind.LINK_DOWN, text, track, points[down], points[down - 1], up or points[-1], severity="info" if up else "warning", attrs={"recovered": up is not None}))
    return events
