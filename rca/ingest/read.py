"""Files to readings: scan every byte, decode only the excerpts that matter, read their lines.

The scan, the decoding and the reading of one file happen in one worker; what travels back is small and plain.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rca.ingest import courses, excerpt, generic, replays, samples, series, sightings, spans
from rca.ingest.archives import expand
from rca.ingest.engines import matcher as make_matcher
from rca.ingest.formats import Wrap
from rca.ingest.line import pieces
from rca.ingest.mend import Mended, Mender
from rca.ingest.parts import InParts
from rca.ingest.pool import scan_all
from rca.ingest.reader import Reader
from rca.ingest.scan import Part, ScanResult, line_numbers, merged, scan, search
from rca.ingest.signatures import Signature, load
from rca.ingest.sources import Source, list_sources, ranges, read_range
from rca.ingest.times import FIRST_SECOND, LAST_SECOND
from rca.model import Event, Reading
from rca.taxonomy import KERNEL_SHAPES

#: These open a block that needs no phrase of its own to matter; the scanner must see them for their surroundings to be decoded.
BLOCK_STARTS = ("traceback (most recent call last)", "fatal python error:", "childfailederror", "exception in thread ")
LINE_CUT = 64 << 10  # characters of one line that are parsed; the rest of such a line is scanned all the same
DIGITS_MAX = 1000
ENDLESS = re.compile(rf"(?<!\d)(\d{{{DIGITS_MAX}}})\d+")
DOCUMENT_MAX = 1 << 20
COUNT_ALONE_BYTES = 64 << 20  # newlines of so much are counted faster than workers are started
Allowance = tuple[int, int, int]  # bytes of a file to decode: of its ends, and around hits; points of a series to keep
TREE = re.compile(r"^(?P<tree>.*?)/?attempt_(?P<attempt>\d{1,4})/(?P<local_rank>\d{1,5})/[^/]+$")
NAMED_RANK = re.compile(r"(?:^|[._-])(?:global_?rank|rank|worker|proc|process)[._-]?(\d+)(?=[._-]|$)", re.I)
#: Output and core log of one of Ray's workers: worker id, job id in the first form, pid.
RAY_FILE = re.compile(r"(?:^|/)(?:python-core-)?(?:io-)?(?:worker|driver)-(?P<worker>[0-9a-f]{20,64})[-_](?:[0-9a-f]{8}[-_])?(?P<pid>\d{1,9})\.(?:out|err|log)(?:\.\d{1,3})?$")
#: A role before the number: rank 3 of the reference model is not rank 3 of the trainer.
ROLE = re.compile(rf"(?:{sightings.workers.ROLES})(?=[._-])", re.I)
GENERIC = re.compile(r"^(?:stdout|stderr|console|output|out|err|log|main|error|train(?:ing)?|run|all|merged)$", re.I)


def ingest(paths: list[Path], *, workers: int | None = None, progress: Callable[[int, int], None] | None = None,
           meanwhile: Callable[[], None] | None = None, signatures_of: Path | None = None) -> tuple[list[Reading], dict[str, Source]]:  # fmt: skip
    """Read everything below `paths`: one `Reading` per file, sorted by name, and the sources by name.

    `signatures_of` is a folder of further signatures. Raises RcaError for a path that does not exist, and for signatures that are not valid.
    """
    sources = expand(list_sources(paths), workers=workers, progress=progress)
    signatures = load(signatures_of)
    literals, by_literal = literal_table(signatures)
    files = sum(s.reason is None for s in sources)
    allowance = excerpt.share(files), excerpt.hits_share(files), series.share(files)

    def work(source: Source, engine: Any) -> dict[str, Any]:
        return replays.read(source) or spans.read(source, engine, by_literal, allowance[2]) or read_source(source, engine, by_literal, allowance)

    def part(source: Source, engine: Any, start: int, stop: int) -> Any:
        return spans.read_part(source, start, stop) or tuple(search(source, engine, start, stop))

    def join(source: Source, engine: Any, parts: list[Any]) -> dict[str, Any]:
        if found := replays.read(source) or spans.join(source, parts, engine, by_literal, allowance[2]):
            return found
        return read_scanned(source, merged([p if p[0] == "died" else Part(*p) for p in parts]), engine, by_literal, allowance)

    in_parts = InParts(part, join)
    results = scan_all(sources, work, lambda: make_matcher(literals), in_parts=in_parts, workers=workers, progress=progress, meanwhile=meanwhile)
    readings = [reading(source, result) for source, result in zip(sources, results, strict=True)]
    return readings, {s.name: s._replace(lines=r["scan"]["lines"]) if isinstance(r, dict) else s for s, r in zip(sources, results, strict=True)}


def literal_table(signatures: tuple[Signature, ...]) -> tuple[list[bytes], list[list[Signature]]]:
    """The distinct literals to scan for, and for each the signatures that it may mean."""
    table: dict[str, list[Signature]] = {}
    for signature in signatures:
        for literal in () if signature.frames else signature.literals:  # what ends a traceback is looked at there, whatever it says
            table.setdefault(literal.lower(), []).append(signature)
    for literal in (*BLOCK_STARTS, *generic.scanned(), *(word.decode() for word in sightings.LITERALS)):
        table.setdefault(literal, [])
    announcing = {word: long for word, long in courses.load().scanned().items() if word not in table}
    keys = sorted({*table, *announcing})
    found = Literals(table.get(k, []) for k in keys)
    found.lines = {i: announcing[k] for i, k in enumerate(keys) if k in announcing}
    return [k.encode() for k in keys], found


class Literals(list):
    """The signatures of each literal; of those in `lines`, announcements of stages, only the line is wanted, be it long (True) or not."""

    lines: Mapping[int, bool] = excerpt.NONE


def read_source(source: Source, engine: Any, by_literal: list[list[Signature]], allowance: Allowance) -> dict[str, Any]:
    """Scan and read one file; the result is plain values that `marshal` takes."""
    return read_scanned(source, scan(source, engine), engine, by_literal, allowance)


def read_scanned(source: Source, result: ScanResult, engine: Any, by_literal: list[list[Signature]], allowance: Allowance) -> dict[str, Any]:
    """Read the excerpts of a file that has been scanned."""
    # What only names somebody is looked at by itself: its surroundings are no evidence.
    announced = getattr(by_literal, "lines", excerpt.NONE)
    hits = [hit for hit in result.hits if by_literal[hit[0]] or hit[0] in announced or engine.literals[hit[0]] not in sightings.LITERALS]
    *decoded, points = allowance
    reader = Reader(source.name, points)
    size = result.decoded_size
    measured = samples.whole(source, size) if size else None
    mixed = measured is not None and measured.tabular and any(by_literal[i] for i, _ in hits)  # tables, and phrases that mean something by themselves
    if measured is None or mixed:
        _evidence(source, reader, engine, hits, by_literal, size, announced, decoded)
    out = reader.finish() if measured is None else samples.result(measured, reader)
    out["sightings"] = sightings.look(source, size, engine.literals, result.hits)
    out["scan"] = {"consumed": result.consumed, "truncated": result.truncated, "lines": result.lines}
    if out["shape"] == "plain" and reader.shapes.get("error_json"):
        out["shape"] = "error_json"
    return out


def _evidence(source: Source, reader: Reader, engine: Any, hits: list[tuple[int, int]], by_literal: list[list[Signature]], size: int, announced: Mapping[int, bool], decoded: list[int]) -> None:
    """Read the lines around hits and at the ends of a file, or the one error document that it is."""
    if size <= DOCUMENT_MAX and _opens_document(read_range(source, 0, 64)) and (found := error_document(read_range(source, 0, size))):
        document(reader, found, (1, 0, found["raw"][:600]), [s for i, _ in hits for s in by_literal[i]])
        return
    regions = excerpt.regions(size, hits, *decoded, announced)
    with ranges(source) as excerpt_of:
        lines = _Lines(excerpt_of, reader, engine, hits, by_literal)
        for (start, end), (limit, _) in zip(regions, [*regions[1:], (size, size)], strict=True):
            lines.read(start, end, size)
            lines.finish_block(min(limit, end + excerpt.BLOCK_MAX - excerpt.AFTER_HIT), size)


class _Lines:
    """Decodes regions of one file, from first to last, and feeds them line by line with the signatures found in each line."""

    def __init__(self, excerpt_of: Callable[[int, int], bytes], reader: Reader, engine: Any, hits: list[tuple[int, int]], by_literal: list[list[Signature]]) -> None:
        self._excerpt_of, self._reader, self._engine, self._hits, self._by_literal = excerpt_of, reader, engine, hits, by_literal
        self._mender: Mender | None = None
        self._offsets = [offset for _, offset in hits]
        self._at = 0  # behind the last line that was fed
        self._number: int | None = 1  # of the line there, as long as all lines before were fed

    def read(self, start: int, end: int, size: int) -> None:
        """Feed a region, cut at line ends."""
        data = self._excerpt_of(start, end - start)
        if start != self._at:
            self._number = None  # there is a gap
            cut = data.find(b"\n") + 1  # begin at a line; the part before belongs to a line that another excerpt may hold
            data, start = data[cut:], start + cut
        if end < size and b"\n" in data:
            data = data[: data.rfind(b"\n") + 1]
        self._feed(data, start, lambda: True)

    def finish_block(self, end: int, size: int) -> None:
        """Read on, up to `end`, for as long as a traceback or stack dump is open: it ends with a line that is not part of it."""
        reader = self._reader
        if end <= self._at or all(s.block is None for s in reader.streams.values()):
            return
        data = self._excerpt_of(self._at, end - self._at)
        data = data if end == size else data[: data.rfind(b"\n") + 1]
        self._feed(data, self._at, lambda: any(s.block is not None for s in reader.streams.values()))

    def _feed(self, data: bytes, start: int, more: Callable[[], bool]) -> None:
        """Feed the lines of `data`, which lies at `start`, while there is to be more."""
        self._mender = self._mender or Mender(data)
        if (mended := self._mender.mend(data, self._number, start, self._spans)) is not None:
            self._feed_mended(mended, start + len(data), more)
            return
        reader, hits, offsets = self._reader, self._hits, self._offsets
        position = 0
        index = bisect_left(offsets, start)
        while position < len(data) and more():
            stop = data.find(b"\n", position)
            stop = len(data) if stop < 0 else stop
            raw = data[position : min(stop, position + LINE_CUT)]
            found: list[Signature] = []
            while index < len(offsets) and offsets[index] < start + stop + 1:
                if offsets[index] >= start + position:
                    found.extend(self._by_literal[hits[index][0]])
                index += 1
            text = raw.decode("utf-8", "replace")
            if "\ufffd" in text:
                reader.damaged += 1
            _take(reader, text, self._number, start + position, found)
            position = stop + 1
            self._number = self._number + 1 if self._number is not None else None
        self._at = start + min(position, len(data))

    def _feed_mended(self, lines: list[Mended], end: int, more: Callable[[], bool]) -> None:
        """Feed lines that are not what lies in the file: their phrases are looked for anew."""
        data = "\n".join(line.text for line in lines).encode("utf-8", "replace")
        hits = sorted((stop - len(self._engine.literals[i]), i) for i, stops in self._engine.scan(data, 0, len(data)).items() for stop in stops)
        position = index = 0
        for line in lines:
            self._at, self._number = line.offset, line.number
            if not more():
                return
            position += len(line.text.encode("utf-8", "replace")) + 1
            found: list[Signature] = []
            while index < len(hits) and hits[index][0] < position:
                found.extend(self._by_literal[hits[index][1]])
                index += 1
            self._reader.damaged += "\ufffd" in line.raw
            _take(self._reader, line.text, line.number, line.offset, found, line.raw, line.wrap)
        self._at, self._number = end, self._mender.next_number if self._mender else None

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        """`(start, end)` of every known phrase in `data`."""
        return [(end - len(self._engine.literals[i]), end) for i, ends in self._engine.scan(data, 0, len(data)).items() for end in ends]


def _take(reader: Reader, text: str, number: int | None, offset: int, found: list[Signature], raw: str | None = None, wrap: Wrap | None = None) -> None:
    """Hand one line to the reader, in pieces where several share it."""
    if len(text) > DIGITS_MAX and (cut := ENDLESS.sub(r"\1", text)) != text:  # what is no number of anything, and more digits than Python reads
        raw, text = raw or text, cut
    if (found or "\r" in text) and text.lstrip()[:1] != "{":  # a JSON line is one record, whatever is inside
        for piece in pieces(text):
            low = piece.lower()
            reader.line(piece, number, offset, [s for s in found if any(w.lower() in low for w in s.literals)], raw, wrap)
    else:
        reader.line(text, number, offset, found, raw, wrap)


def _opens_document(head: bytes) -> bool:
    """Whether a file begins as a torchelastic `error.json` does."""
    return head.lstrip().startswith(b'{"message"')


def error_document(data: bytes) -> dict[str, Any] | None:
    """The content of a torchelastic `error.json`, recognised by its shape; None for anything else."""
    if not _opens_document(data[:64]):
        return None
    try:
        loaded = json.loads(data)
        message = loaded["message"]
        extra = message.get("extraInfo", {}) if isinstance(message, dict) else loaded.get("extraInfo", {})
        text = message["message"] if isinstance(message, dict) else message
        stamp = extra.get("timestamp") or loaded.get("timestamp")
        text, stack = (ENDLESS.sub(r"\1", str(said or "")) for said in (text, extra.get("py_callstack")))
        return {"text": text, "stack": stack, "epoch": second if FIRST_SECOND <= (second := int(stamp or 0)) < LAST_SECOND else None,
                "raw": data.decode("utf-8", "replace").split("\n", 1)[0]}  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def document(reader: Reader, found: dict[str, Any], at: tuple, signatures: list[Signature]) -> None:
    """An error file is the worker's own traceback with an epoch time: the one place where torchrun states a zone."""
    from rca.ingest.reader import Stream
    from rca.ingest.times import Stamp

    stream = reader.streams.setdefault("", Stream(reader.points))
    if found["epoch"]:
        stream.stamp, reader.zoned = Stamp(found["epoch"] * 1_000_000_000, 500_000_000, True, True, False), True
    trace = found["stack"] or f"Traceback (most recent call last):\n{found['text']}"
    reader.embedded(stream, trace, at, signatures)
    for event in reader.events:
        event["attrs"]["document"] = True
    reader.shapes["error_json"] = 1
    reader.parsed = len(found["raw"])


