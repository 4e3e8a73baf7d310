"""Storage that answered late or not at all, became read-only or full inside the run: which mount, whose server, on which host.

Source: nfsiostat(8), node_exporter's filesystem, mountstats and pressure collectors (a hung mount is reported with device_error 1), vmstat(8).
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from rca.correlate.levels import Raised, raised
from rca.correlate.rises import Rise, rise
from rca.correlate.tracks import Point, Track, Tracks, derived, tracks
from rca.correlate.view import View
from rca.model import Event, Record
from rca.taxonomy import Kind

SLOW_FACTOR, SLOW_MS, HANG_MS = 10.0, 200.0, 15_000.0
BLOCKED_FACTOR, BLOCKED_LEAST = 5.0, 8.0  # tasks in state D
STALL_RATE = 0.3  # of the time in which everything waited for I/O
FULL_BYTES, FULL_SHARE, FULL_FILES = 64e6, 0.002, 50
NETWORKED = ("nfs", "ceph", "lustre", "gpfs", "beegfs", "fuse", "cifs", "glusterfs", "wekafs", "9p", "virtiofs")
PSEUDO = ("squashfs", "iso9660", "ramfs", "devtmpfs", "erofs", "autofs")
ASIDE = ("/boot", "/run", "/snap", "/sys", "/proc", "/var/lib/kubelet", "/var/lib/docker", "/etc")


def detect(view: View) -> list[Event]:
    """Events about mounts."""
    known = tracks(view)
    return _late(known) + _states(known, view) + _full(known, view)


def _late(known: Tracks) -> list[Event]:
    signs: dict[tuple, list[tuple[Track, Point | None, Point, Point, str, bool, bool]]] = defaultdict(list)
    for track in known.of("nfs.rtt_ms", "nfs.exe_ms", "disk.await_ms"):
        if found := _slow(track, known):
            hang = found.level >= HANG_MS
            said = f"{track.metric.replace('nfs_', '').replace('_ms', '')} {found.level:.0f} ms instead of {found.usual:.0f} ms"
            signs[_mount(track)].append((track, found.before, found.at, found.last, said, hang, found.recovered))
    means = _means(known)
    for track in means.of("nfs.rtt_ms"):
        if found := _slow(track, means):
            said = f"operations take {found.level:.0f} ms instead of {found.usual:.0f} ms"
            signs[_mount(track)].append((track, found.before, found.at, found.last, said, found.level >= HANG_MS, found.recovered))
    for track in known.of("nfs.timeouts", "nfs.retrans"):
        if rose := rise(track, known, 3, quiet=0.001):
            signs[_mount(track)].append((track, rose.before, rose.at, rose.last, f"{track.metric} +{rose.grown:.0f}", track.name == "nfs.timeouts", rose.recovered))
    for track in known.of("fs.error"):
        change = _turned(track, known)
        if change is not None and _networked(track):
            before, at, back = change
            signs[_mount(track)].append((track, before, at, back or track.points[-1], "the mount does not answer", True, back is not None))
    stalls = {t.host: r for t in known.of("psi.io_full_s") if (r := rise(t, known, 5, quiet=STALL_RATE))}
    blocked = {t.host: r for t in known.of("cpu.blocked") if (r := raised(t, known, BLOCKED_FACTOR, BLOCKED_LEAST))}
    by_host: dict[tuple, list] = defaultdict(list)
    for (host, mount), found in signs.items():
        by_host[host, mount] = found
    events = [_waits(host, mount, found, stalls.get(host), blocked.get(host)) for (host, mount), found in sorted(by_host.items(), key=lambda kv: str(kv[0]))]
    told = {host for host, _ in by_host}
    for host in sorted({*stalls, *blocked} - told, key=str):
        events.append(_stalled(host, stalls.get(host), blocked.get(host)))
    return _alike(events, {t.host for t in known.of("nfs.rtt_ms", "fs.error", "psi.io_full_s", "cpu.blocked") if t.host})


def _mount(track: Track) -> tuple:
    return (track.host, track.about.get("mount") or track.about.get("server") or track.about.get("device"))


def _means(known: Tracks) -> Tracks:
    """Mean answer times, from counters of operations and of the time that they took."""
    requests = {(t.host, t.device): {p.time_ns: p.value for p in t.points} for t in known.of("nfs.requests")}
    made: list[Track] = []
    for track in known.of("nfs.response_s"):
        counts = requests.get((track.host, track.device), {})
        both = [(p, counts[p.time_ns]) for p in track.points if p.time_ns in counts]
        points = [
            b._replace(value=(b.value - a.value) * 1000 / (m - n)) for (a, n), (b, m) in pairwise(both) if m > n and b.value >= a.value
        ]  # fmt: skip
        if len(points) > 1:
            made.append(Track(track.host, track.about, "nfs.rtt_ms", points, track.judged))
    return Tracks({"nfs.rtt_ms": made}, known.window)


def _slow(track: Track, known: Tracks) -> Raised | None:
    found = raised(track, known, SLOW_FACTOR, SLOW_MS, least=2)
    return found or (once if (once := raised(track, known, SLOW_FACTOR, HANG_MS, least=1)) else None)


def _turned(track: Track, known: Tracks) -> tuple[Point, Point, Point | None] | None:
    """A state that went from 0 to 1 inside the window: the points before, at, and of its end."""
    points = track.points
    for i in range(1, len(points)):
        if points[i - 1].value == 0 and points[i].value > 0 and known.inside(track, points[i]):
            return points[i - 1], points[i], next((p for p in points[i:] if p.value == 0), None)
    return None


def _networked(track: Track) -> bool:
    kind, server = str(track.about.get("fstype") or ""), str(track.about.get("server") or "")
    return kind.startswith(NETWORKED) or ":/" in server or not kind


def _waits(host: str | None, mount: str | None, found: list[tuple], stall: Rise | None, blocked: Raised | None) -> Event:
    track, before, at, last, *_ = min(found, key=lambda f: (f[2].time_ns if f[2].time_ns is not None else 0))
    hang = any(f[5] for f in found)
    said = [f[4] for f in found[:3]]
    more: list[Record] = [f[2].record for f in found[:3]]
    if stall:
        said.append(f"everything waited for I/O for {stall.grown:.0f} s")
        more.append(stall.at.record)
    if blocked:
        said.append(f"{blocked.level:.0f} tasks in state D")
        more.append(blocked.at.record)
    over = all(f[6] for f in found)
    server = next((f[0].about["server"] for f in found if f[0].about.get("server")), None)
    attrs: dict[str, Any] = {"recovered": over, "server": server, "mount": track.about.get("mount")}
    if last.time_ns is not None and at.time_ns is not None:
        attrs["seconds"] = (last.time_ns - at.time_ns) / 1e9
    return derived(Kind.STORAGE_HANG if hang else Kind.STORAGE_SLOW, f"{mount or 'storage'} on {host or 'a host'} {'hangs' if hang else 'is slow'}: {', '.join(dict.fromkeys(said))}",
                   track, at, before, last, severity="warning", attrs=attrs, also=tuple(more))  # fmt: skip


def _stalled(host: str | None, stall: Rise | None, blocked: Raised | None) -> Event:
    """Nobody says which mount: everything waits for I/O, or many tasks are in state D."""
    if stall is not None:
        more = (blocked.at.record,) if blocked else ()
        return derived(Kind.STORAGE_SLOW, f"everything on {host or 'a host'} waited for I/O for {stall.grown:.0f} s", stall.track, stall.at, stall.before, stall.last,
                       attrs={"recovered": stall.recovered}, also=more)  # fmt: skip
    assert blocked is not None
    return derived(Kind.STORAGE_SLOW, f"{blocked.level:.0f} tasks on {host or 'a host'} are in state D", blocked.track, blocked.at, blocked.before, blocked.last, attrs={"recovered": blocked.recovered})


def _alike(events: list[Event], hosts: set[str]) -> list[Event]:
    """One event without a host where most hosts wait for the same server: then it is the server's."""
    out: list[Event] = []
    for path in sorted({e.path for e in events}, key=str):
        same = [e for e in events if e.path == path]
        bad = {e.host for e in same if e.host}
        if path is None or len(hosts) < 3 or len(bad) < 0.6 * len(hosts):
            out += same
            continue
        first = min(same, key=lambda e: (e.time_ns if e.time_ns is not None else 2**62))
        text = f"{path} {'hangs' if first.kind == Kind.STORAGE_HANG else 'is slow'} on {len(bad)} of {len(hosts)} hosts"
        out.append(first.but(host=None, text=text, attrs={**first.attrs, "hosts": sorted(bad)}, also=tuple(r for e in same for r in e.also[:1])[:6]))
    return out


