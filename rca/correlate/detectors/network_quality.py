"""Hosts whose network got bad inside the run: TCP sends again, frames are dropped or damaged, echo requests are lost or late.

Judged against the host's own past and the other hosts: whoever talks to the bad host shows a little of it too, so only rises of the order of the
largest count. Where most hosts rise alike, it is the network and no host of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rca.correlate.levels import Raised, apart, raised
from rca.correlate.rises import Rise, Step, rise, standing_out, steps
from rca.correlate.tracks import Point, Track, Tracks, derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

#: Quantity -> (least rise, rate per second that a healthy host may have).
LOSS = {
    "net.retransmits": (100, 1.0), "net.rx_errors": (50, 0.05), "net.tx_errors": (20, 0.02), "net.rx_drops": (200, 1.0), "net.tx_drops": (100, 0.5),
    "net.tcp_timeouts": (50, 0.2), "net.ping_lost": (3, 0.0),
}  # fmt: skip
FACTOR, RTT_FACTOR, RTT_FLOOR_MS = 10.0, 10.0, 5.0
EVERYWHERE = 0.6  # of at least so many hosts: then it is the network
HOSTS_LEAST = 3
FEW = 3  # of each, segments sent again and time-outs of TCP while one answer is missing: RFC 6298 gives up a second after the first, and doubles
SECOND_NS = 10**9
SILENT_INTERVALS, SILENT_NS = 10, 30 * 10**9
MOST_WAYS = 0.8  # to and from a host must be silent for it to be gone
VAIN = 3  # requests that nobody answered until the end


def detect(view: View) -> list[Event]:
    """Loss and latency per host."""
    known = tracks(view)
    rose: dict[str, list[Rise]] = {}
    for name, (least, quiet) in LOSS.items():
        every = [r for t in known.of(name) if _physical(t) and (r := rise(t, known, least, FACTOR, quiet))]
        rose[name] = standing_out(every)
    late = apart([r for t in known.of("net.rtt_ms") if (r := raised(t, known, RTT_FACTOR, RTT_FLOOR_MS))])
    ends = _ends(known, [r.track for r in (*rose["net.ping_lost"], *late)])
    by_host: dict[str | None, list[Rise]] = defaultdict(list)
    for found in rose.values():
        for r in found:
            by_host[ends.get(id(r.track), r.track.host)].append(r)
    hosts = {t.host for t in known.of(*LOSS, "net.rtt_ms") if t.host}
    events = _merged(hosts, [_loss(host, found) for host, found in sorted(by_host.items(), key=lambda kv: str(kv[0]))], "the network loses packets")
    events += _merged(hosts, [_late(r, ends.get(id(r.track), r.track.host)) for r in _first_each(late, ends)], "round trips take many times as long")
    if not any(e.host for e in events):
        events += _few(view, known)
    return events + _silent(known) + _summaries(known)


def _few(view: View, known: Tracks) -> list[Event]:
    """Loss where little is sent: TCP at the host of a callee whose answer did not come had to send again, and at no other host that was called.

    The callers' hosts show the same, as the other end of the same connections. A link that is down is told by its carrier.
    """
    missed = [e for e in view.events if e.kind in (Kind.RPC_TIMEOUT, Kind.RPC_FAILED) and e.stage != "cleanup" and e.attrs.get("answer") in ("ok", "unknown") and _span(e)]
    hosts = {about["host"] for e in missed if isinstance(about := e.attrs.get("about"), dict) and about.get("host")} - {e.host for e in missed}
    down = {t.host for t in known.of("net.carrier") if any(p.value == 0 for p in t.points)}
    grown: dict[str | None, list[tuple[float, Track]]] = defaultdict(list)
    waits = [(start - SECOND_NS, end + SECOND_NS) for e in missed for start, end in (_span(e),)]  # clocks, and a sampler that looks once a second
    for track in known.of("net.retransmits", "net.tcp_timeouts"):
        added = sum(s.added for s in steps(track) if known.inside(track, s.at) and _within(s, waits))
        if added >= FEW:
            grown[track.host].append((added, track))
    callers = {e.host for e in missed}
    found = []
    for host in sorted(h for h in hosts - down if h in grown):
        others = [sum(n for n, _ in both) for other, both in grown.items() if other not in callers | {host}]
        if len(grown[host]) < 2 or any(n >= 0.5 * sum(a for a, _ in grown[host]) for n in others):
            continue
        first = min((s for _, t in grown[host] for s in steps(t) if s.added and _within(s, waits)), key=lambda s: s.at.time_ns or 0)
        said = ", ".join(f"{t.metric} +{n:.0f}" for n, t in grown[host])
        attrs = {"grown": sum(n for n, _ in grown[host]), "counters": sorted({t.name for _, t in grown[host]}), "recovered": False, "few": True}
        found.append(derived(Kind.PACKET_LOSS, f"{host} loses packets of the answers that did not come: {said}", grown[host][0][1], first.at, first.before, host=host, attrs=attrs))
    return found


def _span(event: Event) -> tuple[int, int] | None:
    """From when to when a caller waited, by its own trace."""
    start, end = event.attrs.get("started_ns"), event.attrs.get("ended_ns")
    return (start, end) if isinstance(start, int) and isinstance(end, int) and start < end else None


def _within(step: Step, waits: list[tuple[int, int]]) -> bool:
    """Whether a counter rose while somebody waited."""
    return any(start <= (step.at.time_ns or 0) and (step.before.time_ns or 0) <= end for start, end in waits)


def _physical(track: Track) -> bool:
    """Whether it counts what goes over a wire."""
    return not str(track.about.get("device") or "").startswith(("lo", "docker", "veth", "virbr", "br-", "cni", "flannel", "cali", "tunl"))


def _loss(host: str | None, found: list[Rise]) -> Event:
    first = min(found, key=lambda r: (r.at.time_ns if r.at.time_ns is not None else 0))
    said = ", ".join(f"{r.track.metric} +{r.grown:.0f}" for r in sorted(found, key=lambda r: -r.grown)[:4])
    nic = next((r.track.about["device"] for r in found if r.track.about.get("device")), None)
    over = all(r.recovered for r in found)
    return derived(
        Kind.PACKET_LOSS, f"{host or 'a host'} loses packets: {said}", first.track, first.at, first.before, max(found, key=lambda r: r.grown).last, nic=nic, host=host,
        attrs={"grown": sum(r.grown for r in found), "counters": sorted({r.track.name for r in found}), "recovered": over, "seconds": max(r.seconds for r in found)},
        also=tuple(r.at.record for r in found[:4]),
    )  # fmt: skip


def _ends(known: Tracks, bad: list[Track]) -> dict[int, str | None]:
    """Which end of a bad way is to blame: the host that most of the bad ways have in common, whether it measured them or was asked.

    A host that asks others counts only where its ways to most of them are bad: else those others are. Between the two ends of a single
    bad way the one that was asked is named, as before it was known who asked.
    """
    ways: dict[str, set[str | None]] = defaultdict(set)
    for track in known.of("net.rtt_ms", "net.ping_lost", "net.loss_percent"):
        if track.about.get("observer"):
            ways[track.about["observer"]].add(track.host)
    pairs = {id(t): (t.about["observer"], t.host) for t in bad if t.about.get("observer") and t.host and t.about["observer"] != t.host}
    asked: dict[str, set[str | None]] = defaultdict(set)
    for observer, target in pairs.values():
        asked[observer].add(target)
    asking = {o for o, targets in asked.items() if len(ways[o]) > 1 and len(targets) >= EVERYWHERE * len(ways[o])}
    ends: dict[int, str | None] = {}
    while pairs:
        partners: dict[str, set[str]] = defaultdict(set)
        for observer, target in pairs.values():
            partners[target].add(observer)
            if observer in asking:
                partners[observer].add(target)
        targets = {target for _, target in pairs.values()}
        blamed = max(sorted(partners), key=lambda h: (len(partners[h]), len(partners[h]) > 1 and h in asking, h in targets))
        covered = [k for k, (observer, target) in pairs.items() if target == blamed or (observer == blamed and blamed in asking)]
        ends |= dict.fromkeys(covered, blamed)
        pairs = {k: p for k, p in pairs.items() if k not in ends}
    return ends


def _first_each(late: list[Raised], ends: dict[int, str | None]) -> list[Raised]:
    """One raised level per host to blame: the highest."""
    best: dict[str | None, Raised] = {}
    for found in sorted(late, key=lambda r: -r.level):
        best.setdefault(ends.get(id(found.track), found.track.host), found)
    return list(best.values())


def _late(found: Raised, host: str | None) -> Event:
    way = f"to {found.track.host or 'a host'}" if host == found.track.host else f"from {host}"
    return derived(
        Kind.LATENCY_ROSE, f"round trips {way} take {found.level:.0f} ms instead of {found.usual:.2g} ms", found.track, found.at, found.before, found.last, host=host,
        attrs={"level_ms": found.level, "usual_ms": found.usual, "recovered": found.recovered},
    )  # fmt: skip


def _merged(hosts: set[str], events: Sequence[Event], said: str) -> list[Event]:
    """The events of single hosts; one without a host where most hosts show the same."""
    bad = {e.host for e in events if e.host}
    if len(hosts) < HOSTS_LEAST or len(bad) < EVERYWHERE * len(hosts):
        return list(events)
    first = min(events, key=lambda e: (e.time_ns if e.time_ns is not None else 2**62))
    text = f"{said} on {len(bad)} of {len(hosts)} hosts alike"
    return [first.but(host=None, nic=None, text=text, attrs={**first.attrs, "hosts": sorted(bad)}, also=tuple(r for e in events for r in e.also[:1])[:6])]


def _silent(known: Tracks) -> list[Event]:
    """A host that stopped answering: it was asked on in vain, or others went on to answer."""
    answered = [t for t in known.of("net.rtt_ms") if len(t.points) > 2 and t.points[-1].time_ns is not None]
    lost = {(t.host, t.about.get("observer")): t for t in known.of("net.ping_lost")}
    stopped: list[tuple[Track, str]] = []
    for track in answered:
        last = track.points[-1].time_ns or 0
        spacing = (last - (track.points[0].time_ns or last)) // max(1, len(track.points) - 1)
        asked = lost.get((track.host, track.about.get("observer")))
        before = max((p.value for p in asked.points if (p.time_ns or 0) <= last), default=0.0) if asked else 0.0
        vain = [p for p in asked.points if (p.time_ns or 0) > last] if asked else []
        longer = [t for t in answered if t is not track and (t.points[-1].time_ns or 0) - last > max(SILENT_INTERVALS * spacing, SILENT_NS)]
        if not known.inside(track, track.points[-1]):
            continue
        if len(vain) >= VAIN and before < len(vain) / 2:  # a way that loses much now and then loses some in a row, too
            stopped.append((track, f"{track.host} answered no more echo requests, {len(vain)} of them"))
        elif longer and len(longer) >= (len(answered) - 1) / 2:
            stopped.append((track, f"{track.host} answered no more echo requests, {longer[0].host} went on to"))
    ends = _ends(known, [track for track, _ in stopped])
    events: dict[str | None, Event] = {}
    for track, text in stopped:
        host = ends.get(id(track), track.host)
        ways = [t for t in answered if host in (t.host, t.about.get("observer"))]
        if sum(any(t is s for s, _ in stopped) for t in ways) < MOST_WAYS * len(ways):
            continue  # it answers others: its ways lose much, but it is there
        event = derived(Kind.UNREACHABLE, text, track, track.points[-1], host=host, severity="error", attrs={"recovered": False})
        if host in events:
            event = events[host].but(also=tuple(dict.fromkeys((*events[host].also, *event.also)))[:6])
        events[host] = event
    return list(events.values())


def _summaries(known: Tracks) -> list[Event]:
    """Loss that a summary (`ping`, `mtr`) states, of one host among several."""
    stated = known.of("net.loss_percent")
    worst = max((max(p.value for p in t.points) for t in stated), default=0.0)
    found = []
    for track in stated:
        point = max(track.points, key=lambda p: p.value)
        calm = [t for t in stated if t.host != track.host and max(p.value for p in t.points) <= 1.0]
        if 2.0 <= point.value >= 0.5 * worst and known.inside(track, point):
            found.append((track, point, calm))
    ends = _ends(known, [track for track, _, _ in found])
    others: dict[str | None, set[str | None]] = defaultdict(set)
    for track, _, _ in found:
        host, observer = ends.get(id(track), track.host), track.about.get("observer")
        others[host].add(observer if host == track.host else track.host)
    events = []
    gone: dict[str | None, Event] = {}
    for track, point, calm in found:
        host = ends.get(id(track), track.host)
        if _cut_off(track, point):
            event = _gone(host, track, point)
            known_gone = gone.get(host)
            gone[host] = event if known_gone is None else min(known_gone, event, key=lambda e: e.time_ns or 0).but(also=tuple(dict.fromkeys((*known_gone.also, *event.also)))[:6])
            continue
        if calm or len(others[host]) > 1:
            way = "to" if host == track.host else "from"
            events.append(derived(Kind.PACKET_LOSS, f"{point.value:.0f} % of the packets {way} {host} are lost", track, point, host=host, attrs={"percent": point.value}))
    return [*gone.values(), *events]


def _cut_off(track: Track, point: Point) -> bool:
    """Whether a way that carried something carries nothing from here to the end."""
    later = [p.value for p in track.points if (p.time_ns or 0) >= (point.time_ns or 0)]
    return point.value >= 100.0 and len(later) < len(track.points) and min(later) >= 100.0


def _gone(host: str | None, track: Track, point: Point) -> Event:
    before = [p for p in track.points if (p.time_ns or 0) < (point.time_ns or 0)]
    way = "to" if host == track.host else "from"
    return derived(Kind.UNREACHABLE, f"no packet {way} {host} arrives any more", track, point, before[-1] if before else None, host=host, severity="error", attrs={"recovered": False, "percent": 100.0})
