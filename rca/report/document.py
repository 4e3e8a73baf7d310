"""Verdict and run to the JSON report `rca.report/1`: the one document that every renderer reads.

Secrets are hidden here and nowhere else, so that no format can forget it. Nothing depends on the wall clock, on set order or on the order of
files; `stats.seconds` is the one exception.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from rca.model import REPORT_SCHEMA, Event, Evidence, Hypothesis, Reading, Record, Run, Verdict
from rca.report import replayed
from rca.report.safe import redact
from rca.taxonomy import QUIET_KINDS, REPLAY_KINDS, ROLES, SEVERITIES, VICTIM_KINDS, Kind

TEXT_CHARS = 500  # contract: a cited line is cut here
LOOK_CHARS = 4096  # a line is cut here before secrets are looked for, so that one endless line cannot take seconds
TIMELINE_EVENTS = 40  # about one screen of the longest format; more is the log again
CONFIDENCE_DIGITS = 4  # finer differences are noise, and float noise must not reach the bytes
ENTITY_KEYS = ("host", "role", "rank", "gpu", "bus_id", "nic", "pid", "path", "group")
LINKS = ("cause", "mechanism", "symptom", "against")
#: Said about a failure by those who did not have it: never the loudest error while a process's own error is there.
ECHO_KINDS = frozenset({Kind.AGENT_REPORT, Kind.AGENT_STOPS_SIBLING, Kind.LEAK_WARNING, Kind.DEVICE_FAULT_ECHO})
_SURROGATE = re.compile("[\ud800-\udfff]")
YEAR_STATED_NS = 94_694_400 * 10**9  # 1973: earlier ones are placeholders for dates without a year
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def document(run: Run, verdict: Verdict, *, seconds: float, version: str) -> dict[str, Any]:
    """The report as plain dicts and lists in the contract's key order; what no source said is None."""
    known: dict[str, str] = {}
    judged = sorted(verdict.hypotheses, key=lambda h: -h.confidence)
    confidences = [round(h.confidence, CONFIDENCE_DIGITS) for h in judged]
    raw = {
        "schema": REPORT_SCHEMA,
        "rca_version": version,
        "verdict": verdict.verdict,
        "unknown_probability": _rest(verdict.unknown_probability, confidences),
        "summary": verdict.summary,
        "hypotheses": [_hypothesis(h, c, known) for h, c in zip(judged, confidences, strict=True)],
        "symptom": _symptom(run, verdict, known),
        "timeline": [_moment(e, known) for e in _telling(run.events, judged)],
        "run": _run(run),
        "coverage": {
            "sources": [_source(r) for r in sorted(run.readings, key=lambda r: r.source)],
            "missing": [{"what": m.what, "how": m.how} for m in (*verdict.missing, *run.missing)],
            "clock_offsets": list(run.clocks),
        },
        "notes": _notes(run, known),
        **({"replay": replays} if (replays := replayed.entries(run.events, lambda e: _text(e, known))) else {}),
        "stats": {
            "bytes": {
                "parsed": sum(r.parsed for r in run.readings),
                "text": sum(r.plain for r in run.readings),
                "skipped": sum(r.skipped for r in run.readings),
            },
            "events": len(run.events),
            "seconds": round(seconds, 3),
        },
    }
    return _clean(raw, known)


def iso(time_ns: int | None) -> str | None:
    """ISO 8601 with milliseconds and Z, or None where unknown, of no stated year, or outside the calendar.

    >>> iso(1_795_000_000_120_999_999)
    '2026-11-18T11:06:40.120Z'
    """
    if time_ns is None or time_ns < YEAR_STATED_NS:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=time_ns // 1_000_000)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


# --- what the renderers say in the same words -------------------------------------------------------------------------