def _used(track: Track, view: View) -> bool:
    """Whether the job is known to use the mount, or a network file system that it may well use."""
    mount = str(track.about.get("mount") or "")
    if any(e.path and (e.path == mount or e.path.startswith(mount.rstrip("/") + "/")) for e in view.events if mount not in ("", "/")):
        return True
    return str(track.about.get("fstype") or "").startswith(NETWORKED)


def _states(known: Tracks, view: View) -> list[Event]:
    events = []
    for track in known.of("fs.readonly"):
        change = _turned(track, known)
        if change is None or str(track.about.get("fstype") or "") in PSEUDO:
            continue
        before, at, back = change
        events.append(derived(
            Kind.READ_ONLY, f"{track.about.get('mount') or 'a file system'} on {track.host or 'a host'} became read-only", track, at, before, back,
            severity="error" if _used(track, view) and back is None else "warning", attrs={"recovered": back is not None, "server": track.about.get("server")},
        ))  # fmt: skip
    return events


def _refused(mount: str, view: View) -> bool:
    """Whether a process was told that there is no room: what it met, and when, says more than when a figure became small."""
    return any(e.kind == Kind.NO_SPACE and e.severity == "error" and e.path and e.path.startswith(mount.rstrip("/") + "/") for e in view.events)


def _full(known: Tracks, view: View) -> list[Event]:
    sizes = {(t.host, t.about.get("mount")): t.points[-1].value for t in known.of("fs.size")}
    found: dict[tuple, Event] = {}
    for track in known.of("fs.avail", "fs.files_free"):
        mount = str(track.about.get("mount") or "")
        if str(track.about.get("fstype") or "") in PSEUDO or mount.startswith(ASIDE) or len(track.points) < 2:
            continue
        inodes = track.name == "fs.files_free"
        most = max(p.value for p in track.points)
        limit = FULL_FILES if inodes else max(FULL_BYTES, FULL_SHARE * sizes.get((track.host, mount), 0.0))
        index = next((i for i in range(1, len(track.points)) if track.points[i].value <= limit < track.points[i - 1].value and most > 4 * limit and known.inside(track, track.points[i])), None)
        if index is None or (not inodes and _refused(mount, view)):
            continue
        at, back = track.points[index], next((p for p in track.points[index:] if p.value > 2 * limit), None)
        shm = mount == "/dev/shm"
        text = f"{mount or 'a file system'} on {track.host or 'a host'} has {at.value:.0f} {'inodes' if inodes else 'bytes'} left"
        severity = "error" if _used(track, view) or shm else "warning"
        key = (mount, track.about.get("server")) if ":/" in str(track.about.get("server")) else (track.host, mount)
        event = derived(Kind.SHM_EXHAUSTED if shm else Kind.NO_SPACE, text, track, at, track.points[index - 1], severity=severity if back is None or shm else "warning",
                        attrs={"recovered": back is not None, "server": track.about.get("server"), "inodes": inodes})  # fmt: skip
        if key in found:  # one server, seen from several hosts
            event = found[key].but(host=found[key].host if found[key].host == event.host else None, also=found[key].also + event.also[:1])
        found[key] = event
    return [found[key] for key in sorted(found, key=str)]
