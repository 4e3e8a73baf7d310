"""Lines to events: one pass over the decoded excerpts of one file.

Several processes may write into one file (a `--tee` console, Ray, srun), so everything that spans lines - the context, a
traceback in progress - is kept per *stream*. Context flows downwards: a line without its own time, rank or step has those of the
line above it in its stream.
"""

from __future__ import annotations

import re
from typing import Any

from rca.ingest import calls, generic, marks, series, trace_context
from rca.ingest.blocks import child_failed, counters, engine_error, query_csv, remote, stacks
from rca.ingest.blocks.chain import speaker
from rca.ingest.blocks.opening import opened
from rca.ingest.blocks.traceback import HEADLESS, IGNORED, OPENS, Raised, Traceback, unfused
from rca.ingest.fields import fields_of
from rca.ingest.formats import Wrap, progress
from rca.ingest.formats.continued import is_continued
from rca.ingest.introduction import introduce
from rca.ingest.line import Line, parse, parse_behind
from rca.ingest.prompt import runs_here, typed
from rca.ingest.raised import TRANSPORT_ERRORS, cut_off, in_worker, kind_of, sensed, without_shreds
from rca.ingest.rhythm import Rhythm
from rca.ingest.series import Series
from rca.ingest.signatures import Signature, best
from rca.ingest.stages import stage_of
from rca.ingest.whose import whose_code
from rca.taxonomy import Kind

TEXT_CUT = 2000  # characters of a message that an event keeps
RAW_CUT = 600  # characters of the raw line that travel with an event, more than a report cites
FACT_LINES = 60  # a process says who it is in its first lines
MARK_CUT = 200
LEAST_MARKS, MARKS_PER_POINT = 24, 2  # step lines kept of a stream: thousands where there are few, a handful where there are thousands of ranks
WHAT_RANK = re.compile(r"\s*what\(\): {0,4}\[(?:PG [^\]]{0,60})?Rank (\d{1,6})\]")
BARE = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception)): (\S.*)$")
CALM = ("info", "debug", "warning")
OPENING = frozenset("TFPe")  # with these letters the lines begin that open a block by themselves
METRIC = re.compile(r"\bloss\b|grad|tokens/s|samples/s|it/s|elapsed time per iteration", re.I)
THREAD = re.compile(r"^Exception in thread ([^\s:(]+)")
STAGE_OF_KIND = {Kind.SAVE_STARTED: "save", Kind.LOAD_STARTED: "load"}
ENDS_STAGE = {Kind.SAVED: "save", Kind.LOADED: "load"}
LOUD = ("warning", "error", "critical")
NO_RHYTHM = ("kernel", "klog")  # counters of the kernel are not steps
LEVELS = {"error": "error", "critical": "fatal", "fatal": "fatal"}


class Stream:
    """What is known about one writer at the current line."""

    __slots__ = ("actor", "block", "child_rank", "facts", "first", "heading", "host", "last", "lines", "local_rank", "marks", "pid", "rank", "ranks", "raw", "rhythm", "said_stage", "said_step", "seen", "seq", "series", "stage", "stamp", "step")

    def __init__(self, points: int, most_marks: int = LEAST_MARKS) -> None:
        self.marks, self.said_step = marks.Marks(most_marks), -1
        self.rank = self.local_rank = self.host = self.pid = self.actor = None
        self.stage = self.step = self.stamp = self.first = self.last = None
        self.said_stage = False
        self.rhythm = Rhythm()
        self.block: Any = None
        self.heading: Any = None
        self.lines: list[tuple] = []
        self.raw: list[tuple] = []
        self.facts: dict[str, Any] = {}
        self.seq = self.seen = 0
        self.series = Series(points)
        self.ranks: set[int] = set()
        self.child_rank: int | None = None  # of the last prefixed line: a C++ abort has no prefix of its own