def place(entity: dict[str, Any]) -> str:
    """Where it broke, in one phrase; empty when no source said.

    >>> place({"host": "node-7", "gpu": 3, "rank": 27, "role": "rollout"})
    'host node-7, gpu 3, rank 27 (rollout)'
    """
    named = {k: v for k, v in entity.items() if v is not None}
    if "rank" in named and "role" in named:
        named["rank"] = f"{named['rank']} ({named.pop('role')})"
    order = ("host", "gpu", "bus_id", "nic", "role", "rank", "pid", "group", "path")
    return ", ".join(f"{key.replace('_', ' ')} {named[key]}" for key in order if key in named)


def when(hypothesis: dict[str, Any]) -> str:
    """When and in which stage it broke, and where it came to light; empty when no source said."""
    broke = _join(_at(hypothesis["cause_stage"], hypothesis["cause_step"]), _clock(hypothesis))
    shown = _at(hypothesis["symptom_stage"], hypothesis["symptom_step"])
    same = (hypothesis["cause_stage"], hypothesis["cause_step"]) == (hypothesis["symptom_stage"], hypothesis["symptom_step"])
    return _join(broke, f"came to light in {shown}" if shown and not same else "", "; ")


def percent(probability: float | None) -> str:
    """A probability for people; certainty is never claimed."""
    if probability is None:
        return "? %"
    return "> 99 %" if probability > 0.995 else "< 1 %" if 0 < probability < 0.005 else f"{probability * 100:.0f} %"


GUESS_FROM = 0.25  # a guess below this is noise


def headline(document: dict[str, Any]) -> tuple[str, str, str]:
    """The verdict, the cause and how sure we are; the last two are empty where nothing is claimed."""
    first = document["hypotheses"][0] if document["hypotheses"] else None
    if document["verdict"] == "failed" and first:
        return "FAILED", first["cause"], f"{percent(first['confidence'])} sure" + (", inferred" if first["inferred"] else "")
    if document["verdict"] == "inconclusive":
        guess = first if first and first["confidence"] >= GUESS_FROM else None
        return "INCONCLUSIVE", guess["cause"] if guess else "", f"best guess, {percent(guess['confidence'])}" if guess else ""
    return document["verdict"].upper(), "", ""


