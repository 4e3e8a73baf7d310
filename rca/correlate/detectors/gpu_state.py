"""GPUs that slowed down, and GPUs that vanished from the series while the others of their host stayed.

A power cap set by software is no fault. Source: nvidia-smi(1) "Clocks Event Reasons", nvml.h `nvmlClocksEventReason*` bits.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

from rca.correlate.tracks import Point, Track, Tracks, derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

REASONS = {"gpu.slow_hw": "hw_slowdown", "gpu.slow_hot_hw": "hw_thermal_slowdown", "gpu.slow_hot_sw": "sw_thermal_slowdown", "gpu.slow_brake": "hw_power_brake_slowdown"}
BITS = {0x8: "hw_slowdown", 0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown"}
ALWAYS_SHOWN = ("gpu.util", "gpu.mem_used", "gpu.temperature", "gpu.xid", "gpu.sm_clock")
GONE_INTERVALS, OF_SPAN, FEW = 3, 20, 10


def detect(view: View) -> list[Event]:
    """Slowed and vanished devices."""
    known = tracks(view)
    slowed: dict[tuple, list[tuple[Track, Point, Point, str, Point | None]]] = defaultdict(list)
    for track in known.of(*REASONS, "gpu.slow_mask"):
        for before, at in zip(track.points, track.points[1:], strict=False):
            reason = _reason(track, before, at)
            if reason and known.inside(track, at):
                back = next((p for p in track.points[track.points.index(at) :] if not _slow(track, p)), None)
                slowed[track.host, track.about.get("gpu", track.about.get("bus_id"))].append((track, before, at, reason, back))
                break
    return [_slowed(found) for _, found in sorted(slowed.items(), key=lambda kv: str(kv[0]))] + _gone(known)


def _reason(track: Track, before: Point, at: Point) -> str | None:
    if track.name == "gpu.slow_mask":
        new = int(at.value) & ~int(before.value)
        return next((said for bit, said in BITS.items() if new & bit), None)
    return REASONS[track.name] if at.value > 0 and before.value == 0 else None


def _slow(track: Track, point: Point) -> bool:
    return bool(int(point.value) & sum(BITS)) if track.name == "gpu.slow_mask" else point.value > 0


def _slowed(found: list[tuple]) -> Event:
    track, before, at, _, back = min(found, key=lambda f: (f[2].time_ns if f[2].time_ns is not None else 0))
    reasons = sorted({f[3] for f in found})
    reason = next((r for r in reasons if "thermal" in r or "brake" in r), reasons[0])
    where = f"GPU {track.about.get('gpu', track.about.get('bus_id', '?'))} of {track.host or 'a host'}"
    return derived(Kind.DEVICE_THROTTLED, f"{where} slowed its clocks: {', '.join(reasons)}", track, at, before, back, attrs={"reason": reason, "recovered": back is not None})


def _gone(known: Tracks) -> list[Event]:
    """A device whose samples end while its siblings' go on."""
    by_host: dict[tuple, dict[tuple, Track]] = defaultdict(dict)
    for track in known.of(*ALWAYS_SHOWN):
        if track.points[-1].time_ns is not None:
            by_host[track.host, track.metric][track.device] = track
    gone: dict[tuple, Event] = {}
    for (host, _), devices in sorted(by_host.items(), key=lambda kv: str(kv[0])):
        times = sorted({p.time_ns for t in devices.values() for p in t.points if p.time_ns is not None})
        gaps = sorted(b - a for a, b in itertools.pairwise(times) if b - a > 10**9)
        if len(devices) < 2 or not gaps:
            continue
        end, interval = times[-1], max(gaps[len(gaps) // 2] if len(gaps) > FEW else 0, (times[-1] - times[0]) // OF_SPAN)  # of a level that stays only the ends were kept
        early = [t for t in devices.values() if (end - (t.points[-1].time_ns or end)) > GONE_INTERVALS * interval and known.inside(t, t.points[-1])]
        if early and len(early) < len(devices):
            for track in early:
                where = f"GPU {track.about.get('gpu', track.about.get('bus_id', '?'))} of {host or 'a host'}"
                event = derived(Kind.DEVICE_LOST, f"{where} vanished from the series, its siblings did not", track, track.points[-1], attrs={"reason": "vanished"})
                gone.setdefault((host, track.device), event)
    return list(gone.values())