class Reader:
    """Reads the lines of one file in order; `finish` returns its events, marks, samples and facts as plain values.

    A mark is a sign of life, `(ns, step, stage, line, offset, text, number of the line in its stream)`; of the `steps` all but the last
    are cut to `(ns, step, offset)`.
    """

    def __init__(self, name: str, points: int = series.share(1)) -> None:
        self.name, self.points = name, points  # of each stream's series, at most
        self.marks = max(LEAST_MARKS, points * MARKS_PER_POINT)
        self.streams: dict[str, Stream] = {}
        self.events: list[dict[str, Any]] = []
        self.samples: list[tuple] = []
        self.shapes: dict[str, int] = {}
        self.zoned = False
        self.parsed = self.damaged = 0
        self.ending = False
        self.guess, self.frameworks = generic.Guesses(), set[str]()

    # -- one line ---------------------------------------------------------------------------------------------------

    def line(self, text: str, number: int | None, offset: int, found: list[Signature], raw: str | None = None, wrap: Wrap | None = None) -> None:
        """Take one decoded line; `found` are the signatures whose literal the scanner saw in it.

        Of a mended line, `raw` is what lies in the file and `wrap` what the label before it told.
        """
        line = parse(text) if wrap is None else parse_behind(text, wrap)
        stream = self.streams.get(line.stream)
        if stream is None:
            stream = self.streams[line.stream] = Stream(self.points, self.marks)
        if line.stream:
            self._from_parent(stream, line.stream)
        if line.shape != "plain":
            self.parsed += len(text) + 1
            self.shapes[line.shape] = self.shapes.get(line.shape, 0) + 1
        at = (number, offset, (raw or text)[:RAW_CUT])
        if stream.block is not None and not self._continues(stream, line, at, found):
            self._close(stream)
        if stream.block is None:
            if line.shape == "plain" and (host := typed(text)) is not None:  # what somebody asked is no evidence; what was answered is
                stream.host = host if host and stream.host is None and runs_here(text) else stream.host
                return
            line = self._context(stream, line, at, found)
            self._open(stream, line, at, found)

    def _from_parent(self, stream: Stream, key: str) -> None:
        """A prefix that only some lines carry (`[rank3]: ` of a traceback) opens a stream; what the lines before it said holds there too."""
        parent = self.streams.get(key.rpartition("/")[0])
        if parent is not None and parent is not stream and parent.seq > stream.seen:
            stream.seen = parent.seq
            stream.stamp, stream.stage, stream.step, stream.said_stage = parent.stamp, parent.stage, parent.step, parent.said_stage
            stream.actor, stream.host, stream.pid = stream.actor or parent.actor, stream.host or parent.host, stream.pid or parent.pid
            if key.rpartition("/")[0]:
                stream.local_rank = stream.local_rank if stream.local_rank is not None else parent.local_rank

    def _context(self, stream: Stream, line: Line, at: tuple, hits: list[Signature]) -> Line:
        # Every line of a healthy excerpt comes by here: what is looked for is first asked for by a substring, which costs a tenth of a regex.
        text, stamp, _, rank, local_rank, host, pid, actor, stage, step, key, _, prefixed, logger, _ = line
        low = text.lower()
        metric = progress.has_metric(low)
        if step is None and metric and (step := progress.counted(text)) is not None:
            line = line._replace(step=step)
        if step is None and not hits and "." in text and line.level not in LOUD and line.shape not in NO_RHYTHM and not counters.may_hold(low):
            step = stream.rhythm.beat(text)
        if rank is None and key == "" and text[:1] in progress.WRITERS and (rank := progress.writer(text)) is not None:
            line = line._replace(rank=rank)
        if rank is not None:
            stream.ranks.add(rank)
        shared = "shared" in stream.facts  # where no line speaks for the next one
        if host is not None or shared:
            stream.host = host
        stream.actor = stream.actor if actor is None else actor
        launcher = logger is not None and "torch/distributed/" in logger  # its lines speak of others: neither rank nor pid is a worker's
        if not launcher:
            stream.rank = stream.rank if rank is None else rank
            stream.local_rank = stream.local_rank if local_rank is None else local_rank
            stream.pid = stream.pid if pid is None else pid
        if launcher or (rank is None and (shared or len(stream.ranks) > 1)):
            stream.rank, stream.pid = None, pid if shared else None  # several ranks share this console: a line without a rank is nobody's
        if stamp is not None:
            stream.stamp = stamp
            while key:  # a line without any prefix that follows, a C++ abort say, is not older than this one
                key = key.rpartition("/")[0]
                if (above := self.streams.get(key)) is not None:
                    above.stamp, above.child_rank = stamp, rank if rank is not None else above.child_rank
            self.zoned = self.zoned or stamp.has_zone
        if stage is not None:
            stream.stage, stream.said_stage = stage, True
        elif step is not None and not stream.marks.announces and (not stream.said_stage or METRIC.search(text)):
            stream.stage = "train"  # a line of training metrics ends whatever stage was announced before
        if step is not None:
            stream.step, stream.said_step = step, stream.seq + 1
        if prefixed or step is not None:
            stream.seq += 1
            mark = (stamp.ns if stamp else None, step, stage, at[0], at[1], at[2][:MARK_CUT], stream.seq)
            stream.first = stream.first or mark
            # One mark per step is enough to see progress; the last line is always kept as the sign of life.
            if step is not None and (not stream.lines or stream.lines[-1][1] != step):
                stream.lines.append(mark)
                if len(stream.lines) > self.marks:  # the first and the newest stay
                    stream.lines[1 : self.marks // 2] = stream.lines[1 : self.marks // 2 : 2]
            stream.last = mark
        if metric and (step is not None or "loss" in low):
            stream.series.add((step, stream.stamp.ns if stamp else None, rank if rank is not None else stream.rank, *at))
        if (seen := marks.look(low))[0]:
            marks.take(stream, line, at, *seen, low, self.frameworks)
        if stream.seq <= FACT_LINES:
            introduce(stream.facts, text, low, known=bool(hits))
        if counters.sampled(low):
            ns = stream.stamp.ns if stream.stamp else None
            self.samples += [(ns, stream.host, *sample, *at) for sample in counters.samples(text, at[2])]
        return line

    # -- blocks -----------------------------------------------------------------------------------------------------

    def _open(self, stream: Stream, line: Line, at: tuple, found: list[Signature]) -> None:
        text = line.text
        if line.extra and (trace := line.extra.get("exc")):
            self.embedded(stream, str(trace), at, found, remote.quoted(text) if line.extra.get("quoted") else None)
            return
        if (opens := OPENS in text) or ('File "' in text and HEADLESS.match(text)) or (found and remote.opens(text)):
            stream.block, stream.raw = Traceback(stream.stamp), []
            before = text.partition(OPENS)[0].strip() if opens else ""
            if " " in before:  # "ERROR request failed Traceback ..." on one line
                stream.heading = stream.heading or (before, at)
            self._continues(stream, line._replace(prefixed=False), at, found)
            return
        if text[:1] in OPENING and (block := opened(text, bool(found))) is not None:
            stream.block, stream.raw = block, [(at, text, found)]
            return
        if query_csv.is_start(text):
            stream.block = query_csv.Query(text)
            return
        if child_failed.is_start(text) and not line.prefixed:
            stream.block, stream.raw = child_failed.ChildFailed(), []
            stream.block.feed(text)
            if found:
                self._signature(stream, line, at, found)
            return
        if text[:1] == "E" and (thread := THREAD.match(text)):
            stream.heading = (f"thread {thread[1]}", at)
            return
        if found and self._signature(stream, line, at, found):
            return
        if line.level not in CALM and (": " in text) and (bare := BARE.match(text)):
            # The head of its traceback was cut off or never printed; the last line still says what was raised.
            name = unfused(bare[1]).rsplit(".", 1)[-1]
            attrs = {"exception": name, "traceback": True, "bare": True, "inherited": line.stamp is None, "frames": []}
            kind, felt = (Kind.PEER_LOST, {}) if name in TRANSPORT_ERRORS else self.guess(generic.meaning(text, "error"), Kind.EXCEPTION)
            self._emit(stream, kind, text[:TEXT_CUT], "error", at, attrs=attrs | felt)
            return
        severity = LEVELS.get(line.level or "")
        kind, felt = self.guess(generic.sense(line, at[2]), Kind.LOGGED_ERROR)
        if felt or severity:
            attrs = felt and {**felt, "inherited": line.stamp is None}
            self._emit(stream, kind, text[:TEXT_CUT] if felt else text, severity or ("error" if line.level is None else "warning"), at, attrs=attrs)
        if severity:
            stream.heading = (text, at)

    def _continues(self, stream: Stream, line: Line, at: tuple, found: list[Signature]) -> bool:
        block = stream.block
        if isinstance(block, Traceback):
            # A carrier puts its time before each line: the one that ends the traceback is not a message of its own.
            prefixed = line.prefixed and (block.ended or line.level is not None or not is_continued(line.text))
            if not block.feed(line.text, prefixed=prefixed, known=bool(found)):
                return False
            stream.raw.append((at, line.text, found))
            if "ChildFailedError" in line.text and block.ended:
                # The launcher's own traceback is never the cause; the summary that is its message is a block of its own.
                stream.block, stream.raw, stream.heading = child_failed.ChildFailed(), [], None
                self._emit(stream, Kind.AGENT_REPORT, line.text, "error", at)
            return True
        if isinstance(block, stacks.Stacks | engine_error.Typed):
            if line.prefixed or not block.feed(line.text):
                return False
            stream.raw.append((at, line.text, found))
            return True
        if isinstance(block, query_csv.Query):
            changes = block.feed(line.text)
            for kind, place, reason in changes or ():
                self._emit(stream, kind, line.text, "warning", at, attrs={"reason": reason}, stamp=line.stamp, **place)
            return changes is not None
        if line.prefixed and line.stamp is not None:
            return False
        entry = block.feed(line.text)
        if entry:
            self._exit(stream, entry)
        if child_failed.KEY.match(line.text) or child_failed.ENTRY.match(line.text):
            stream.raw.append((at, line.text, found))
        return True

    def _close(self, stream: Stream) -> None:
        block, stream.block = stream.block, None
        if isinstance(block, Traceback):
            frames, chain = block.frames, block.finish()
            self._raised(stream, block, chain, stream.raw)
            stream.heading = None
            for at, text, found in () if chain else stream.raw:  # its end is missing: what is known in it still happened
                if found:
                    self._signature(stream, Line(text), at, found)
            if not chain and self.ending and block.breaks_off and (cut := cut_off(frames, stream.raw, block.headed, alone=not self.events)) is not None:
                self._emit(stream, Kind.EXCEPTION, cut[0], "error", cut[1], attrs=cut[2], stamp=block.stamp, **remote.fields(block.remote, "", cut[2]))
        elif isinstance(block, stacks.Stacks):
            at, text, _found = stream.raw[0]
            frames = block.main()
            kind = Kind.STACK_DUMP if block.scheduled or block.demanded(alone=self.ending and not self.events and at[1] == 0) else Kind.FATAL_SIGNAL
            everything = [f"{f} {n}" for _, frames_ in block.threads for f, _, n in frames_]
            place, frame = stacks.telling(frames) or (None, None)
            attrs = {"place": place, "frame": frame, "frames": frames[:12], "fatal": block.fatal, "loader": any("utils/data" in e for e in everything),
                     "asked": block.asked, "processes": block.count}  # fmt: skip
            self._emit(stream, kind, text, "info" if kind is Kind.STACK_DUMP else "fatal", at, attrs=attrs, **block.who)
        elif isinstance(block, engine_error.Typed):
            found = [s for _, _, sigs in stream.raw for s in sigs]
            self._signature(self._above(stream), Line(block.text, stage=engine_error.stage_of_sub_error(block.sub_error)), stream.raw[0][0], found)
        elif block is not None and (entry := block.finish()):
            self._exit(stream, entry)

    def _above(self, stream: Stream) -> Stream:
        """The writer of an error whose lines came without the prefix of the line that announced them."""
        return next((s for s in self.streams.values() if s.heading and s.heading[1][0] == stream.raw[0][0][0] - 1), stream) if stream.raw[0][0][0] else stream

    def _exit(self, stream: Stream, entry: dict) -> None:
        """An entry of torchrun's summary: a process ended; its traceback there is a reprint."""
        code = entry["exitcode"]
        wanted = ("exitcode", "time") if isinstance(entry.get("rank"), int) else ("exitcode",)
        at = next((a for a, t, _ in stream.raw if re.match(r"\s*exitcode\s*:", t)), None) or stream.raw[0][0]
        attrs = {k: entry[k] for k in (*wanted, "first", "traceback", "error_file") if k in entry}
        attrs["signal"] = -code if code < 0 else None
        ranks = {k: entry[k] for k in ("rank", "local_rank", "pid", "attempt") if isinstance(entry.get(k), int)}
        text = f"rank {entry.get('rank')} on {entry.get('host')} ended with exit code {code}"
        stamp = parse(f"{str(entry.get('time', '')).replace('_', ' ')} x").stamp
        self._emit(stream, Kind.EXITED, text, "error", at, attrs=attrs, host=entry.get("host"), stamp=stamp, **ranks)
        stream.raw = []

    def embedded(self, stream: Stream, trace: str, at: tuple, found: list[Signature], whose: dict | None = None) -> None:
        """A traceback inside one line (a JSON field, an error file): all its lines have that line's address; `whose`: a callee's."""
        block, lines = Traceback(), []
        block.remote = whose or {}
        for text in trace.split("\n"):
            if not block.feed(text, prefixed=False):
                break
            lines.append((at, text, found))
        self._raised(stream, block, block.finish(), lines)

    def _raised(self, stream: Stream, block: Traceback, chain: list[Raised], lines: list[tuple]) -> None:
        """One traceback is one event; its kind is that of the oldest exception of the chain that a signature knows."""
        if not chain:
            return
        chosen, hit = speaker(chain, lines)
        last = chain[-1]
        inner = next((r for r in chain if r.worker), None)
        if inner is not None and (hit is None or hit[0].kind == Kind.LOADER_WORKER_EXCEPTION):
            chosen = inner  # what the worker raised, not the wrapper that brought it home
        if stream.heading and str(stream.heading[0]).startswith(IGNORED):
            return  # the line that announced it is an event already
        thread = stream.heading[0][7:] if stream.heading and str(stream.heading[0]).startswith("thread ") else None
        kind, felt = kind_of(chain, chosen, hit, thread), {}
        if kind is Kind.EXCEPTION and (found := sensed(chain)):
            chosen, (kind, felt) = found[0], self.guess(found[1], kind)
        at = next((a for p, (a, _, _) in enumerate(lines) if p == chosen.position), lines[-1][0])
        frames = [tuple(f) for f in chosen.frames] or [tuple(f) for f in last.frames]
        attrs: dict[str, Any] = {
            "inherited": stream.heading is None or thread is not None,  # its time is only that of an earlier line
            "exception": chosen.type.rsplit(".", 1)[-1], "chain": [r.text[:300] for r in chain], "frames": frames[-12:],
            "thread": thread, "loader": in_worker(chain), **whose_code(frames, chosen.type),
            "signature": hit[0].id if hit else None, "traceback": True, **felt,
        }  # fmt: skip
        fields = remote.fields(block.remote, chosen.text, attrs) | (fields_of(hit, attrs) if hit else {})
        if not stream.said_stage and "stage" not in fields:
            fields["stage"] = remote.stage_of_method(attrs.get("method")) or stage_of([f for r in chain for f in r.frames]) or stream.stage
        self._emit(stream, kind, chosen.text[:TEXT_CUT], "error", at, attrs=attrs, stamp=block.stamp, first=lines[0][0], **fields)

    # -- single lines -----------------------------------------------------------------------------------------------

    def _signature(self, stream: Stream, line: Line, at: tuple, found: list[Signature]) -> bool:
        hit = best(line.text, found)
        if hit is None:
            return False
        signature, _ = hit
        attrs: dict[str, Any] = {"signature": signature.id, "inherited": line.stamp is None}
        fields = fields_of(hit, attrs)
        fields.setdefault("stage", line.stage)
        kind = Kind(signature.kind)
        if kind in STAGE_OF_KIND and not stream.said_stage:
            stream.stage = STAGE_OF_KIND[kind]
        self._emit(stream, kind, line.text[:TEXT_CUT], signature.severity, at, attrs=attrs, **fields)
        if kind in ENDS_STAGE and not stream.said_stage:
            stream.stage = "train" if stream.step is not None else None
        if line.level in LEVELS or line.text.startswith(IGNORED):
            stream.heading = (line.text, at)
        return True

    def _emit(self, stream: Stream, kind: Kind, text: str, severity: str, at: tuple, *, attrs: dict | None = None, stamp: Any = None, first: tuple | None = None, **fields: Any) -> None:
        stamp = stamp or stream.stamp
        event = {
            "kind": str(kind), "text": text, "severity": severity, "time_ns": stamp.ns if stamp else None,
            "time_error_ns": stamp.error_ns if stamp else 0, "time_assumed": bool(stamp and not stamp.has_zone),
            "host": stream.host, "rank": stream.rank, "local_rank": stream.local_rank, "pid": stream.pid,
            "actor": stream.actor, "stage": stream.stage, "step": stream.step, "line": at[0], "offset": at[1],
            "attrs": {**(attrs or {}), "raw": at[2], "seq": stream.seq, "stream": None, "said_stage": stream.said_stage, "said_step": "step" in fields or stream.said_step == stream.seq,
                      "called": None if severity == "info" else calls.of_event(text, attrs or {}, stream.heading)},
        }  # fmt: skip
        if first and first != at:
            event["attrs"]["first"] = first
        if remote.of_another(event["attrs"]):
            event |= dict.fromkeys(("host", "rank", "local_rank", "pid", "actor"))
        if kind in (Kind.NATIVE_ABORT, Kind.COLLECTIVE_TIMEOUT) and (event["rank"] is None or (stream.child_rank is not None and kind is Kind.NATIVE_ABORT)):
            said = WHAT_RANK.match(text)
            event["rank"] = int(said[1]) if said else stream.child_rank
        event.update(trace_context.context(at[2]) | {k: v for k, v in fields.items() if v is not None})
        event["attrs"]["stream"] = next((k for k, s in self.streams.items() if s is stream), "")
        self.events.append(event)

    def finish(self) -> dict[str, Any]:
        """Close what is open and hand over plain values (they travel between processes)."""
        self.ending = True
        for stream in self.streams.values():
            if stream.block is not None:
                self._close(stream)
        streams = {
            key: {
                "rank": s.rank if s.rank is not None or len(s.ranks) != 1 else next(iter(s.ranks)), "local_rank": s.local_rank,
                "host": s.host, "pid": s.pid, "actor": s.actor, "facts": s.facts,
                "first": s.first, "last": s.last, "steps": [*((m[0], m[1], m[4]) for m in s.lines[:-1]), *s.lines[-1:]], "lines": s.seq, "stage": s.stage, "series": s.series.finish(), "marks": s.marks.finish(),
            }
            for key, s in self.streams.items()
        }  # fmt: skip
        shape = max(self.shapes, key=lambda k: (self.shapes[k], k)) if self.shapes else "plain"
        return {"events": without_shreds(self.events), "streams": streams, "samples": self.samples, "shape": shape, "zoned": self.zoned, "frameworks": sorted(self.frameworks), "parsed": self.parsed, "damaged": self.damaged}