def shown_evidence(hypothesis: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """At most `most` lines in the order of the chain, each link before the second line of any."""
    turn: Counter[str] = Counter()
    ordered = []
    for item in sorted(hypothesis["evidence"], key=lambda e: LINKS.index(e["link"]) if e["link"] in LINKS else len(LINKS)):
        ordered.append((turn[item["link"]], len(ordered), item))
        turn[item["link"]] += 1
    chosen = sorted(ordered, key=lambda o: o[:2])[:most]
    return [item for _, _, item in sorted(chosen, key=lambda o: o[1])]


def chain(hypothesis: dict[str, Any]) -> str:
    """The kinds along the chain, from cause to symptom, each once."""
    along = [e["kind"] for link in LINKS[:3] for e in hypothesis["evidence"] if e["link"] == link and (link == "cause" or e["kind"] not in REPLAY_KINDS)]
    return " → ".join(dict.fromkeys(along))


def doubts(hypothesis: dict[str, Any]) -> list[str]:
    """The terms of the score that speak against it, as `-1.5 no kernel log line though one was read`; a low base rate is no evidence."""
    return [term for term in hypothesis.get("why", ()) if term.startswith("-") and " base rate " not in term]


def _at(stage: str | None, step: int | None) -> str:
    return f"{stage} of step {step}" if stage and step is not None else stage or (f"step {step}" if step is not None else "")


def _clock(hypothesis: dict[str, Any]) -> str:
    time, error_ms = hypothesis["cause_time"], hypothesis["cause_time_error_ms"]
    if not time:
        return ""
    return time + (f" ±{error_ms:g} ms" if error_ms else "") + (" (date or zone assumed)" if hypothesis["time_assumed"] else "")


def _join(a: str, b: str, by: str = ", ") -> str:
    return by.join(part for part in (a, b) if part)


# --- the parts of the document ------------------------------------------------------------------------------------------


def _rest(unknown: float, confidences: list[float]) -> float:
    """What is left for `unknown`, so that the rounded numbers still add up to 1 wherever the exact ones did."""
    rest = 1.0 - sum(confidences)
    near = abs(rest - unknown) <= 10**-CONFIDENCE_DIGITS * (len(confidences) + 1)
    return round(max(0.0, rest if near else unknown), CONFIDENCE_DIGITS)


def _hypothesis(hypothesis: Hypothesis, confidence: float, known: dict[str, str]) -> dict[str, Any]:
    cause, symptom, remedy = hypothesis.event, hypothesis.symptom, hypothesis.remedy
    stage, step = hypothesis.acted or (cause.stage, cause.step)
    return {
        "cause": hypothesis.cause,
        "confidence": confidence,
        "rule": hypothesis.rule,
        "title": hypothesis.title,
        "summary": hypothesis.summary,
        "inferred": hypothesis.inferred,
        "entity": {key: hypothesis.entity[key] if key in hypothesis.entity else getattr(cause, key) for key in ENTITY_KEYS},
        "cause_stage": stage,
        "cause_step": step,
        "cause_time": iso(cause.time_ns),
        "cause_time_error_ms": None if iso(cause.time_ns) is None else round(cause.time_error_ns / 1e6, 3),
        "time_assumed": cause.time_assumed,
        "symptom_stage": symptom.stage if symptom else None,
        "symptom_step": symptom.step if symptom else None,
        "evidence": _evidence(hypothesis.evidence, known),
        "missing": [{"what": m.what, "how": m.how} for m in hypothesis.missing],
        "remedy": {
            "action": remedy.get("action", "none"),
            "text": remedy.get("text", ""),
            "retryable": remedy.get("retryable"),
            "cordon": list(remedy.get("cordon") or ()),
        },
        "why": list(hypothesis.why),
    }


def _evidence(evidence: Iterable[Evidence], known: dict[str, str]) -> list[dict[str, Any]]:
    """Each cited line once per link; a line without an address is no evidence."""
    cited: dict[tuple, dict[str, Any]] = {}
    for record, kind, link, event in evidence:
        if record.line is None:
            continue
        item = {"file": record.source, "line": record.line, "text": _line(record, known), "kind": str(kind), "link": link,
                "time": iso(event.time_ns), "host": event.host, "rank": event.rank, "says": None if event.source else event.text}  # fmt: skip
        cited.setdefault((record.source, record.line, link), item)
    return list(cited.values())


def _symptom(run: Run, verdict: Verdict, known: dict[str, str]) -> dict[str, Any]:
    """The loudest error: the gravest, and of these the last."""
    loud = [e for e in run.events if e.severity in ("error", "fatal") and e.kind not in QUIET_KINDS and e.source is not None]
    if not loud or verdict.verdict == "healthy":
        return dict.fromkeys(("file", "line", "text", "stage", "rank", "host", "kind"))
    event = max(loud, key=lambda e: (e.kind not in ECHO_KINDS, _gravity(e), e.time_ns if e.time_ns is not None else -1, *_address(e), e.text))
    return {"file": event.source, "line": event.line, "text": _text(event, known), "stage": event.stage, "rank": event.rank,
            "host": event.host, "kind": str(event.kind)}  # fmt: skip


def _telling(events: Iterable[Event], judged: list[Hypothesis]) -> list[Event]:
    """The most telling events in order of time; those without a time stand last, in order of their lines."""
    cited = {(e.record.source, e.record.offset) for h in judged for e in h.evidence}

    def worth(event: Event) -> tuple:
        is_cited = any((r.source, r.offset) in cited for r in event.records)
        return (not is_cited, event.kind in VICTIM_KINDS, -_gravity(event), *_moment_key(event))

    loud = [e for e in events if e.kind not in QUIET_KINDS and e.kind not in REPLAY_KINDS]
    return sorted(sorted(loud, key=worth)[:TIMELINE_EVENTS], key=_moment_key)


def _moment(event: Event, known: dict[str, str]) -> dict[str, Any]:
    """One row of the timeline; a derived event cites the line that it rests on and `says` what follows from it."""
    record = next(iter(event.records), None)
    return {
        "time": iso(event.time_ns),
        "kind": str(event.kind),
        "text": _text(event, known),
        "host": event.host,
        "rank": event.rank,
        "stage": event.stage,
        "step": event.step,
        "file": record.source if record else None,
        "line": record.line if record else None,
        "role": event.role,
        "count": event.count,
        "says": None if event.source else event.text,
    }


def _run(run: Run) -> dict[str, Any]:
    states = list(run.processes.values())
    events = [e for e in run.events if e.kind not in REPLAY_KINDS]
    roles = {s.get("role") for s in states} | {e.role for e in events}
    times = [t for r in run.readings for t in (r.first_ns, r.last_ns) if t is not None]
    steps = [s for s in [*(p.get("last_step") for p in states), *(e.step for e in events)] if s is not None]
    frameworks = Counter(f for r in run.readings if (f := r.facts.get("framework")))
    return {
        "hosts": sorted(run.hosts),
        "ranks": run.world,
        "roles": [role for role in ROLES if role in roles],
        "attempts": run.attempts,
        "first_time": iso(min(times, default=None)),
        "last_time": iso(max(times, default=None)),
        "last_step": max(steps, default=None),
        "framework": min(frameworks, key=lambda f: (-frameworks[f], f), default=None),
        "outcome": run.outcome,
    }


def _source(reading: Reading) -> dict[str, Any]:
    return {
        "file": reading.source,
        "format": reading.format,
        "lines": reading.lines,
        "bytes": reading.size,
        "host": reading.facts.get("host"),
        "rank": reading.facts.get("rank"),
        "first_time": iso(reading.first_ns),
        "last_time": iso(reading.last_ns),
        "damaged": reading.damaged,
        "skipped": reading.skipped,
        "reason": reading.reason,
    }


def _notes(run: Run, known: dict[str, str]) -> list[dict[str, Any]]:
    """Notes sorted by address, each once; those without an address first."""
    found = {}
    for text, event in run.notes:
        record = next(iter(event.records), None) if event else None
        address = (record.source, record.line or 0) if record else ("", 0)
        quote = _line(record, known) if record else None
        found[*address, text] = {"text": text, "file": record.source if record else None, "line": record.line if record else None, "quote": quote}
    return [found[key] for key in sorted(found)]


def _text(event: Event, known: dict[str, str]) -> str:
    """The raw line at the event's address; the event's own words where no line states it."""
    record = next(iter(event.records), None)
    return _line(record, known) if record else event.text


def _line(record: Record, known: dict[str, str]) -> str:
    """The record's line as it stands in the file, without secrets, cut to the contract's length."""
    return redact(record.text.split("\n", 1)[0].rstrip("\r")[:LOOK_CHARS], known)[:TEXT_CHARS]


def _gravity(event: Event) -> int:
    return SEVERITIES.index(event.severity) if event.severity in SEVERITIES else 0


def _address(event: Event) -> tuple[str, int, int]:
    record = next(iter(event.records), None)
    return (record.source, record.line or 0, record.offset) if record else ("", 0, 0)


def _moment_key(event: Event) -> tuple:
    return (event.time_ns is None, event.time_ns or 0, *_address(event), str(event.kind), event.text)


def _clean(value: Any, known: dict[str, str]) -> Any:
    """Plain JSON: no secret, no lone surrogate, no NaN, no type that a parser of another language would not know."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", redact(str(value), known))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, dict):
        return {str(key): _clean(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, known) for item in value]
    return _clean(str(value), known)
