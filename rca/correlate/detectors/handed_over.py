"""Hand-overs that both sides wrote down: a payload that arrives as something else than was sent, an event that a receiver never confirmed."""

from __future__ import annotations

from typing import Any

from rca.correlate.progress import LEADERS
from rca.correlate.view import View
from rca.model import Event, Record
from rca.taxonomy import Kind

COMPARED = ("count", "shape", "dtype", "checksum")
SENT = ("sender", "send", "sent", "out", "source", "src", "emit")
RECEIVED = ("receiver", "receive", "received", "recv", "in", "destination", "dst", "deliver", "delivered")
LATE_NS, LATE_TIMES = 1_000_000_000, 5  # a confirmation that takes longer than this, and so many times the longest, will not come
MOST = 16  # payloads that are told


def detect(view: View) -> list[Event]:
    """`payload.differs` at the receiver; `event.unacknowledged` for each receiver that did not confirm; `event.acknowledged` for the last that all did."""
    records = view.spans.records
    return [*_payloads(view, [r for r in records if r[1]["e"] == "handoff"]), *_events(view, records)] if records else []


def _payloads(view: View, records: list[tuple[str, dict[str, Any]]]) -> list[Event]:
    sent: dict[Any, list[tuple[str, dict[str, Any]]]] = {}
    received: dict[Any, list[tuple[str, dict[str, Any]]]] = {}
    for source, record in records:
        own = record["fields"]
        side = str(own.get("side", "")).lower()
        key = (str(own["item"]),) if "item" in own else (record["name"], record["stage"], record["step"], record["request"])
        if side in SENT:
            sent.setdefault(key, []).append((source, record))
        elif side in RECEIVED:
            received.setdefault(key, []).append((source, record))
    found = []
    for key, there in received.items():
        here = sent.get(key, [])
        if len({tuple(str(r["fields"].get(n)) for n in COMPARED) for _, r in here}) != 1:
            continue  # nobody sent it, or several sent parts of it
        source, origin = here[0]
        for where, record in there:
            differs = {n: (origin["fields"][n], record["fields"][n]) for n in COMPARED if n in origin["fields"] and n in record["fields"] and str(origin["fields"][n]) != str(record["fields"][n])}
            if differs:
                words = ", ".join(f"{n} {a} was sent and {b} arrived" for n, (a, b) in differs.items())
                attrs = {"differs": sorted(differs), "sender": _who(origin), "receiver": _who(record), "sender_host": origin["process"].get("host")}
                if "count" in differs:
                    attrs |= {"wanted": differs["count"][0], "got": differs["count"][1]}
                attrs["what"] = _what(differs)
                # Of a leader, which takes from many, one hand-over came short: then it is the other end that is odd. What changed on the way is known where it arrived.
                end = origin if attrs["what"] == "rows" and record["process"].get("role") in LEADERS and origin["process"].get("role") not in LEADERS else record
                found.append(_event(view, Kind.PAYLOAD_DIFFERS, f"{record['name']}: {words}", "error", end, [(where, record), (source, origin)], attrs))
    return found[:MOST]


def _what(differs: dict[str, tuple[Any, Any]]) -> str:
    """`rows` where some did not arrive, `form` for another shape, type or more of it, `bytes` where only what they hold differs."""
    if "count" in differs:
        sent, got = (int(str(n)) if str(n).isdecimal() and len(str(n)) < 18 else None for n in differs["count"])
        return "rows" if sent is not None and got is not None and got < sent else "form"
    return "bytes" if set(differs) == {"checksum"} else "form"


