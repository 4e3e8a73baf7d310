"""The lines of one process of a recording: header, `request`, `file`, `outcome`, `call`, `answer`, in one file or in several segments of it.

    {"e":"request","t":1,"id":"1","rq":"8f","n":"generate","st":"rollout","s":3,"args":{"values":{},"tensors":"<digest>","digests":{}},"state":{},"rng":{}}

What is torn or has another form than this is a gap, which says where; the lines around it count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rca.errors import RcaError
from rca.replay.recording import HINT, Call, FileRead, Header, Recording, Request, Value
from rca.trace_inject.recording import BYTES, SCHEMA

LINE_MAX = 16_384  # bytes; a writer's longest has 3,500
VALUES = ("args", "result", "sent", "arrived")
DEPTH_MAX = 100  # of values within values: what is made of them goes down by calls
ELSEWHERE = "$in"  # of a part that was too long for its line: the digest of the blob that has it


class Process:
    """What one process has written."""

    def __init__(self, into: Recording, stem: str, paths: list[Path]) -> None:
        self.into, self.stem, self.paths = into, stem, paths
        self.header: Header | None = None
        self.requests: dict[str, Request] = {}
        self.calls: dict[str, Call] = {}

    def read(self) -> None:
        """Add it to the recording. Raises RcaError for a file without a header, or of another version."""
        for path in sorted(self.paths, key=_begun):
            headed = False
            for number, record in self._records(path):
                if "schema" in record:
                    self._head(record, path, number)
                    headed = True
                elif not headed:
                    raise RcaError("the header is missing", where=f"{path}:{number}", hint=HINT)
                else:
                    try:
                        self._take(record, path, number)
                    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                        self._gap(path, number, f"a line of another form: {type(error).__name__}: {str(error)[:100]}")
            if not headed:
                self._gap(path, 1, "nothing was written: no header")
        self._end()

    def _end(self) -> None:
        self.into.requests += self.requests.values()
        self.into.calls += self.calls.values()
        self.requests, self.calls = {}, {}

    def _gap(self, path: Path, number: int, text: str) -> None:
        self.into.gap(f"{path}:{number}: {text}")

    def _records(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Whole lines that are JSON objects. Raises RcaError."""
        try:
            with path.open("rb") as file:
                number = 0
                while line := file.readline(LINE_MAX):
                    number += 1
                    whole = line.endswith(b"\n")
                    if not whole and len(line) == LINE_MAX:
                        while (rest := file.readline(LINE_MAX)) and not rest.endswith(b"\n"):
                            pass
                        self._gap(path, number, f"a line of more than {LINE_MAX} bytes")
                        continue
                    if not line.strip():
                        continue
                    try:
                        record = json.loads(line)
                        if not isinstance(record, dict) or (line.count(b"[") + line.count(b"{") > DEPTH_MAX and _deep(record)):
                            raise ValueError("no object")
                    except (ValueError, RecursionError):
                        self._gap(path, number, "a damaged line" if whole else "the file ends within a line")
                        continue
                    yield number, record
        except OSError as error:
            raise RcaError(f"cannot read the recording: {(error.strerror or str(error)).lower()}", where=str(path)) from error

    # -- the header ---------------------------------------------------------------------------------------------------------

    def _head(self, record: dict[str, Any], path: Path, number: int) -> None:
        if record["schema"] != SCHEMA:
            raise RcaError(f"a recording of another version: `{str(record['schema'])[:80]}`, where `{SCHEMA}` is read", where=f"{path}:{number}", hint="use the version of `rca` that recorded, or record the run again")
        lacking = [name for name, kind in (("host", str), ("pid", int), ("start", int)) if not isinstance(record.get(name), kind)]
        if lacking:
            raise RcaError(f"the header lacks `{'`, `'.join(lacking)}`", where=f"{path}:{number}", hint=HINT)
        limits, versions, facts = (found if isinstance(found := record.get(name), dict) else {} for name in ("limits", "versions", "facts"))
        header = Header(
            self.stem, _text(record.get("role")) or "process", _whole(record.get("rank")), record["host"], record["pid"], _whole(record.get("attempt")) or 1, record["start"],
            _whole(record.get("world_size")), _text(record.get("run")), _text(record.get("program")), _text(record.get("folder")),
            {str(k): str(v) for k, v in versions.items()}, facts, {str(k): v for k, v in limits.items() if type(v) is int}, path,
        )  # fmt: skip
        if self.header is not None and (self.header.start_ns, self.header.pid) == (header.start_ns, header.pid):
            return  # the same process, in a further segment or after its file was gone
        self._end()  # another process of the same name and number, whose ids begin anew
        self.header = header
        self.into.headers.append(header)

    # -- the others ---------------------------------------------------------------------------------------------------------

    def _take(self, record: dict[str, Any], path: Path, number: int) -> None:
        kind, key = record["e"], record.get("id")
        if kind == "event":
            if record["n"] == "rca.dropped":
                self._gap(path, number, f"{record['a']['count']} lines could not be written")
            return
        record = {name: self._elsewhere(name, value, path, number) for name, value in record.items()}
        if kind == "request":
            self._request(record, path, number)
        elif kind == "call":
            self._call(record, path, number)
        elif kind == "file":
            self._file(record, path, number)
        elif kind == "outcome" and key in self.requests:
            said = _outcome(record)
            self.requests[key] = replace(self.requests[key], **said, result=_value(record.get("result")), after=dict(record.get("after") or {}))
        elif kind == "answer" and key in self.calls:
            self.calls[key] = replace(self.calls[key], **_outcome(record), arrived=_value(record.get("arrived")))
        elif kind in ("outcome", "answer"):
            self._gap(path, number, f"the end of a request `{str(key)[:40]}` whose beginning is not there")

    def _request(self, record: dict[str, Any], path: Path, number: int) -> None:
        assert self.header is not None
        if record["id"] in self.requests:
            return  # told again at the begin of a segment
        made = Request(
            self.header, str(record["id"]), _text(record.get("rq")), str(record["n"]), _whole(record.get("s")), _text(record.get("st")), int(record["t"]),
            _value(record["args"]) or Value({}, kept=False), dict(record.get("state") or {}), {str(k): str(v) for k, v in (record.get("rng") or {}).items()}, path, number,
        )  # fmt: skip
        self.requests[made.id] = made

    def _call(self, record: dict[str, Any], path: Path, number: int) -> None:
        assert self.header is not None
        if record["id"] in self.calls:
            return
        role, _, rank = str(record["w"]).rpartition("/")
        if not role or not rank.isdecimal() or len(rank) > 9:
            role, rank = str(record["w"]), ""
        made = Call(
            self.header, str(record["id"]), _text(record.get("rq")), role, int(rank) if rank else None, str(record["n"]), _whole(record.get("s")), _text(record.get("st")),
            _text(record.get("g")), int(record["t"]), _value(record["sent"]) or Value({}, kept=False), path, number,
        )  # fmt: skip
        self.calls[made.id] = made

    def _file(self, record: dict[str, Any], path: Path, number: int) -> None:
        read = FileRead(str(record["path"]), str(record["digest"]), int(record["size"]), record.get("kept") is not False)
        request = self.requests.get(str(record.get("id")))
        if request is not None:
            self.requests[request.id] = replace(request, files=(*request.files, read))

    def _elsewhere(self, name: str, value: Any, path: Path, number: int) -> Any:
        """A part of a line that was too long for it. One of a step that is no longer kept is no gap: it is said not to be kept."""
        if not isinstance(value, dict) or ELSEWHERE not in value or value.keys() - {ELSEWHERE, "kept"}:
            return value
        try:
            if not self.into.has(str(value[ELSEWHERE]), self.stem, BYTES):
                return {"text": "(too long for its line, and no longer kept)"} if name == "error" else {"kept": False} if name in VALUES else None
            found = json.loads(self.into.bytes(str(value[ELSEWHERE]), self.stem))
            if _deep(found):
                raise ValueError("nested too deep")
            return found
        except RcaError as error:
            self._gap(path, number, f"what did not fit into the line is damaged: {error.message}")
        except (ValueError, RecursionError):
            self._gap(path, number, "what did not fit into the line is no JSON")
        return None


def _begun(path: Path) -> tuple[int, str]:
    """When the file was begun: segments take turns."""
    try:
        with path.open("rb") as file:
            for line in (file.readline(LINE_MAX) for _ in range(5)):
                if line.startswith(b'{"schema"'):
                    return int(json.loads(line)["clock"]["wall"]), path.name
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    return 0, path.name


def _deep(value: Any) -> bool:
    """Whether values lie in each other too deep."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [inner for each in level if isinstance(each, dict | list) for inner in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return True


def _value(said: Any) -> Value | None:
    if said is None:
        return None
    tensors = said.get("tensors")
    return Value(dict(said.get("values") or {}), None if tensors is None else str(tensors), {str(k): str(v) for k, v in (said.get("digests") or {}).items()}, said.get("kept") is not False)


def _outcome(record: dict[str, Any]) -> dict[str, Any]:
    error = record.get("error") or {}
    return {"end_ns": int(record["t"]), "outcome": "ok" if record["ok"] is True else "error", "error_type": _text(error.get("type")), "error": _text(error.get("text"))}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
