"""GPU gauges and counters that changed inside the run: uncorrectable memory errors, failed remaps, the last Xid, NVLink errors.

A sticky value from before the run is nothing: `DCGM_FI_DEV_XID_ERRORS` keeps the last number until the exporter restarts, aggregate counts live as long as
the device. Corrected errors are a note. Source: NVIDIA Xid catalogue, dcgm-exporter counters, nvidia-smi(1).
"""

from __future__ import annotations

from collections import defaultdict

from rca.correlate.rises import rise
from rca.correlate.tracks import Point, Track, Tracks, derived, tracks
from rca.correlate.view import View
from rca.model import Event
from rca.taxonomy import Kind

#: What an Xid number means; the kernel log's signatures say the same.
XIDS = (
    (Kind.DEVICE_MEMORY_ERROR, "error", (48, 64, 94, 95, 140, 157, 171, 172)), (Kind.DEVICE_LOST, "error", (79, 167)),
    (Kind.DEVICE_LINK_ERROR, "error", (74, 136, 144, 145, 146, 147, 148, 149, 150)), (Kind.DEVICE_HANG, "error", (8, 46, 61, 62, 109, 119, 120, 143, 158)),
    (Kind.DEVICE_ILLEGAL_ACCESS, "warning", (13, 31, 69)), (Kind.DEVICE_FAULT_ECHO, "warning", (43, 45, 137)),
    (Kind.DEVICE_NOTICE, "info", (63, 92, 121, 154, 156, 160)), (Kind.DEVICE_THROTTLED, "warning", (54,)),
)  # fmt: skip
UNCORRECTED = ("gpu.ecc_uncorrected", "gpu.ecc_uncorrected_ever", "gpu.remap_uncorrected", "gpu.remap_failed")
CORRECTED = ("gpu.ecc_corrected", "gpu.remap_corrected")
LINK_LEAST = 20  # NVLink errors; single replays are ordinary


def detect(view: View) -> list[Event]:
    """One event per device and kind, at its first sign."""
    known = tracks(view)
    signs: dict[tuple, list[tuple[Track, Point, Point, str, str, str]]] = defaultdict(list)
    for track in known.of(*UNCORRECTED):
        if found := rise(track, known, 1, factor=0.0):
            reason = "remap_failed" if track.name == "gpu.remap_failed" else "uncorrected"
            signs[_device(track), Kind.DEVICE_MEMORY_ERROR].append((track, found.before, found.at, f"{track.metric} {found.before.value:.0f} -> {found.last.value:.0f}", reason, "error"))
    for track in known.of("gpu.xid"):
        for before, at in _changes(track, known):
            kind, severity = xid_means(int(at.value))
            signs[_device(track), kind].append((track, before, at, f"Xid {at.value:.0f}", f"xid {at.value:.0f}", severity))
    for track in known.of("gpu.nvlink_errors"):
        if found := rise(track, known, LINK_LEAST):
            signs[_device(track), Kind.DEVICE_LINK_ERROR].append((track, found.before, found.at, f"{track.metric} +{found.grown:.0f}", "counters", "warning"))
    for track in known.of(*CORRECTED):
        if found := rise(track, known, 1, factor=0.0):
            signs[_device(track), Kind.DEVICE_NOTICE].append((track, found.before, found.at, f"{track.metric} {found.before.value:.0f} -> {found.last.value:.0f}", "corrected", "info"))
    return [_event(kind, found) for (_, kind), found in sorted(signs.items(), key=lambda kv: str(kv[0]))]


def xid_means(number: int) -> tuple[Kind, str]:
    """The kind and severity of an Xid."""
    return next(((kind, severity) for kind, severity, numbers in XIDS if number in numbers), (Kind.DEVICE_ERROR, "warning"))


def _device(track: Track) -> tuple:
    about = track.about
    return (track.host, about["gpu"] if "gpu" in about else about.get("bus_id") or about.get("uuid"))


def _changes(track: Track, known: Tracks) -> list[tuple[Point, Point]]:
    """The changes of a gauge to another number than it had, in the window; each number once."""
    found, seen = [], {int(track.points[0].value)}
    for before, at in zip(track.points, track.points[1:], strict=False):
        if at.value > 0 and at.value != before.value and int(at.value) not in seen and known.inside(track, at):
            seen.add(int(at.value))
            found.append((before, at))
    return found


def _event(kind: Kind, found: list[tuple]) -> Event:
    track, before, at, _, reason, _ = min(found, key=lambda f: (f[2].time_ns if f[2].time_ns is not None else 0))
    said = ", ".join(dict.fromkeys(f[3] for f in found))
    where = f"GPU {track.about.get('gpu', track.about.get('bus_id', '?'))} of {track.host or 'a host'}"
    severity = "error" if any(f[5] == "error" for f in found) else found[0][5]
    xid = next((f[4][4:] for f in found if f[4].startswith("xid ")), None)
    attrs = {"reason": "remap_failed" if any(f[4] == "remap_failed" for f in found) else reason, **({"xid": xid} if xid else {})}
    return derived(kind, f"{where}: {said}", track, at, before, severity=severity, attrs=attrs, also=tuple(f[2].record for f in found))
