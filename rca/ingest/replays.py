"""`rca.replay/1`: what came of running recorded requests again, in fresh processes; recognised by its first line, whatever the file's name.

It is no log: nobody of the run wrote it, and it was made afterwards. What it says becomes events of kinds of their own, which correlate keeps apart from
the run. `rca.recording/1`, what a replay starts from, is recognised too, so that nobody takes requests and their arguments for log lines.

>>> [(e["kind"], e["role"], e["rank"], e["step"], e["attrs"]["of"], e["attrs"]["void"]) for e in taken((0, line) for line in SAMPLE.encode().splitlines())["events"]]
[('replay.not_reproduced', 'train', 1, 4, 'request', None), ('replay.compared', None, None, None, 'healthy', None), ('replay.not_reproduced', 'train', 1, 4, 'verdict', None)]

Source: docs/decisions/0009-recording-and-replay.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from rca.ingest.blocks.remote import stage_of_method
from rca.ingest.sources import Source, read_range
from rca.taxonomy import ROLES, STAGES, Kind

SAMPLE = """\
{"schema":"rca.replay/1","rca_version":"0.7.0","time":1795400000000000000,"with_fault":false,"versions":{"torch":"2.8.0"},"same_environment":true}
{"e":"request","t":1795318546061909997,"request":"7f-12","method":"train_batch","role":"train","rank":1,"host":"gpu-1","step":4,"stage":"train","attempt":1,"recorded":"error","replayed":"ok","outcome":"does not reproduce","error":"RuntimeError: boom","text":"train_batch of train/1 failed, and does not when it is run again"}
{"e":"healthy","count":41,"identical":41}
{"e":"verdict","t":1795318546061909997,"verdict":"does not reproduce","request":"7f-12","role":"train","rank":1,"host":"gpu-1","step":4,"stage":"train","error":"RuntimeError: boom","text":"the failed request does not fail again"}"""
SCHEMA, VERSION, SHAPE = "rca.replay", "1", "rca_replay"
RECORDING = b'"rca.recording/'
HEAD_BYTES = 512  # the header's schema stands in front
SAYS = re.compile(rb'"schema": ?"rca\.replay/([^"\\]{1,40})"')
#: A file that lost its header goes on like this; a recording's lines have none of these words.
HEADLESS = re.compile(rb'\{"e": ?"(?:request|healthy|hand_over|verdict)", ?[^\n]{0,400}"(?:replayed|identical|from|verdict)":')
NO_HEADER = "a replay's result without its first line, which says whether it is evidence: run `rca replay` again"
OTHER_VERSION = "a replay's result of another version, rca.replay/{}; rca.replay/1 is read here: analyze it with the version that wrote it, or run `rca replay` again"
NOT_READ = "unused: requests that were recorded for `rca replay`"
OUTCOMES = {"reproduces": Kind.REPLAY_REPRODUCED, "does not reproduce": Kind.REPLAY_NOT_REPRODUCED, "diverges": Kind.REPLAY_DIVERGED, "cannot tell": Kind.REPLAY_UNDECIDED}
KNOWN = tuple(OUTCOMES)  # a value of the wrong type may have no hash
LINE_MAX = 64 << 10  # bytes; the writer's are far shorter
LINES_MAX = 100_000
ENOUGH = 10  # requests that came out the same show that the replay is able to
KEPT = 200  # requests, and hand-overs, that become events; of the others only the number is known
TEXT_CUT, RAW_CUT, NAME_CUT = 400, 600, 200
NUMBER_MAX = 1 << 31
FIRST_NS, LAST_NS = 94_694_400 * 10**9, 1 << 62
VOID = {
    "fault": "the fault was made again for it",
    "environment": "its environment was not that of the run",
    "silent": "it does not say whether its environment was that of the run, without the fault",
}


def recognise(head: bytes) -> str | None:
    """What a file that begins so is: "replay", "recording", "headless", or None for anything else.

    >>> recognise(SAMPLE.encode()), recognise(b'{"schema": "rca.recording/1"}'), recognise(SAMPLE.encode().split(b"\\n", 1)[1]), recognise(b'{"e":"request","t":1,"id":2,"n":"save"}')
    ('replay', 'recording', 'headless', None)
    """
    line = head.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0]
    if not line.startswith(b"{"):
        return None
    if SAYS.search(line):
        return "replay"
    return "recording" if RECORDING in line else "headless" if HEADLESS.match(line) else None


def read(source: Source) -> dict[str, Any] | None:
    """What a replay's result holds, as plain values like those of `read_scanned`; None for a file of another kind."""
    head = read_range(source, 0, HEAD_BYTES)
    what = recognise(head)
    if what is None:
        return None
    from rca.ingest.spans import documents
    from rca.ingest.streams import open_stream

    version = found[1].decode("utf-8", "replace") if (found := SAYS.search(head)) else ""
    why = {"recording": NOT_READ, "headless": NO_HEADER}.get(what) or (None if version == VERSION else OTHER_VERSION.format(version))
    out: dict[str, Any] = {"events": [], "streams": {}, "samples": [], "zoned": True, "shape": "rca_recording" if what == "recording" else SHAPE, "damaged": 0, "parsed": 0}
    if why is None:
        out |= taken(documents.lines(source))
        why = out.pop("gaps") or (open_stream(source).truncated if source.compression else source.inside.short if source.inside else None)
    return out | {"scan": {"consumed": source.size if out["parsed"] else 0, "truncated": why, "lines": ()}}


