"""Chrome's trace events: `ray timeline`, AReaL's perf tracer (one event per line), torch's profiler, and whoever else writes `ph` and `ts`.

Times in microseconds since 1970 are kept; those that count from a start of their own (AReaL's tracer, an unbased profile) have no wall clock, and
only their durations are used. Of a profile of kernels only the process, its rank and its steps are read.

>>> from rca.ingest.spans.table import Table
>>> table = Table()
>>> take(table, {"name": "task::train", "cat": "task::train", "ph": "X", "ts": "1757250178000000.5", "dur": 26000, "pid": "10.0.0.7", "tid": "worker:ab", "args": {}}, 0, {}, {})
True
>>> table.names[1], table.procs[1], table.columns["start"][0], table.columns["end"][0] - table.columns["start"][0]
('task::train', {'host': '10.0.0.7'}, 1757250178000000500, 26000000)

Source: "Trace Event Format"; AReaL `areal/utils/perf_tracer.py`; Kineto `libkineto/src/output_json.cpp`; ray `_private/profiling.py`.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest.sources import Source
from rca.ingest.spans import aliases, documents
from rca.ingest.spans.requests import flat
from rca.ingest.spans.table import ERROR, UNSET, Span, Table, failed_tag
from rca.ingest.spans.values import scaled, text_of
from rca.ingest.streams import open_stream

EVENTS_MAX = 300_000  # of one file
OPEN_MAX = 10_000  # begun and not ended at one time
PROFILE_BYTES = 256 << 20  # of a profile in which steps are looked for
CHUNK_BYTES = 1 << 20
STEPS_MAX = 10_000
EPOCH_US = 10**14  # microseconds below this are no date
IP = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")
RANK = re.compile(r"(?:^|/)(?:(?P<role>[A-Za-z][\w-]{0,40})/)?[\w.-]{0,40}?[-_.]r(?:ank)?[-_]?(?P<rank>\d{1,6})\.(?:jsonl?|pt\.trace\.json)")
HOST_PID = re.compile(r"(?:^|/)(?P<host>[\w-]{1,60})_(?P<pid>\d{1,9})\.\d{6,20}\.pt\.trace\.json")
STEP = re.compile(rb'"name"\s{0,4}:\s{0,4}"ProfilerStep#(\d{1,9})"[^{}]{0,300}?"ts"\s{0,4}:\s{0,4}(\d{1,20}(?:\.\d{1,9})?)\s{0,4},\s{0,4}"dur"\s{0,4}:\s{0,4}(\d{1,20}(?:\.\d{1,9})?)')
INFO = re.compile(rb'"(rank|world_size)"\s{0,4}:\s{0,4}(\d{1,7})')
BASE = re.compile(rb'"baseTimeNanoseconds"\s{0,4}:\s{0,4}(\d{1,20})')
TITLE = re.compile(rb'"name"\s{0,4}:\s{0,4}"process_name"[^{}]{0,200}\{\s{0,4}"name"\s{0,4}:\s{0,4}"([^"]{1,200})"')


def recognise(head: bytes) -> bool:
    """Whether a file begins as trace events do."""
    return b'"traceEvents"' in head or (b'"ph"' in head and b'"name"' in head and (b'"ts"' in head or b'"pid"' in head)) or profile(head)


def profile(head: bytes) -> bool:
    """Whether it is a profile of torch."""
    return b'"schemaVersion"' in head and (b'"deviceProperties"' in head or b'"distributedInfo"' in head or b'"cuda_runtime_version"' in head)


def read(source: Source, head: bytes, table: Table) -> None:
    """The events of a file, as spans."""
    process: dict[str, Any] = {}
    if match := RANK.search(source.name):
        process = {"rank": int(match["rank"])} | ({"role": match["role"]} if match["role"] else {})
    if match := HOST_PID.search(source.name):
        process |= {"host": match["host"], "pid": int(match["pid"])}
    if profile(head):
        _profile(source, table, process)
        return
    walker = documents.Walker(documents.text_of(source), "", ("traceEvents",))
    begun: dict[Any, tuple[dict[str, Any], int]] = {}
    called: dict[Any, dict[str, Any]] = {}
    for count, (offset, _, value) in enumerate(walker):
        if count >= EVENTS_MAX:
            table.gap(f"events beyond the first {EVENTS_MAX}")
            break
        if isinstance(value, dict) and "traceEvents" in value:  # a small document comes as a whole
            for event in value["traceEvents"][:EVENTS_MAX] if isinstance(value["traceEvents"], list) else ():
                table.damaged += not take(table, event, offset, begun, called, process)
        else:
            table.damaged += not take(table, value, offset, begun, called, process)
    table.damaged += walker.damaged
    for event, offset in begun.values():
        if table.clock:
            _add(table, event, offset, None, called, process)


def take(table: Table, value: Any, offset: int, begun: dict[Any, Any], called: dict[Any, dict[str, Any]], process: dict[str, Any] | None = None) -> bool:
    """Append one event; False for what is none. `begun` holds what has no end yet, `called` what metadata say of each pid."""
    if not isinstance(value, dict) or not isinstance(phase := value.get("ph"), str):
        return False
    lane = (str(value.get("pid"))[:80], str(value.get("tid"))[:80], *((str(value.get("id"))[:80],) if phase in "be" else ()))
    if phase == "M":
        args = value.get("args")
        if value.get("name") == "process_name" and isinstance(args, dict) and len(called) < OPEN_MAX:
            called[lane[0]] = {"service": text_of(args.get("name"))[:200]}
    elif phase == "X":
        duration = scaled(value.get("dur"), 1000)
        _add(table, value, offset, duration if duration is not None and duration >= 0 else 0, called, process or {})
    elif phase in "Bb" and len(begun) < OPEN_MAX:
        depth = 0
        while (*lane, depth) in begun:
            depth += 1
        begun[*lane, depth] = (value, offset)
    elif phase in "Ee":
        depth = 0
        while (*lane, depth + 1) in begun:
            depth += 1
        if (found := begun.pop((*lane, depth), None)) is not None:
            start, end = scaled(found[0].get("ts"), 1000), scaled(value.get("ts"), 1000)
            if start is not None and end is not None and end >= start:
                merged = found[0] | {"args": {**_args(found[0]), **_args(value)}}
                _add(table, merged, found[1], end - start, called, process or {})
    return True


def _args(value: dict[str, Any]) -> dict[str, Any]:
    return flat(value.get("args")) if isinstance(value.get("args"), dict) else {}


def _add(table: Table, value: dict[str, Any], offset: int, duration: int | None, called: dict[Any, dict[str, Any]], process: dict[str, Any]) -> None:
    start = scaled(value.get("ts"), 1000)
    if start is None:
        table.damaged += 1
        return
    if start < EPOCH_US * 1000:
        table.clock = False
        start += 1  # a start at 0 is a time, too
    args = _args(value)
    own = aliases.fields(args)
    pid = value.get("pid")
    about = dict(process) | called.get(str(pid)[:80], {})
    if isinstance(pid, str) and IP.fullmatch(pid):
        about.setdefault("host", pid)
    elif type(pid) is int and 0 < pid < 1 << 31 and "pid" not in about:
        about["pid"] = pid
    error = args.get("error")
    status = ERROR if error is not None and failed_tag(error) and error != "" else UNSET
    own.pop("error", None)
    table.add(Span("", "", "", text_of(value.get("name")), 0, start, None if duration is None else start + duration, status, text_of(error) if status else "", own, about), offset)


def _profile(source: Source, table: Table, process: dict[str, Any]) -> None:
    """The process and the steps of a profile; everything else in it is passed over."""
    stream = open_stream(source)
    buffer = memoryview(bytearray(CHUNK_BYTES))
    carry, at, base, found = b"", 0, 0, 0
    try:
        while (count := stream.readinto(buffer)) and at < PROFILE_BYTES:
            data = carry + bytes(buffer[:count])
            begun = stream.position - len(data)
            if not at:
                process |= {{"rank": "rank", "world_size": "world"}[m[1].decode()]: int(m[2]) for m in INFO.finditer(data[:65536])}
            if match := BASE.search(data):
                base = int(match[1])
            if (match := TITLE.search(data)) and "service" not in process:
                process["service"] = match[1].decode("utf-8", "replace")
            for match in STEP.finditer(data):
                start, duration = scaled(match[2].decode(), 1000), scaled(match[3].decode(), 1000)
                if start is None or duration is None or found >= STEPS_MAX or match.end() <= len(carry):
                    continue
                found += 1
                start += base if start < EPOCH_US * 1000 else 0
                if start < EPOCH_US * 1000:
                    table.clock = False
                table.add(Span("", "", "", "ProfilerStep", 0, start + 1, start + 1 + duration, UNSET, "", {"step": int(match[1])}, process), begun + match.start())
            carry = data[-1024:]
            at = stream.position
    finally:
        stream.close()
    if at >= PROFILE_BYTES:
        table.gap(f"a profile beyond {PROFILE_BYTES >> 20} MiB")
    table.alone = True
