"""Hand-overs and checkpoints that traces state: what one file tells becomes events here, what needs both sides is left to correlate."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING, Any

from rca.ingest.spans.failures import SAVES
from rca.ingest.spans.table import ERROR, Table, failed_tag
from rca.ingest.times import Stamp
from rca.taxonomy import Kind

if TYPE_CHECKING:
    from rca.ingest.reader import Reader
    from rca.ingest.spans.events import Writers

KEPT = 4_000  # records that go on to correlate
DONE = ("true", "1", "yes", "ok", "complete", "completed", "committed", "success")
LOADS = re.compile(r"(?<!up)(?<!down)(?<!off)load|restore|resume|read", re.I)


def emit(table: Table, writers: Writers, reader: Reader) -> None:
    """Events of checkpoints; and every other record gets its line."""
    for note in table.notes:  # spans that carry a checksum or a manifest are records, too
        own = note["fields"]
        if "checksum" in own or ("item" in own and "count" in own) or "complete" in own or "fsync" in own:
            stage, step = table.phases[note["phase"]]
            kind = "checkpoint" if "complete" in own or "fsync" in own or stage in SAVES else "handoff"
            table.record(kind, note["name"], note["id"], note["end"] or note["start"], note["offset"], own, table.procs[note["proc"]], stage, step, str(own.get("request") or ""))
    saves: dict[tuple, list[dict[str, Any]]] = {}
    for record in table.records:
        if record["e"] == "checkpoint":
            loads = LOADS.search(record["name"]) is not None
            saves.setdefault((str(record["fields"].get("path") or record["name"]), record["step"], record["process"].get("rank"), str(record["fields"].get("shard", "")), loads), []).append(record)
    whole = max((r["ns"] or 0 for (*_, loads), found in saves.items() if loads for r in found if str(r["fields"].get("complete", "")).lower() in DONE), default=-1)
    lasted = Lasted(table)
    for (*_, loads), found in saves.items():
        if loads:
            _loaded(found, writers, reader, whole)
        else:
            _checkpoint(found, lasted, writers, reader)
    _exits(table, writers, reader)
    kept = [r for r in table.records if r["e"] not in ("checkpoint", "exit") and (r["e"] != "event" or r["receivers"] or "receivers" in r["fields"])]
    table.records = kept[-KEPT:]
    for record in table.records:
        record["raw"] = writers.place(record["offset"], record["id"])[2]
        record["line_offset"] = writers.place(record["offset"], record["id"])[1]


def _exits(table: Table, writers: Writers, reader: Reader) -> None:
    """A process that left in order, with nothing behind it that failed or is open, is done."""
    spoiled = any(n["end"] is None or (n["status"] == ERROR and not n["parent"]) for n in table.notes)
    for record in table.records:
        stream = writers.of_process(record["process"]) if record["e"] == "exit" and "exception_type" not in record["fields"] else None
        if stream is not None and not spoiled:
            stream.stage, stream.step = None, None
            stream.stamp = Stamp(record["ns"], 500, True, True, False) if record["ns"] else None
            reader._emit(stream, Kind.FINISHED, "the process ended in order", "info", writers.place(record["offset"], record["id"]), attrs={"span": True, "inherited": False, "left": True})


def _stream(record: dict[str, Any], writers: Writers, stage: str | None) -> Any:
    """The stream of a record's process, at the record's time, stage and step."""
    stream = writers.of_process(record["process"])
    stream.stage, stream.step = record["stage"] or stage, record["step"]
    stream.stamp = Stamp(record["ns"], 500, True, True, False) if record["ns"] else None
    return stream


def _checkpoint(records: list[dict[str, Any]], lasted: Lasted, writers: Writers, reader: Reader) -> None:
    """What became of one checkpoint: complete, failed, or begun and left."""
    last = records[-1]
    own = last["fields"]
    done = str(own.get("complete", "")).lower() in DONE or str(own.get("complete")) == "True"
    synced = str(own.get("fsync", "ok")).lower() in (*DONE, "0", "none", "")
    error = own.get("error")
    broken = (error is not None and failed_tag(error)) or not synced
    if "complete" not in own and "fsync" not in own and error is None:
        return  # it says nothing of an end
    stream = _stream(last, writers, "save")
    at = writers.place(last["offset"], last["id"])
    step = {"step": last["step"]} if last["step"] is not None else {}
    path = own.get("path")
    what = f"checkpoint {path}" if path else f"checkpoint of {last['name']}"
    more: dict[str, Any] = {}
    if broken:
        kind, severity, text = Kind.SAVE_FAILED, "error", f"{what}: {own.get('fsync') if not synced else error}"
    elif done:
        kind, severity, text = Kind.SAVED, "info", f"{what} is complete"
    else:
        more = lasted.of(last)
        kind, severity, text = Kind.SAVE_OPEN, "warning", f"{what} was begun and is not complete"
    reader._emit(stream, kind, text, severity, at, attrs={"span": True, "inherited": False, "stage_key": True, "files": own.get("files"), **more}, **step, **({"path": str(path)} if path else {}))


class Lasted:
    """How long saves took and take, by process: one that was killed in the midst of a save had no time to hang."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: dict[tuple, tuple[int, float | None]] = {}  # the last sign of life, and what a save of it takes

    def of(self, begun: dict[str, Any]) -> dict[str, Any]:
        """For how many seconds its process is known to have gone on with the save open, and how many others of it took."""
        if begun["ns"] is None or not self._table.clock:
            return {}
        key = tuple(sorted((k, str(v)) for k, v in begun["process"].items()))
        if key not in self._known:
            self._known[key] = self._look(begun["process"])
        last, usual = self._known[key]
        return {"open_s": round(max(0, last - begun["ns"]) / 1e9, 1), "usual_s": usual}

    def _look(self, process: dict[str, Any]) -> tuple[int, float | None]:
        mine = [r for r in self._table.records if r["process"] == process and r["ns"] is not None]
        procs = {number for number, about in enumerate(self._table.procs) if about == process}
        columns = self._table.columns
        spans = (max(start, end) for start, end, proc in zip(columns["start"], columns["end"], columns["proc"], strict=True) if proc in procs)
        began = {r["id"]: r["ns"] for r in reversed(mine) if r["e"] == "checkpoint"}
        took = [(r["ns"] - began[r["id"]]) / 1e9 for r in mine if r["e"] == "checkpoint" and r["ns"] > began[r["id"]]]
        return max((*(r["ns"] for r in mine), *spans), default=0), round(median(took), 3) if took else None