def taken(lines: Iterable[tuple[int, bytes | None]]) -> dict[str, Any]:
    """The events of a file's lines, each with its offset, and `damaged` (lines), `parsed` (bytes) and `gaps` (what was not read, in words)."""
    result = _Result()
    for number, (offset, line) in enumerate(lines, 1):
        if number > LINES_MAX:
            result.gaps.append(f"lines behind the first {LINES_MAX}")
            break
        if line is None or len(line) > LINE_MAX:
            result.damaged += 1
        elif line.strip(b" \t\r\n\0\xef\xbb\xbf"):
            try:
                result.take(json.loads(line), line, number, offset)
            except (ValueError, RecursionError):
                result.damaged += 1
    return result.finish()


class _Result:
    """Collects the lines of one file; each header begins another replay."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.damaged = self.parsed = 0
        self.gaps: list[str] = []
        self._begin("silent", None)

    def _begin(self, void: str | None, made: int | None) -> None:
        self._void, self._made = void, made
        self._kept = {"request": 0, "hand_over": 0}
        self._counted: dict[str, int | None] = {"count": None, "identical": None}
        self._differ: dict[tuple, int] = {}  # how many requests gave other numbers, by role, rank, step and stage
        self._hosts: dict[tuple, str | None] = {}  # of those, by role and rank
        self._followed = 0  # requests that differ because another one does
        self._verdict: dict[str, Any] | None = None

    def take(self, value: Any, line: bytes, number: int, offset: int) -> None:
        """Take one line; what is none of a replay's is counted as damaged."""
        kind = value.get("e") if isinstance(value, dict) else None
        if isinstance(value, dict) and "schema" in value:
            self._end()
            if value["schema"] != f"{SCHEMA}/{VERSION}":
                self.gaps.append(OTHER_VERSION.format(_text(value["schema"], 40)))
            fault, same = value.get("with_fault"), value.get("same_environment")
            void = "fault" if fault is True else "environment" if same is False else None if fault is False and same is True and value["schema"] == f"{SCHEMA}/{VERSION}" else "silent"
            self._begin(void, _number(value.get("time"), FIRST_NS, LAST_NS))
        elif kind == "healthy":
            self._counted = {name: _number(value.get(name)) for name in self._counted}
            compared, same = self._counted.values()
            if compared:
                text = f"{same if same is not None else '?'} of {compared} requests that had not failed came out the same"
                self.events.append(self._event(Kind.REPLAY_COMPARED, "healthy", {"text": text}, line, number, offset) | {"time_ns": None})
        elif kind == "request" and value.get("outcome") in KNOWN:
            self._request(value, line, number, offset)
        elif kind == "hand_over":
            self._keep("hand_over", self._event(Kind.REPLAY_HAND_OVER_BROKEN, "hand_over", value, line, number, offset))
        elif kind == "verdict" and value.get("verdict") in KNOWN:
            self._verdict = self._event(OUTCOMES[value["verdict"]], "verdict", value, line, number, offset)  # the last one counts
        else:
            self.damaged += 1
            return
        self.parsed += len(line) + 1

    def finish(self) -> dict[str, Any]:
        """All that the file says."""
        self._end()
        return {"events": self.events, "damaged": self.damaged, "parsed": self.parsed, "gaps": "; ".join(dict.fromkeys(self.gaps))}

    def _request(self, value: dict[str, Any], line: bytes, number: int, offset: int) -> None:
        event = self._event(OUTCOMES[value["outcome"]], "request", value, line, number, offset)
        if event["kind"] == Kind.REPLAY_DIVERGED and _text(value.get("because_of"), NAME_CUT):
            self._followed += 1  # it added up what another one of its world had computed
        elif event["kind"] == Kind.REPLAY_DIVERGED and len(self._differ) < LINES_MAX:
            key = (event["role"], event["rank"], event["step"], event["stage"])
            self._differ[key] = self._differ.get(key, 0) + 1
            self._hosts[key[:2]] = event["host"]
        self._keep("request", event)

    def _keep(self, what: str, event: dict[str, Any]) -> None:
        self._kept[what] += 1
        if self._kept[what] <= KEPT:
            self.events.append(event)

    def _end(self) -> None:
        """Close a replay: its verdict knows what became of the other requests."""
        found, self._verdict = self._verdict, None
        if found is None:
            return
        compared, same = self._counted["count"], self._counted["identical"]
        if found["attempt"] is None:  # its request may say
            found["attempt"] = next((e["attempt"] for e in reversed(self.events) if found["request_id"] and e["request_id"] == found["request_id"] and e["attrs"]["of"] == "request"), None)
        found["attrs"] |= {"compared": compared, "identical": same, "requests": self._kept["request"]}
        if found["kind"] == Kind.REPLAY_DIVERGED:
            # Ranks that exchange what they computed differ together, in the same steps; whoever else differs makes it no fault of one machine.
            own = (found["role"], found["rank"])
            phases = {who[2:] for who in self._differ if who[:2] == own} | {(found["step"], found["stage"])}
            others = {who[:2] for who in self._differ if who[0] != own[0] or (who[1] != own[1] and who[2:] not in phases)}
            mates = {who[:2] for who in self._differ} - others - {own}
            if mates:  # which of them it was, a result that all share does not say
                found["rank"], found["host"] = None, found["host"] if {self._hosts[who] for who in mates} == {found["host"]} else None
            differ = sum(self._differ.values()) + self._followed  # those that had not failed are among the compared ones
            found["attrs"] |= {"together": len(mates), "others_differ": len(others), "others_same": not others and compared is not None and same is not None and same >= ENOUGH and compared - same <= differ}
            found["attrs"]["steps_differ"] = len({who[2] for who in self._differ if who[:2] == own})
        self.events.append(found)

    def _event(self, kind: Kind, of: str, value: dict[str, Any], line: bytes, number: int, offset: int) -> dict[str, Any]:
        role, stage, attempt = value.get("role"), value.get("stage"), _number(value.get("attempt"))
        attrs: dict[str, Any] = {"of": of, "void": VOID[self._void] if self._void else None, "made": self._made, "raw": line[:RAW_CUT].decode("utf-8", "replace").strip("\ufeff")}
        attrs |= {name: text for name in ("method", "from", "to", "error", "recorded", "replayed", "tensor") if (text := _text(value.get(name), NAME_CUT))}
        text = _text(value.get("text"), TEXT_CUT) or " ".join(t for t in (attrs.get("method"), str(value.get("verdict") or value.get("outcome") or "differs between its two ends")) if t)
        return {
            # Other numbers from the same request in the same environment are a failure; what else a replay says only weighs.
            "kind": kind.value, "text": text, "severity": "warning" if of == "verdict" and kind == Kind.REPLAY_DIVERGED and not self._void else "info",
            "time_ns": _number(value.get("t"), FIRST_NS, LAST_NS), "host": _text(value.get("host"), NAME_CUT), "role": role if role in ROLES else None,
            "rank": _number(value.get("rank")), "stage": stage if stage in STAGES else stage_of_method(attrs.get("method")), "step": _number(value.get("step")),
            "attempt": attempt - 1 if attempt else attempt,  # the trainer counts from 1
            "request_id": _text(value.get("request"), NAME_CUT), "line": number, "offset": offset, "attrs": attrs,
        }  # fmt: skip


def _number(value: Any, least: int = 0, most: int = NUMBER_MAX) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value < most else None


def _text(value: Any, most: int) -> str | None:
    """A text of one line without lone surrogates; None for anything else, and where it is empty."""
    return " ".join(value[:most].encode("utf-8", "replace").decode().split()) or None if isinstance(value, str) else None
