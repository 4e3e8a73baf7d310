"""One physical line to a `Line`: peel what launchers put before it, then read its header.

>>> line = parse("[default3]:2026-11-20 11:32:10,216 [rank3] INFO train: stage=train step=12 loss=0.31")
>>> line.text, line.rank, line.local_rank, line.level, line.stage, line.step, line.stream
('stage=train step=12 loss=0.31', 3, 3, 'info', 'train', 12, 'default3')
>>> parse("[rank1]:   File 'train.py', line 3")[:4], parse("    return fn(step=3)").prefixed
(("  File 'train.py', line 3", None, None, 1), False)

The shapes are named here instead of being found by listing `formats/`: the first character decides which few are tried, and in which
order (a c10d line before any bracket, a wrapper before a header), because a line must cost microseconds. A test sees to it that none
is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

from rca.ingest.clean import ANSI
from rca.ingest.formats import (
    HEAD,
    Line,
    Wrap,
    abort,
    c10d,
    cloud,
    header,
    heading,
    json_line,
    kernel,
    klog,
    launch,
    logfmt,
    make,
    nccl,
    nemo,
    ray,
    ray_core,
    ray_said,
    slurm,
    syslog,
    tee,
)
from rca.ingest.formats.continued import is_body, is_continued
from rca.ingest.formats.progress import lead
from rca.ingest.formats.words import LEVEL
from rca.ingest.times import MONTH_NAME, WEEKDAY, zoned

__all__ = ["Line", "parse", "pieces"]

DEEPEST = 8  # wrappers around one line; four are seen in practice
#: What an indented line must begin with to be anything but the body of a message.
INDENTED = frozenset("[(0123456789iI*=\x1b")
EDGE = 20  # columns that rich leaves blank where it does not repeat the time
BARE_LEVELS = ("INFO  ", "WARNING  ", "ERROR  ", "DEBUG  ", "CRITICAL ")
DIGITS = "0123456789"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
PEELERS: dict[str, Callable[[str], tuple[str, Wrap] | None]] = {"[": tee.peel, "(": ray.peel, " ": launch.peel, "{": json_line.peel}
PEELERS |= dict.fromkeys(DIGITS + LETTERS, launch.peel)
#: What the first character may begin. A word that opens a line without any header is by far the most frequent: few letters are tried.
READERS: dict[str, tuple[Callable[[str], Line | None], ...]] = {
    "{": (json_line.read,),
    "*": (abort.read, heading.read),
    "-": (header.read, heading.read),
    "#": (heading.read,),
    "=": (heading.read,),
    "<": (kernel.read, syslog.read),
    " ": (header.read,),
    "(": (header.read,),
    ":": (ray_said.read,),
}
READERS |= dict.fromkeys(DIGITS, (header.read, kernel.read, syslog.read)) | dict.fromkeys(LETTERS, ())
for _letters, _reader in (("VDIWEFC", klog.read), ("s", slurm.read), ("tl", logfmt.read), ("JFMASONDjfmasondklg", kernel.read)):
    READERS |= {_letter: (*READERS[_letter], _reader) for _letter in _letters}
#: Behind an opening bracket the second character decides.
BRACKETS: dict[str, tuple[Callable[[str], Line | None], ...]] = dict.fromkeys(LETTERS + "<", (header.read,))
BRACKETS |= dict.fromkeys("JFMASONDTW", (kernel.read, header.read)) | {" ": (kernel.read, header.read)}
BRACKETS |= dict.fromkeys("EWFIDV", (c10d.read, nemo.read, kernel.read, header.read))
BRACKETS |= dict.fromkeys(DIGITS, (ray_core.read, slurm.read, kernel.read, header.read)) | {"N": (nemo.read, kernel.read, header.read)}
DATED = (header.read,)  # `[2026-11-20 11:32:06]` or with milliseconds: by far the most frequent bracket
#: Words and shapes with which a header of an unknown logger begins when it does not begin with a time.
BEGINS = re.compile(
    rf"(?:(?:global_)?rank[=:]?\d|[Rr]ank ?\d{{1,6}} ?\||{LEVEL}\b|{WEEKDAY},? |{MONTH_NAME} "
    # a name, then a time or a level that is more than a word of a sentence: "worker3 ERROR: x", not "No ERROR found"
    rf"|[A-Za-z_][\w.-]{{0,60}}+(?: \d{{1,9}})?(?: ?[:|-]{{1,2}} ?\[?{LEVEL}\b| {{1,4}}\[?{LEVEL}(?=:|\]| \|| +\[| +\S{{1,80}}:\d)"
    r"|[ :|-]{1,4}\[?(?:\d{4}-\d\d-\d\d|\d\d-\d\d \d\d:|\d\d:\d\d:\d\d)))",
    re.ASCII,
)
#: Other scripts: only a month of another locale is looked for.
OTHER = (kernel.read,)


def parse(text: str) -> Line:
    """Read one physical line (without its newline). Never raises; a line that no grammar knows is `plain` and keeps its text."""
    if "\x1b" in text:
        text = ANSI.sub("", text)
    if "\r" in text:
        text = pieces(text)[-1]
    first = text[:1]
    if first == " " or first == "\t":
        bare = text.lstrip()
        if bare[:1] not in INDENTED and not (text[:EDGE].isspace() and bare.startswith(BARE_LEVELS)):
            step = lead(bare) if bare[:4] == "Step" or bare[:4] == "step" else None
            return make((text, None, None, None, None, None, None, None, None, step, "", "plain", False, None, None))
    peeled = _peel(text, first)
    line = _read(text, first) if peeled is None else _merge(*peeled)
    return _spelled(line) if "\\" in text and OPENS in line.text and not (line.extra and "exc" in line.extra) else line


def parse_behind(text: str, wrap: Wrap) -> Line:
    """Read a line whose label, which only the whole file could tell from its content, was taken off before.

    >>> parse_behind("[rank3]: boom", Wrap("label", "alpha", host="alpha"))[:6]
    ('boom', None, None, 3, None, 'alpha')
    """
    peeled = _peel(text, text[:1])
    return _merge(peeled[0], [wrap, *peeled[1]]) if peeled else _merge(text, [wrap])


def pieces(text: str) -> list[str]:
    r"""The lines that share one physical line: behind carriage returns, and where a strong marker follows a progress bar.

    Each piece keeps the wrappers at the start of the physical line, so that it stays in its stream. Progress bars that were
    overwritten are dropped.

    >>> pieces("[default0]:  5%|#    | 1/20\r ready[rank0]:[E1118 20:32:23.955028747 x.cpp:6] boom")
    ['[default0]: ready', '[default0]:[rank0]:[E1118 20:32:23.955028747 x.cpp:6] boom']
    >>> pieces("a\r"), pieces(""), pieces("[rank0]:[E1118 20:32:23.955028747 x.cpp:6] boom")
    (['a'], [''], ['[rank0]:[E1118 20:32:23.955028747 x.cpp:6] boom'])
    """
    if "\r" not in text:
        found = _glued(ANSI.sub("", text)) if any(word in text for word in GLUE) else []
        return found if len(found) > 1 else [text]
    if "\x1b" in text:
        text = ANSI.sub("", text)
    start = _wrapped(text)
    lead_in = text[:start]
    parts = [part for part in text[start:].split("\r") if part and not part.isspace()]
    found = []
    for number, part in enumerate(parts, 1):
        if any(word in part for word in GLUE):
            found.extend(_glued(lead_in + part))
        elif number == len(parts) or not BAR.search(part, 0, HEAD):
            found.append(lead_in + part)
    return found or [text.replace("\r", "")]


#: Cheap test before MARKER, which then says where.
GLUE = ("[rank", "pp:", "NCCL WARN", "slurmstepd", "Traceback (most recent call last)")
MARKER = re.compile(
    r"(?:\[rank\d{1,6}\]:)?\[[EWF](?:\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})?)? [\w./+-]{1,120}pp:\d{1,6}\]|\[rank\d{1,6}\]: |slurmstepd(?:-[\w.-]{1,60})?: "
    r"|Traceback \(most recent call last\)",
    re.ASCII,
)
NCCL_HEAD = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?[A-Za-z\d][\w.-]{0,60}:\d{1,9}:\d{1,9} \[-?\d{1,4}\] (?:[\w./+-]{1,80}:\d{1,6} )?(?:\(\w{1,60}\) )?\Z", re.ASCII
)
BAR = re.compile(r"\d%\||\d(?:it|s|B|tok|ex)/s|/it[\],]")
#: Before a traceback of IPython stands the exception's name, before one of rich the edge of its box.
ANNOUNCES = re.compile(r"\s*(?:[A-Za-z_][\w.]{0,120}\s{2,}|[\u2500-\u257f\s]+)")
MOST_PIECES = 64
RECORDS = ("json", "journal", "logfmt")  # a marker inside such a record is part of a value
NCCL_LONGEST = 200


def _glued(text: str) -> list[str]:
    """Split before every strong marker that stands behind something that is neither wrapper nor header."""
    starts = [match.start() for match in islice(MARKER.finditer(text), MOST_PIECES)]
    at = text.find("NCCL WARN")
    for _ in range(MOST_PIECES):
        if at <= 0:
            break
        if head := NCCL_HEAD.search(text, max(0, at - NCCL_LONGEST), at):
            starts.append(head.start())
        at = text.find("NCCL WARN", at + 1)
    if not starts or parse(text).shape in RECORDS:
        return [text]
    begin = _wrapped(text)
    cuts = [begin]
    for start in sorted(starts):
        if start <= cuts[-1]:
            continue
        before = text[cuts[-1] : start]
        line = parse(before)
        # Behind nothing but a header or a rank the marker is that line's own, and a traceback also belongs to what announces it.
        announced = text.startswith("Traceback", start) and (line.prefixed or ANNOUNCES.fullmatch(line.text))
        if line.text.strip() and not announced:
            cuts.append(start)
    return [text[:begin] + text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def _peel(text: str, first: str) -> tuple[str, list[Wrap]] | None:
    """The line without the wrappers at its start, and these, outermost first; None if there is none."""
    if (first in DIGITS and text[4:5] == "-" and text[10:11] != "T") or (first == "[" and text[1:2] in DIGITS and "," not in text[2:8]):
        return None  # a time: by far the most frequent beginning
    peeled = None
    wraps: list[Wrap] = []
    while first in PEELERS and (peeled := PEELERS[first](text)) is not None and len(wraps) < DEEPEST:
        text, wrap = peeled
        if wrap.shape == "rank" and wraps and wraps[-1].shape == "rank":
            wraps.pop()  # two processes wrote at once: the prefix of one stands before the line of the other
        wraps.append(wrap)
        first = text[:1]
    return (text, wraps) if wraps else None


def _wrapped(text: str) -> int:
    """Where the wrappers of the line end; a rank prefix counts as part of what follows it."""
    rest = text = text[: text.rfind(" [repeated ")] if " [repeated " in text else text
    for _ in range(DEEPEST):
        peeler = PEELERS.get(rest[:1])
        peeled = peeler(rest) if peeler else None
        if peeled is None or peeled[1].shape == "rank":
            break
        rest = peeled[0]
    return len(text) - len(rest)


def _read(text: str, first: str, depth: int = 0) -> Line:
    """Read a line that no wrapper surrounds; `depth` counts the carriers around it."""
    if (first == " " or first == "\t") and text.lstrip()[:1] not in INDENTED and not text[:EDGE].isspace():
        return Line(text)
    if text[:8] == "(AReaL) ":
        return header.read(text[8:], "areal") or Line(text[8:], shape="areal")
    if " NCCL " in text and (line := nccl.read(text)) is not None:
        return line
    if first == "[" and text.find("] {", 20, RELAYED) > 0 and (relayed := cloud.peel(text)) is not None:
        peeled = _peel(relayed[0], relayed[0][:1]) if depth < DEEPEST else None
        return _merge(peeled[0], [relayed[1], *peeled[1]], depth + 1) if peeled else _merge(relayed[0], [relayed[1]], depth + 1)
    if first != "[":
        readers = READERS.get(first, OTHER)
    elif text[20:21] == "]" or text[24:25] == "]":
        readers = DATED if text[5:6] == "-" and text[11:12] == " " else BRACKETS.get(text[1:2], ())
    else:
        readers = BRACKETS.get(text[1:2], ())
    for read in readers:
        line = read(text)
        if line is not None:
            if line.shape == "header":
                return _carried(text, line, depth) if line.level is None and line.rank is None else line
            return _content(line, depth) if line.shape in CARRIERS else line
    if first in LETTER_SET and BEGINS.match(text) and (line := header.read(text)) is not None:
        return _carried(text, line, depth) if line.level is None and line.rank is None else line
    if "%|" in text and depth < DEEPEST and (fused := FUSED.search(text, 0, BAR_ENDS)):
        return _read(text[fused.end() :], text[fused.end()], depth + 1)
    step = lead(text) if "tep" in text[:LEAD] or "teration" in text[:LEAD] else None
    return make((text, None, None, None, None, None, None, None, None, step, "", "plain", False, None, None))


RELAYED = 48  # characters within which a relay's time ends
CARRIERS = ("json", "journal", "syslog")  # records that others' lines are put into, one by one
#: The end of a progress bar with the line of somebody else right behind it.
FUSED = re.compile(r"%\|[^\]]{0,200}\d(?:it|s|B|tok|ex)?/(?:s|it|step|epoch)[^\]]{0,120}\](?=[A-Za-z\[(])")
BAR_ENDS = 600
CARRIED = frozenset("[({")  # with these a line begins that a carrier's time stands before
NO_INNER = ("plain", "srun", "kaggle")  # "3: " behind a time is no label
LETTER_SET = frozenset(LETTERS)
LEAD = 60


def _spelled(line: Line) -> Line:
    r"""A line with a traceback whose line ends are spelled out, as in the `repr` of an exception or in JSON inside of text.

    >>> line = _spelled(Line("failed: b'Traceback (most recent call last):\\\\n  File \\\\\"x.py\\\\\", line 3, in f\\\\nValueError: boom\\\\n'"))
    >>> line.text, line.extra["exc"].splitlines()[-1]
    ('failed', 'ValueError: boom')
    """
    at = line.text.index(OPENS)
    for quote, closes in CLOSES:
        if quote in line.text[at:] and (end := closes.search(line.text, at)):  # what stands behind the quotation is the quoter's
            line = line._replace(text=line.text[: end.start()])
            break
    trace = SPELLED_QUOTE.sub(r"\1", SPELLED_END.sub("\n", line.text[at:]))
    if "\n" not in trace:
        return line
    before = line.text[:at].rstrip("bf'\"( :[{")
    return line._replace(text=before or line.text[:at] or OPENS, extra={**(line.extra or {}), "quoted": True, "exc": trace.rstrip("\n'\")]} ")})


OPENS = "Traceback (most recent call last)"
CLOSES = (('\\"', re.compile(r'(?<!\\)"')), ("\\'", re.compile(r"(?<!\\)'")))
SPELLED_END = re.compile(r"\\{1,4}n")
SPELLED_QUOTE = re.compile(r"\\{1,4}([\"'])")


def _content(line: Line, depth: int) -> Line:
    """A record whose message may be somebody else's line, with wrappers or a header of its own: what that says goes before the record."""
    text = line.text
    if depth >= DEEPEST or not text or "\n" in text:
        return line
    relayed = line.level is None or line.shape == "syslog"  # whose level is that of the stream
    if line.prefixed and (is_continued(text) if relayed else is_body(text)):
        line = line._replace(prefixed=False)
    if text[:1] == " ":
        return line
    peeled = _peel(text, text[:1])
    found = _merge(*peeled, depth + 1) if peeled else _read(text, text[:1], depth + 1)
    if found.shape in NO_INNER:
        return line
    extra = {**(line.extra or {}), **(found.extra or {})}
    if line.stamp and found.stamp:
        extra["carrier"] = line.stamp
        found = found._replace(stamp=zoned(found.stamp, line.stamp))
    told = {name: value for name in OUTER if (value := getattr(found, name)) is not None}
    prefixed = found.prefixed or (line.prefixed and not (is_continued if relayed else is_body)(found.text))
    return line._replace(**told, text=found.text, stream=found.stream, prefixed=prefixed, extra=extra or None)