def _events(view: View, records: list[tuple[str, dict[str, Any]]]) -> list[Event]:
    confirmed: dict[str, set[str]] = {}
    acks: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for source, record in records:
        if record["e"] == "ack":
            key = record["id"] or str(record["fields"].get("event", ""))
            confirmed.setdefault(key, set()).add(_who(record) or str(len(acks.get(key, ()))))
            acks.setdefault(key, []).append((source, record))
    found: list[Event] = []
    good: Event | None = None
    for source, record in records:
        if record["e"] != "event":
            continue
        names = confirmed.get(record["id"], set())
        wanted = set(record["receivers"])
        told = record["fields"].get("receivers")
        count = len(wanted) or (int(str(told)) if str(told).isdecimal() and len(str(told)) < 7 else 0)
        if not count:
            continue
        missing = sorted(wanted - names) if wanted and names <= wanted else []
        if len(names) >= count or (wanted and not missing and names):
            event = _event(view, Kind.EVENT_ACKNOWLEDGED, f"{record['name']}: all {count} receivers confirmed", "info", record, [(source, record)], {"receivers": count})
            good = event if good is None or (event.time_ns or 0) >= (good.time_ns or 0) else good
            continue
        for name in missing[:MOST] or [None]:
            text = f"{record['name']} was not confirmed by {name or f'{count - len(names)} of {count} receivers'}"
            attrs = {"callee": name, "got": len(names), "wanted": count, "sender": _who(record), "receiver_lived": _lived_on(view, name, record, acks)}
            if name and (about := _about(view, name)):
                attrs["about"] = about
            found.append(_event(view, Kind.EVENT_LOST, text, "error", record, [(source, record)], attrs))
    return [*found, *([good] if good else [])]


def _lived_on(view: View, name: str | None, record: dict[str, Any], acks: dict[str, list[tuple[str, dict[str, Any]]]]) -> bool:
    """Whether the receiver was there long after the event was sent: far longer than any confirmation took."""
    numbers = [i for i, about in enumerate(view.spans.procs) if name is not None and name in (_named(about), str(about.get("worker", "")))]
    sent = {r["id"]: r["ns"] for _, r in view.spans.records if r["e"] == "event" and r["ns"]}
    delays = [ack["ns"] - sent[key] for key, found in acks.items() if key in sent for _, ack in found if ack["ns"]]
    if not numbers or not record["ns"]:
        return False
    columns = view.spans.columns
    last = max((max(start, end) for proc, start, end in zip(columns["proc"], columns["start"], columns["end"], strict=True) if proc in numbers), default=0)
    return last - record["ns"] > max(LATE_NS, LATE_TIMES * max(delays, default=0))


def _about(view: View, name: str) -> dict[str, Any]:
    """What is known of a worker by its name."""
    for about in view.spans.procs:
        if name in (_named(about), str(about.get("worker", ""))):
            return {"worker": name, **{k: about[k] for k in ("host", "pid", "gpu", "rank", "role") if k in about}}
    return {"worker": name}


def _named(about: dict[str, Any]) -> str | None:
    base, index = about.get("role") or about.get("service"), about.get("worker", about.get("rank"))
    return f"{base}/{index}" if base is not None and index is not None else str(base) if base is not None else None


def _who(record: dict[str, Any]) -> str | None:
    worker = record["process"].get("worker")
    return worker if isinstance(worker, str) else _named(record["process"])


def _event(view: View, kind: Kind, text: str, severity: str, record: dict[str, Any], lines: list[tuple[str, dict[str, Any]]], attrs: dict[str, Any]) -> Event:
    about = record["process"]
    host = about.get("host")
    also = tuple(Record(source, None, r.get("line_offset", r["offset"]), r.get("raw", "")) for source, r in lines)
    numbers = {n: about[n] for n in ("rank", "pid", "gpu", "local_rank") if isinstance(about.get(n), int)}
    return Event(
        kind, text, severity=severity, time_ns=view.clock.resolve(record["ns"], host, True), host=host, role=str(about["role"]) if about.get("role") else None, actor=None,
        stage=record["stage"], step=record["step"], request_id=record["request"], attrs={"span": True, "said_stage": record["stage"] is not None, **attrs}, also=also, **numbers,
    )  # fmt: skip