def named(name: str) -> dict[str, Any]:
    """What a file's path says about its writer: attempt and local rank of a torchrun tree, a rank, or an actor's name.

    >>> named("logs/none_ab12cd34/attempt_1/3/stderr.log")
    {'tree': 'logs/none_ab12cd34', 'attempt': 1, 'local_rank': 3}
    >>> named(f"session_latest/logs/worker-{'5c' * 28}-01000000-77113.err")
    {'pid': 77113, 'ray_worker': '5c5c5c5c5c5c'}
    >>> named("worker_2.log"), named("engine_train-0.log"), named("console.n17.log"), named("ref-worker-3.log")
    ({'named_rank': 2}, {'actor': 'engine_train-0'}, {'tokens': ('n17',)}, {'named_rank': 3, 'actor': 'ref-worker-3'})
    """
    if match := RAY_FILE.search(name):
        return {"pid": int(match["pid"]), "ray_worker": match["worker"][:12]}
    if match := TREE.match(name):
        return {"tree": match["tree"], "attempt": int(match["attempt"]), "local_rank": int(match["local_rank"])}
    stem = name.rsplit("/", 1)[-1]
    while "." in stem and re.fullmatch(r"(?:log|txt|out|err|jsonl?|gz|zst|xz|\d)", stem.rsplit(".", 1)[1]):
        stem = stem.rsplit(".", 1)[0]
    tokens = [t for t in stem.split(".") if t]
    if len(tokens) > 1 and GENERIC.match(tokens[0]) and not re.fullmatch(r"(?:global_?)?rank[._-]?\d+", tokens[1], re.I):
        return {"tokens": tuple(tokens[1:])}  # a console is named after its host, whatever that looks like
    if match := NAMED_RANK.search(stem):
        return {"named_rank": int(match[1])} | ({"actor": stem} if ROLE.match(stem) else {})
    return {} if GENERIC.match(stem) or not stem else {"actor": stem}


