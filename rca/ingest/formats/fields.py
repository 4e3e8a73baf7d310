"""From the named values of a structured log record (JSON, logfmt) to a Line: every library has its own names for the same things.

>>> line = build({"ts": "2026-11-20T11:51:19.371583Z", "level": "INFO", "host": "dgx-17", "rank": 0, "step": 3, "msg": "ok"}, "raw", "json")
>>> line.text, line.level, line.host, line.rank, line.step, line.stamp.has_zone
('ok', 'info', 'dgx-17', 0, 3, True)
>>> build({"event": "save", "timestamp": 1792720189.708, "exception": "Traceback ..."}, "raw", "json").extra
{'exc': 'Traceback ...'}
>>> build({"resourceSpans": []}, "raw", "json")

Source: structlog, python-json-logger, loguru (serialize), zap, pino, logrus, Elastic Common Schema, torchelastic `error.json`.
"""

from __future__ import annotations

from typing import Any

from rca.ingest.formats import Line
from rca.ingest.formats.progress import find
from rca.ingest.formats.words import is_process, level
from rca.ingest.times import Stamp, epoch, of

#: Name in the record -> our field. Of two names for one field the one that stands first in the record wins.
ALIASES = {
    "msg": "text", "message": "text", "log": "text", "text": "text", "textPayload": "text", "line": "text", "_msg": "text", "@message": "text",
    "short_message": "text", "event": "event",
    "ts": "time", "time": "time", "timestamp": "time", "asctime": "time", "@timestamp": "time", "datetime": "time", "created": "time",
    "level": "level", "levelname": "level", "severity": "level", "lvl": "level", "log.level": "level", "log_level": "level",
    "rank": "rank", "global_rank": "rank", "local_rank": "local_rank",
    "host": "host", "hostname": "host", "node": "host", "host.name": "host", "host_name": "host",
    "pid": "pid", "process": "pid", "process_id": "pid", "process.pid": "pid",
    "logger": "logger", "name": "logger", "src": "logger", "component": "logger", "logger_name": "logger", "role": "actor", "actor": "actor",
    "stage": "stage", "phase": "stage", "step": "step", "iteration": "step", "train_step": "step", "global_step": "global_step",
    "exc": "exc", "exc_info": "exc", "exc_text": "exc", "exception": "exc", "stack": "exc", "stacktrace": "exc", "stack_trace": "exc",
    "stack_info": "exc", "traceback": "exc", "error.stack_trace": "exc", "error_trace": "exc", "py_callstack": "exc",
}  # fmt: skip
PINO = {10: "debug", 20: "debug", 30: "info", 40: "warning", 50: "error", 60: "critical"}
PYTHON = {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical"}
#: Objects inside which exporters put the record itself, and the places where collectors name the node.
NESTED = ("_source", "jsonPayload", "fields", "attributes")
PLACES = (
    ("kubernetes", "host"), ("kubernetes", "node", "name"), ("kubernetes", "node_name"), ("labels", "node_name"), ("labels", "node"), ("stream", "node_name"),
    ("labels", "compute.googleapis.com/resource_name"), ("resource", "labels", "node_name"), ("kubernetes", "pod_name"), ("kubernetes", "pod", "name"),
    ("labels", "pod"), ("resource", "labels", "pod_name"),
)  # fmt: skip
HEADING = "Traceback (most recent call last):"


def build(record: dict[str, Any], raw: str, shape: str) -> Line | None:
    """The Line that a record states; None for a record that is no log line (a span, a metric, a configuration)."""
    found: dict[str, Any] = {}
    for name in NESTED:
        if isinstance(record.get(name), dict):
            record = {**record[name], **record}
    if isinstance(record.get("log"), dict):  # Elastic Common Schema: the level's place, not the text
        record = {**{f"log.{k}": v for k, v in record["log"].items() if isinstance(v, str)}, **{k: v for k, v in record.items() if k != "log"}}
    for key, value in record.items():
        field = ALIASES.get(key)
        if field is not None and value is not None and field not in found:
            found[field] = value
    get = found.get
    text = get("text", get("event"))
    step = _number(get("global_step", get("step")))
    if text is None and "exc" not in found and ((step is None and "level" not in found) or ("time" not in found and step is None)):
        return None
    exc = trace(get("exc"))
    if isinstance(text, dict) and isinstance(text.get("message"), str):  # torchelastic's error file nests all of it once more
        nested = text.get("extraInfo")
        return build({"message": text["message"]} | (nested if isinstance(nested, dict) else {}), raw, shape)
    text = text if isinstance(text, str) else raw if text is None else str(text)
    if exc is None and HEADING in text:
        at = text.index(HEADING)
        text, exc = text[:at].rstrip() or text[at:], text[at:]
    stage, logger, actor = get("stage"), get("logger"), get("actor")
    stage = stage if isinstance(stage, str) else None
    if step is None or stage is None:
        said = find(text)
        stage, step = stage or said[0], said[1] if step is None else step
    rank = _number(get("rank"))
    logger, actor = logger if isinstance(logger, str) else None, actor if isinstance(actor, str) else None
    if actor is None and logger is not None and rank is None and is_process(logger):
        actor, logger = logger, None
    host = get("host")
    host = host.get("name", host.get("hostname")) if isinstance(host, dict) else host or _placed(record)
    return Line(
        text, moment(get("time")), _level(get("level"), record), rank, _number(get("local_rank")), host if isinstance(host, str) and host else None,
        _number(get("pid")), actor, stage, step, "", shape, True, logger, {"exc": exc} if exc else None,
    )  # fmt: skip


def _placed(record: dict[str, Any]) -> str | None:
    """The node that a collector names beside the record: Kubernetes metadata of fluentd, Elastic and Cloud Logging, Loki's labels."""
    for path in PLACES:
        value: Any = record
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str) and value:
            return value
    return None


def moment(value: Any) -> Stamp | None:
    """A time given as text or as a number since the epoch; loguru gives both in an object."""
    if isinstance(value, dict):
        value = value.get("timestamp", value.get("repr"))
    if isinstance(value, str):
        stamp = of(value) or epoch(value)
        # asctime of two zones or odd fractions: what stands before them is still a time
        return stamp or (of(value[:19]) if len(value) > 19 else None)
    return epoch(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def trace(value: Any) -> str | None:
    """The text of an exception that may be a string, a list of lines or an object; None for flags and empty values."""
    if isinstance(value, dict):
        body = next((value[k] for k in ("traceback", "stacktrace", "stack", "stack_trace") if value.get(k)), None)
        said = ": ".join(str(value[k]) for k in ("type", "value", "message") if value.get(k))
        return trace(body) if isinstance(body, str | list) and body else said or None
    if isinstance(value, list):
        value = "".join(v if v.endswith("\n") else f"{v}\n" for v in value if isinstance(v, str)).rstrip("\n")
    return value if isinstance(value, str) and value.strip() not in ("", "None", "NoneType: None") else None


def _level(value: Any, record: dict[str, Any]) -> str | None:
    if isinstance(value, dict):
        value = value.get("name")
    if isinstance(value, str):
        return level(value)
    if isinstance(value, int):
        return (PINO if ("hostname" in record and "v" in record) or value == 60 else PYTHON).get(value)
    return None


def _number(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("id", value.get("pid"))
    if isinstance(value, str):
        return int(value) if value.isdecimal() and value.isascii() and len(value) < 13 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value and 0 <= value < 1e12 and value == int(value) else None