OUTER = ("stamp", "level", "rank", "local_rank", "host", "pid", "actor", "stage", "step", "logger")


def _carried(text: str, line: Line, depth: int) -> Line:
    """A line with nothing but a time: that may be syslog, or a carrier's time before a line with wrappers or a header of its own."""
    if text[0] in DIGITS:
        if not line.text and not (line.stamp and line.stamp.has_zone):
            return Line(text)  # `uptime -s` and other output: a date is its content, not its time
        if (syslog := kernel.read(text)) is not None:
            return syslog
    inner = line.text
    first = inner[:1]
    if depth < DEEPEST and (first in CARRIED or " NCCL " in inner or inner[1:2].isdecimal()):
        peeled = _peel(inner, first)
        found = _merge(*peeled, depth + 1) if peeled else _read(inner, first, depth + 1)
        if found.shape in NO_INNER:
            return line
        extra = {**(found.extra or {}), "carrier": line.stamp} if line.stamp and found.stamp else found.extra
        return found._replace(stamp=zoned(found.stamp, line.stamp) if found.stamp else line.stamp, extra=extra)
    return line


def _merge(text: str, wraps: list[Wrap], depth: int = 0) -> Line:
    """Read the line inside and add what the wrappers told: a header knows the time best, a wrapper the process."""
    body = text[:2] == "  " and text.lstrip()[:1] not in INDENTED  # of a traceback: the frequent case
    if body:
        line = make((text, None, None, None, None, None, None, None, None, None, "", "plain", False, None, None))
    else:
        line = _read(text, text[:1], depth)
    text, stamp, level, rank, local_rank, host, pid, actor, stage, step, stream, shape, prefixed, logger, extra = line
    named = None
    for outer, stream_, rank_, local_rank_, host_, pid_, actor_, stamp_, extra_ in reversed(wraps):
        # c10d's [Rank 3] is the rank in its group and [rank3]: before it the global one; a launcher's number yields to both.
        if rank_ is not None and (rank is None or outer == "rank"):
            rank = rank_
        local_rank = local_rank_ if local_rank is None else local_rank
        host = host or host_
        pid = pid_ if pid is None else pid
        named = named or actor_
        shape = outer if shape == "plain" else shape
        if stream_:
            stream = f"{stream_}/{stream}" if stream else stream_
        if stamp_ is not None:
            if stamp is None:
                stamp = stamp_
            else:
                stamp = zoned(stamp, stamp_)
                extra = {**(extra or {}), "carrier": stamp_}
        if extra_:
            extra = {**(extra or {}), **extra_}
    return make((text, stamp, level, rank, local_rank, host, pid, named or actor, stage, step, stream, shape, prefixed, logger, extra))