def reading(source: Source, result: Any) -> Reading:
    """The nouns of what a worker reported about one file."""
    if source.reason == "archive":
        return Reading(source.name, "archive", source.size, source.size, 0, 0)  # what is between its members
    if source.reason or not isinstance(result, dict):
        reason = source.reason or (result[1] if isinstance(result, tuple | list) and len(result) > 1 else "the reader died")
        return Reading(source.name, "skipped", source.size, 0, 0, source.size, reason)
    size, scanned = source.size, result["scan"]
    used = min(size, scanned["consumed"])
    # Bytes of a compressed file cannot be told apart by line: all that were used count as text.
    parsed = min(used, result["parsed"]) if source.compression is None and source.extent == size else 0
    events = tuple(Event(source=source.name, **event) for event in result["events"])
    facts = named(source.name) | {"streams": result["streams"], "samples": result["samples"], "sightings": result.get("sightings", []), "zoned": result["zoned"], "frameworks": result.get("frameworks", [])}
    if "spans" in result:
        facts["spans"] = result["spans"]
    if "named_rank" in facts and result["shape"] in KERNEL_SHAPES:  # nor has what a host's kernel says: `worker-2.journal.json` is of the host worker-2
        facts = {k: v for k, v in facts.items() if k not in ("actor", "named_rank")}
    if measured := result.get("measured"):
        facts["measured"] = measured
        if not measured.get("process"):  # a file of measurements has no process behind it, whatever its name
            facts = {k: v for k, v in facts.items() if k not in ("actor", "named_rank")}
    return Reading(
        source.name, result["shape"], size, parsed, used - parsed, size - used, scanned["truncated"] or (measured or {}).get("gaps") or None, result["damaged"],
        facts=facts, events=events,
    )  # fmt: skip


def resolve_lines(sources: dict[str, Source], wanted: dict[str, list[int]], workers: int | None = None) -> dict[tuple[str, int], int]:
    """Line numbers of the byte offsets that a report cites; files that are not cited are never counted.

    Where much is to be counted, all cores count: each file by one worker, as in the scan.
    """
    ordered = {name: sorted(set(offsets)) for name, offsets in wanted.items()}

    def count(source: Source, _: Any = None) -> list[int]:
        return line_numbers(source, ordered[source.name])

    cited = [sources[name] for name in ordered]
    much = len(cited) > 1 and sum(offsets[-1] for offsets in ordered.values()) > COUNT_ALONE_BYTES
    counted = scan_all(cited, count, lambda: None, workers=workers) if much else [None] * len(cited)
    found: dict[tuple[str, int], int] = {}
    for source, lines in zip(cited, counted, strict=True):
        if not isinstance(lines, list):  # counted here, or its worker died
            lines = count(source)
        found |= {(source.name, offset): line for offset, line in zip(ordered[source.name], lines, strict=True)}
    return found