def _loaded(records: list[dict[str, Any]], writers: Writers, reader: Reader, whole_ns: int) -> None:
    """What a checkpoint was found to be before it was read: as it was written, or not. `whole_ns`: when one was read last that is."""
    for last in records:
        own = last["fields"]
        error = own.get("error")
        broken = (error is not None and failed_tag(error)) or str(own.get("complete", "")).lower() in ("false", "0")
        if not broken and str(own.get("complete", "")).lower() not in DONE:
            continue  # it was taken as it is
        stream = _stream(last, writers, "recover")
        path = str(own["path"]) if own.get("path") else None
        what = f"checkpoint {path}" if path else f"checkpoint of {last['name']}"
        text = f"{what} is not as it was written: {error or 'incomplete'}" if broken else f"{what} is as it was written"
        damage = own.get("error")
        silent = True if broken and whole_ns < (last["ns"] or 0) else None  # it was used as it is, and nobody need notice
        attrs = {"span": True, "inherited": False, "stage_key": True, "manifest": silent, "verified": True, **({"file": str(damage).split(" ", 1)[0]} if broken and damage else {})}
        reader._emit(stream, Kind.CHECKPOINT_INVALID if broken else Kind.LOADED, text, "error" if broken else "info", writers.place(last["offset"], last["id"]), attrs=attrs, **({"path": path} if path else {}))
