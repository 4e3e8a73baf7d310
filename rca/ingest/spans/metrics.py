"""Numbers of training that a journal states as events: they join the series that lines of training are read into, and a loss that stayed non-finite is told."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from rca.ingest import series
from rca.ingest.sources import Source, read_range
from rca.ingest.times import Stamp
from rca.taxonomy import Kind

if TYPE_CHECKING:
    from rca.ingest.reader import Reader
    from rca.ingest.spans.events import Writers

NAMES = frozenset({"metrics", "log", "loss", "grad_norm", "train_loss", "training_metrics"})
LINE_BYTES = 4096
TEXT_MAX = 400
MOST = 20_000  # events of one file whose lines are read


def emit(records: list[dict[str, Any]], source: Source, writers: Writers, reader: Reader) -> None:
    """Add the numbers of these records to the series of their processes."""
    losses: dict[int, list[tuple[float, dict[str, Any], tuple]]] = {}
    told = [r for r in records if r["e"] == "event" and r["name"].lower() in NAMES]
    for record in told[-MOST:]:
        text = _text(record, source)
        values = series.values(text)
        if not values:
            continue
        stream = writers.of_process(record["process"])
        at = (None, record["offset"], text)
        stream.series.add((record["step"], record["ns"], stream.rank, *at))
        if "loss" in values:
            losses.setdefault(id(stream), []).append((values["loss"], record, at))
    for points in losses.values():
        first = len(points)
        while first and not math.isfinite(points[first - 1][0]):
            first -= 1
        if first < len(points):
            value, record, (_, offset, text) = points[first]
            stream = writers.of_process(record["process"])
            stream.stage, stream.step = record["stage"] or "train", record["step"]
            stream.stamp = Stamp(record["ns"], 500, True, True, False) if record["ns"] else None
            said = {"step": record["step"]} if record["step"] is not None else {}
            where = f" at step {record['step']}" if said else ""
            reader._emit(stream, Kind.NON_FINITE, f"the loss is {value}{where}", "error", writers.place(offset, ""), attrs={"span": True, "inherited": False}, **said)


def _text(record: dict[str, Any], source: Source) -> str:
    """The numbers of a record as a line of training would print them: `loss=0.5 grad_norm=1.2`."""
    try:
        attributes = json.loads(read_range(source, record["offset"], LINE_BYTES).partition(b"\n")[0]).get("a") or {}
        numbers = {str(k): v for k, v in attributes.items() if isinstance(v, int | float | str) and not isinstance(v, bool)}
    except (ValueError, AttributeError, RecursionError):
        return ""
    if "value" in numbers:  # an event of the number's own name
        numbers = {record["name"]: numbers["value"], **numbers}
    first = sorted(numbers, key=lambda k: not k.lower().endswith(("loss", "norm")))
    return " ".join(f"{k}={str(numbers[k])[:30]}" for k in first)[:TEXT_MAX]
