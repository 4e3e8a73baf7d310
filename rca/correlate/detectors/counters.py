"""Host counters are judged by their change inside the run's window, per host and device: a standing value is no event."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from rca.correlate.detectors import stuck_threads
from rca.correlate.view import View
from rca.model import Event, Record
from rca.taxonomy import Kind

LOSS_PER_S = 5  # TCP retransmissions a second that no healthy data-centre link keeps up for seconds
LOSS_SECONDS = 3
STUCK_SAMPLES = 2  # consecutive samples in state D; one alone is an ordinary disk access
THROTTLED_SHARE = 0.5  # of the periods: a job that is denied the CPU half of the time is not merely busy


def detect(view: View) -> list[Event]:
    """Events from counters that changed: links, loss, throttling, processes stuck in the kernel."""
    series: dict[tuple, list[tuple]] = defaultdict(list)
    for reading in view.readings:
        if reading.facts.get("measured"):
            continue  # whole files of measurements are tracks: see `rca/correlate/tracks.py`
        streams = view.identity
        for ns, host, subject, name, value, line, offset, raw in reading.facts.get("samples", ()):
            writer = streams.writer(reading.source, "")
            where = streams.name_of(host) or (writer.host if writer else None)
            when = view.clock.resolve(ns, where, bool(reading.facts.get("zoned")))
            series[where, name, subject].append((when, value, Record(reading.source, line, offset, raw)))
    found: list[Event] = []
    for (host, name, subject), points in sorted(series.items(), key=lambda kv: tuple(str(x) for x in kv[0])):
        maker = MAKERS.get(name)
        if maker and (made := maker(points)):
            kind, text, at, attrs = made
            rank = view.identity.of_pid(view.identity.rank_of_pid, host, int(subject)) if subject and subject.isdecimal() else None
            event = Event(
                kind, text.format(host=host or "the host", subject=subject or "its interface"), severity="warning", time_ns=at[0], host=host, rank=rank,
                pid=int(subject) if subject and subject.isdecimal() else None, nic=subject if subject and not subject.isdecimal() else None,
                attrs=attrs, also=(*tuple(p[2] for p in points if p[0] == at[0])[:1], points[-1][2]), attempt=None,
            )  # fmt: skip
            found.append(stuck_threads.saving(event, view) if kind == Kind.UNINTERRUPTIBLE else event)
    return found


def _carrier(points: list[tuple]) -> Any:
    down = next((p for p in points if p[1] == 0), None)
    if down is None or all(p[1] == 0 for p in points):
        return None
    up = next((p for p in points if down[0] is not None and p[0] is not None and p[0] > down[0] and p[1] == 1), None)
    return Kind.LINK_DOWN, "{subject} on {host} lost its carrier", down, {"recovered": up is not None}


def _retransmits(points: list[tuple]) -> Any:
    times = [p for p in points if p[0] is not None]
    if len(times) < LOSS_SECONDS:
        return None
    first = next((i for i in range(1, len(times)) if _rate(times[i - 1], times[i]) >= LOSS_PER_S), None)
    grown = times[-1][1] - times[0][1]
    seconds = sum(_rate(a, b) >= LOSS_PER_S for a, b in itertools.pairwise(times))
    if first is None or seconds < LOSS_SECONDS:
        return None
    return Kind.PACKET_LOSS, "TCP on {host} began to retransmit (" + f"{grown} segments)", times[first], {"grown": grown}


def _rate(a: tuple, b: tuple) -> float:
    return (b[1] - a[1]) / max(1e-3, (b[0] - a[0]) / 1e9)


def _throttled(points: list[tuple]) -> Any:
    grown = points[-1][1] - points[0][1]
    start = next((p for p in points if p[1] > points[0][1]), None)
    seconds = (points[-1][0] - start[0]) / 1e9 if start and points[-1][0] and start[0] else 0
    if start is None or seconds <= 0 or grown / seconds / 1e9 < THROTTLED_SHARE:
        return None
    return Kind.CPU_THROTTLED, "the CPU quota throttled process {subject} on {host} " + f"for {grown / 1e9:.0f} s", start, {"grown_s": grown / 1e9}


def _throttled_us(points: list[tuple]) -> Any:
    return _throttled([(p[0], p[1] * 1000, p[2]) for p in points])


def _stuck(points: list[tuple]) -> Any:
    if len(points) < STUCK_SAMPLES:
        return None
    return Kind.UNINTERRUPTIBLE, "process {subject} on {host} is stuck in the kernel (" + f"{points[0][1]})", points[0], {"wchan": points[0][1], "samples": len(points)}


MAKERS = {"carrier": _carrier, "retransmits": _retransmits, "throttled_ns": _throttled, "throttled_us": _throttled_us, "state_d": _stuck}
